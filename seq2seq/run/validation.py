"""The validation of a run: every set, translated as the configuration says."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import torch
from sacrebleu import CHRF
from torch.nn import functional as F

from seq2seq.batches import Batching, EncodedCorpus
from seq2seq.data.preparation import PreparedData
from seq2seq.device import Compute, oom_as_user_error
from seq2seq.machine.processes import Processes
from seq2seq.model_folder import TrainedModel
from seq2seq.run.config import Config
from seq2seq.score import ScoreConfig, bleu
from seq2seq.search import SearchConfig
from seq2seq.tokenizer import PADDING_ID
from seq2seq.transformer import Transformer

_LOSS_BATCH_TOKENS = 2048


@torch.inference_mode()
def cross_entropy(model: Transformer, corpus: EncodedCorpus, compute: Compute) -> float:
    """Compute the mean cross-entropy of all pairs, in nats per target token (teacher forcing)."""
    tokens = max(_LOSS_BATCH_TOKENS, *corpus.longest)
    batching = Batching(corpus, source_tokens=tokens, target_tokens=tokens, seed=0)
    total, count = 0.0, 0
    for indices in batching.in_order():
        batch = batching.collate(indices).to(compute.device)
        with compute.autocast():
            logits = model(batch.source, batch.target_input)
        total += F.cross_entropy(
            logits.float().flatten(0, 1),
            batch.target_output.flatten(),
            ignore_index=PADDING_ID,
            reduction="sum",
        ).item()
        count += int((batch.target_output != PADDING_ID).sum())
    return total / count


class LineTranslator(Protocol):
    """What translates the lines of a validation."""

    def translate(
        self, lines: Sequence[str], *, to: str | None, on_batch: Callable[[int, int], None]
    ) -> list[str]:
        """See `PlainTranslator.translate`."""


MakeTranslator: TypeAlias = Callable[[TrainedModel, Compute, SearchConfig], LineTranslator]


class SetShare(NamedTuple):
    """What one of n processes finds on a validation set."""

    outputs: list[str]
    """Of every n-th line."""
    loss: float
    """Of all pairs, which takes little time; NaN but in the main process."""


def validate_share(
    trained: TrainedModel,
    config: Config,
    data: PreparedData,
    compute: Compute,
    world: Processes,
    make_translator: MakeTranslator,
    show: Callable[[int, int], None] = lambda done, lines: None,
) -> list[SetShare]:
    """Translate this process's lines of all validation sets.

    `show` is called after each batch of a set: how many lines are translated, and of how many.
    """

    def show_all(done: int, lines: int) -> None:
        show(done * world.size, lines * world.size)

    shares = []
    with oom_as_user_error():
        # In float32 on a CPU, where no output then depends on the batch.
        precise = compute if compute.on_gpu else Compute(compute.device)
        translator = make_translator(trained, precise, config.search)
        for valid in data.valid_sets.values():
            language = valid.split.target_language
            sources = [pair.source for pair in valid.pairs[world.rank :: world.size]]
            outputs = translator.translate(sources, to=language, on_batch=show_all)
            loss = (
                cross_entropy(trained.model, valid.corpus, compute) if world.is_main else math.nan
            )
            shares.append(SetShare(outputs, loss))
    return shares


def summarize(
    shares: Sequence[list[SetShare]], config: Config, data: PreparedData
) -> dict[str, float]:
    """Compute loss and BLEU on all validation sets from what each process has found.

    Returns the metrics by the names under which they are recorded.
    """
    metrics: dict[str, float] = {}
    prefixes = []
    scoring = ScoreConfig(tokenize=config.bleu_tokenizer)
    for i, (name, valid) in enumerate(data.valid_sets.items()):
        # Without label smoothing, per target token; against the untouched references.
        loss = shares[0][i].loss
        references, outputs = [pair.target for pair in valid.pairs], [""] * len(valid.pairs)
        for rank, share in enumerate(shares):
            outputs[rank :: len(shares)] = share[i].outputs
        prefix = "valid" if name == "valid" else f"valid/{name}"
        prefixes.append(prefix)
        metrics[f"{prefix}/loss"] = loss
        metrics[f"{prefix}/perplexity"] = math.exp(min(loss, 700.0))
        metrics[f"{prefix}/bleu"] = bleu(outputs, [references], scoring).value
        if config.training.select_by == "chrf":
            metrics[f"{prefix}/chrf"] = CHRF().corpus_score(outputs, [references]).score
    if len(prefixes) > 1:
        for key in ("loss", "bleu", "chrf"):
            if f"valid/{key}" in metrics:
                values = [metrics[f"{prefix}/{key}"] for prefix in prefixes]
                metrics[f"valid/mean/{key}"] = sum(values) / len(values)
    return metrics
