"""The validation of a run: every set, translated as the configuration says."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from sacrebleu import CHRF
from torch.nn import functional as F

from seq2seq.batches import Batching
from seq2seq.data.preparation import PreparedData
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.device import Compute, oom_as_user_error
from seq2seq.encoded_corpus import EncodedCorpus
from seq2seq.machine.processes import OneProcess
from seq2seq.model_folder import TrainedModel
from seq2seq.run.config import Config
from seq2seq.score import ScoreConfig, bleu
from seq2seq.tokenizer import PADDING_ID
from seq2seq.transformer import Transformer

logger = logging.getLogger("seq2seq")

_LOSS_BATCH_TOKENS = 2048
_COUNTED_PAIRS = 100_000  # of the training text
_UNTRAINED = 1.0  # nats; the loss of a model that has learned nothing exceeds a guess by less
_MAX_SHARE = 0.1  # of training.max_minutes: outputs that a model doesn't end take long


class _TimeOverError(Exception):
    """A validation has taken its share of `training.max_minutes`."""


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


@dataclass(frozen=True)
class Guessing:
    """The losses of two guesses, which a model that has learned something is below."""

    uniform: float
    """Every token is equally probable."""
    by_frequency: float
    """Every token is as probable as it is frequent in the targets of training."""

    @classmethod
    def of(cls, train: EncodedCorpus, vocab_size: int) -> "Guessing":
        """Compute the losses from the first training pairs."""
        ids, _ = train.tokens_of(2 * np.arange(min(len(train), _COUNTED_PAIRS)) + 1)  # (N,)
        counts = np.bincount(ids)
        shares = counts[counts > 0] / len(ids)
        return cls(math.log(vocab_size), float(-(shares * np.log(shares)).sum()))

    def failure(self, loss: float, train_loss: float) -> "Failure | None":
        """Describe a validation loss that is no better than a guess; None if it is better.

        If the model has learned its training text, it is no divergence.
        """
        limit = self.uniform + _UNTRAINED
        if not (loss <= limit or train_loss <= limit):
            return Failure(
                is_divergence=True,
                message=f"validation loss {loss:,.3f} is worse than guessing, {self.uniform:.3f}:"
                " the training has diverged: lower training.learning_rate_scale or raise"
                " training.warmup_steps",
            )
        if loss >= self.by_frequency:
            return Failure(
                is_divergence=False,
                message=f"validation loss {loss:.3f} is no better than guessing by the frequency of"
                f" the pieces, {self.by_frequency:.3f}: the model can't translate: train longer,"
                " or, if the loss no longer falls, lower training.learning_rate_scale",
            )
        return None


@dataclass(frozen=True)
class Failure:
    """A loss that is no better than a guess."""

    is_divergence: bool
    """Whether both losses, of validation and training, are clearly worse than those of tokens that
    are equally probable."""
    message: str


class SetShare(NamedTuple):
    """The findings of one of n processes on a validation set."""

    outputs: list[str] | None
    """The translations of every n-th line; None if time was over."""
    loss: float
    """The loss over all pairs; NaN except in the main process."""


def translation_options(config: Config, compute: Compute, to: str | None) -> TranslationOptions:
    """Return how a validation translates: as users of the model do, on the device of its training.

    On a CPU that is in float32, where no output depends on the batch; on a GPU it is in the
    precision of the training.
    """
    in_bf16 = compute.on_gpu and compute.dtype is torch.bfloat16
    return TranslationOptions(
        device=str(compute.device),
        precision="bf16" if in_bf16 else "fp32",
        to=to,
        search=config.search,
        forms=config.forms,
    )


def validate_share(
    trained: TrainedModel,
    config: Config,
    data: PreparedData,
    compute: Compute,
    world: OneProcess,
    show: Callable[[int, int], None] = lambda done, lines: None,
) -> list[SetShare]:
    """Translate this process's lines of all validation sets.

    `show` is called after each batch of a set: how many lines are translated, and of how many.
    """
    limit = _MAX_SHARE * (config.training.max_minutes or math.inf)
    end = time.monotonic() + 60 * limit

    def watch(done: int, lines: int) -> None:
        show(done * world.size, lines * world.size)
        if time.monotonic() > end and done < lines:
            raise _TimeOverError(f"{done:,} of {lines:,} lines")

    shares = []
    with oom_as_user_error():
        languages = [valid.split.target_language for valid in data.valid_sets.values()]
        translator = Translator(
            trained, translation_options(config, compute, next(iter(languages), None))
        )
        for valid, language in zip(data.valid_sets.values(), languages, strict=True):
            sources = [pair.source for pair in valid.pairs[world.rank :: world.size]]
            outputs = None
            try:
                found = translator.translate(sources, to=language, on_batch=watch)
                outputs = [translation.text for translation in found]
            except _TimeOverError as over:
                logger.warning(
                    f"{over} were translated in {limit:.2g} minutes, a tenth of"
                    " training.max_minutes: this validation is cut off, and its BLEU counts as 0"
                )
            loss = (
                cross_entropy(trained.model, valid.corpus, compute) if world.is_main else math.nan
            )
            shares.append(SetShare(outputs, loss))
    return shares


def summarize(
    shares: Sequence[list[SetShare]], config: Config, data: PreparedData
) -> tuple[dict[str, float], bool]:
    """Compute loss and BLEU on all validation sets from what each process has found.

    Returns the metrics by the names under which they are recorded, and whether time was over before
    all was translated, so that BLEU and chrF count as 0.
    """
    metrics: dict[str, float] = {}
    prefixes, cut_off = [], False
    scoring = ScoreConfig(tokenize=config.bleu_tokenizer)
    for i, (name, valid) in enumerate(data.valid_sets.items()):
        # Without label smoothing, per target token; against the untouched references.
        loss = shares[0][i].loss
        references, outputs = [pair.target for pair in valid.pairs], [""] * len(valid.pairs)
        if any(share[i].outputs is None for share in shares):
            cut_off = True
        else:
            for rank, share in enumerate(shares):
                outputs[rank :: len(shares)] = share[i].outputs or []
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
    return metrics, cut_off
