"""The validation of a run: every set, translated as the configuration says."""

import logging
import math
import time
from collections.abc import Callable, Sequence

import torch
from sacrebleu import CHRF
from torch.nn import functional as F

from seq2seq.config import Config
from seq2seq.data.batching import Batching
from seq2seq.data.config import SplitConfig
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

logger = logging.getLogger("seq2seq")

_BATCH_TOKENS = 2048
# Of training.max_minutes: the outputs of a model that doesn't end them take long.
_MAX_SHARE = 0.1


class _TimeOverError(Exception):
    """A validation has taken its share of `training.max_minutes`."""


@torch.inference_mode()
def cross_entropy(model: Transformer, corpus: EncodedCorpus, compute: Compute) -> float:
    """Compute the mean cross-entropy of all pairs, in nats per target token (teacher forcing)."""
    tokens = max(_BATCH_TOKENS, *corpus.longest)
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


def validate_sets(
    trained: TrainedModel,
    config: Config,
    data: PreparedData,
    compute: Compute,
    show: Callable[[int, int], None] = lambda done, lines: None,
) -> tuple[dict[str, float], bool]:
    """Compute loss and BLEU of a model on all validation sets; its mode is restored.

    After each batch of a set, `show` is called with the lines that are translated, and all. Returns
    the metrics by the names under which they are recorded, and whether time was over before all was
    translated, so that BLEU and chrF count as 0.
    """
    sets, cut_off = config.data, False
    limit = _MAX_SHARE * (config.training.max_minutes or math.inf)
    end = time.monotonic() + 60 * limit
    options = TranslationOptions(
        device=str(compute.device), search=config.search, to=sets.valid.target_language
    )

    def validate(
        split: SplitConfig, pairs: Sequence[SentencePair], corpus: EncodedCorpus
    ) -> dict[str, float]:
        nonlocal cut_off
        for_language = translator.with_target_language(split.target_language)
        sources, references = zip(*pairs, strict=True)
        try:
            outputs = [t.text for t in for_language.translate(sources, on_batch=watch)]
        except _TimeOverError as over:
            logger.warning(
                f"{over} were translated in {limit:.2g} minutes, a tenth of training.max_minutes:"
                " this validation is cut off, and its BLEU counts as 0"
            )
            outputs, cut_off = [""] * len(pairs), True
        # Without label smoothing, per target token; against the untouched references.
        loss = cross_entropy(trained.model, corpus, compute)
        scoring = ScoreConfig(tokenize=config.bleu_tokenizer)
        metrics = {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bleu": bleu(outputs, [references], scoring).value,
        }
        if config.training.select_by == "chrf":
            metrics["chrf"] = CHRF().corpus_score(outputs, [references]).score
        return metrics

    def watch(done: int, lines: int) -> None:
        show(done, lines)
        if time.monotonic() > end and done < lines:
            raise _TimeOverError(f"{done:,} of {lines:,} lines")

    training = trained.model.training
    trained.model.eval()
    with oom_as_user_error():
        translator = Translator(trained, options)
        found = {"valid": validate(sets.valid, data.valid_pairs, data.valid)}
        for name, added in data.valid_sets.items():
            found[f"valid/{name}"] = validate(sets.valid_sets[name], added.pairs, added.corpus)
    trained.model.train(training)
    if data.valid_sets:
        found["valid/mean"] = {
            key: sum(metrics[key] for metrics in found.values()) / len(found)
            for key in found["valid"]
            if key != "perplexity"
        }
    return {
        f"{name}/{key}": value for name, metrics in found.items() for key, value in metrics.items()
    }, cut_off
