"""The validation of a run: every set, translated as the configuration says."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import torch
from sacrebleu import CHRF
from torch.nn import functional as F

from seq2seq.config import Config
from seq2seq.data.batching import Batching
from seq2seq.data.encoded import EncodedCorpus
from seq2seq.data.pair_files import SentencePair
from seq2seq.data.preparation import PreparedData
from seq2seq.data.tokenizer import PADDING_ID
from seq2seq.decoding.config import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.device import Compute, oom_as_user_error
from seq2seq.evaluation.scores import ScoreConfig, bleu
from seq2seq.model import Transformer
from seq2seq.storage.trained_model import TrainedModel
from seq2seq.training.distributed import World

logger = logging.getLogger("seq2seq")

_BATCH_TOKENS = 2048
# Of training.max_minutes: the outputs of a model that doesn't end them take long.
_MAX_SHARE = 0.1
_NOTHING: Any = object()

T = TypeVar("T")


class _TimeOverError(Exception):
    """A validation has taken its share of `training.max_minutes`."""


@torch.inference_mode()
def batch_losses(
    model: Transformer, corpus: EncodedCorpus, compute: Compute, world: World
) -> list[tuple[float, int]]:
    """Compute the summed cross-entropy of batches, in nats (teacher forcing), and their tokens.

    The batches of process r of n are r, r + n, r + 2n, ...; the tokens are those of the targets.
    """
    tokens = max(_BATCH_TOKENS, *corpus.longest)
    batching = Batching(corpus, source_tokens=tokens, target_tokens=tokens, seed=0)
    found = []
    for indices in batching.in_order()[world.rank :: world.size]:
        batch = batching.collate(indices).to(compute.device)
        with compute.autocast():
            logits = model(batch.source, batch.target_input)
        loss = F.cross_entropy(
            logits.float().flatten(0, 1),
            batch.target_output.flatten(),
            ignore_index=PADDING_ID,
            reduction="sum",
        )
        found.append((loss.item(), int((batch.target_output != PADDING_ID).sum())))
    return found


class SetShare(NamedTuple):
    """What one of n processes finds on a validation set."""

    outputs: list[str] | None
    """Of every n-th line; None if time was over."""
    losses: list[tuple[float, int]]
    """See `batch_losses`."""


def validate_share(
    trained: TrainedModel,
    config: Config,
    data: PreparedData,
    compute: Compute,
    world: World,
    show: Callable[[int, int], None] = lambda done, lines: None,
) -> list[SetShare]:
    """Translate this process's lines of all validation sets; the model's mode is restored.

    After each batch of a set, `show` is called with the lines that are translated, and all.
    """
    limit = _MAX_SHARE * (config.training.max_minutes or math.inf)
    end = time.monotonic() + 60 * limit
    target_language = config.data.valid.target_language
    options = TranslationOptions(
        device=str(compute.device), search=config.search, to=target_language
    )

    def watch(done: int, lines: int) -> None:
        show(done * world.size, lines * world.size)
        if time.monotonic() > end and done < lines:
            raise _TimeOverError(f"{done:,} of {lines:,} lines")

    training = trained.model.training
    trained.model.eval()
    found = []
    with oom_as_user_error():
        translator = Translator(trained, options)
        for _, pairs, corpus, language in _sets(config, data):
            for_language = translator.with_target_language(language)
            sources = [pair.source for pair in pairs[world.rank :: world.size]]
            outputs = None
            try:
                outputs = [t.text for t in for_language.translate(sources, on_batch=watch)]
            except _TimeOverError as over:
                logger.warning(
                    f"{over} were translated in {limit:.2g} minutes, a tenth of"
                    " training.max_minutes: this validation is cut off, and its BLEU counts as 0"
                )
            found.append(SetShare(outputs, batch_losses(trained.model, corpus, compute, world)))
    trained.model.train(training)
    return found


def summarize(
    shares: Sequence[list[SetShare]], config: Config, data: PreparedData
) -> tuple[dict[str, float], bool]:
    """Compute loss and BLEU on all validation sets from what each process has found.

    Returns the metrics by the names under which they are recorded, and whether time was over before
    all was translated, so that BLEU and chrF count as 0.
    """
    found, cut_off = {}, False
    scoring = ScoreConfig(tokenize=config.bleu_tokenizer)
    for (name, pairs, _, _), of_set in zip(
        _sets(config, data), zip(*shares, strict=True), strict=True
    ):
        losses = _in_turn([share.losses for share in of_set])
        # Without label smoothing, per target token; against the untouched references.
        loss = sum(loss for loss, _ in losses) / sum(tokens for _, tokens in losses)
        references = [pair.target for pair in pairs]
        outputs = _in_turn([share.outputs or [] for share in of_set])
        if any(share.outputs is None for share in of_set):
            outputs, cut_off = [""] * len(pairs), True
        found[name] = {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bleu": bleu(outputs, [references], scoring).value,
        }
        if config.training.select_by == "chrf":
            found[name]["chrf"] = CHRF().corpus_score(outputs, [references]).score
    if data.valid_sets:
        found["valid/mean"] = {
            key: sum(metrics[key] for metrics in found.values()) / len(found)
            for key in found["valid"]
            if key != "perplexity"
        }
    return {
        f"{name}/{key}": value for name, metrics in found.items() for key, value in metrics.items()
    }, cut_off


def _sets(
    config: Config, data: PreparedData
) -> Iterator[tuple[str, Sequence[SentencePair], EncodedCorpus, str | None]]:
    """Yield the name, pairs, encoding and target language of each validation set."""
    yield "valid", data.valid_pairs, data.valid, config.data.valid.target_language
    for name, added in data.valid_sets.items():
        yield f"valid/{name}", added.pairs, added.corpus, added.split.target_language


def _in_turn(shares: Sequence[Sequence[T]]) -> list[T]:
    """Put together what processes have taken in turn: the first item of each, the second, ..."""
    turns = zip_longest(*shares, fillvalue=_NOTHING)
    return [item for turn in turns for item in turn if item is not _NOTHING]
