"""The validation of a training: every set, translated as the configuration says."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
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

_BATCH_TOKENS = 2048


@dataclass(frozen=True)
class Validation:
    """The result of one validation."""

    loss: float
    """Cross-entropy in nats per target token, `</s>` counted, without label smoothing."""
    bleu: float
    """sacreBLEU's BLEU of the translations against the untouched references."""
    others: dict[str, "Validation"] = field(default_factory=dict)
    """The results of further validation sets, by name."""

    @property
    def perplexity(self) -> float:
        """Perplexity per target token, exp(loss)."""
        return math.exp(min(self.loss, 700.0))

    def metrics(self) -> dict[str, float]:
        """Return the metrics under the names by which they are recorded.

        They are `valid/loss`, `valid/perplexity` and `valid/bleu`; with further sets also, for
        example, `valid/NAME/bleu` of each, and `valid/mean/bleu`, the mean over all sets.
        """
        metrics = {
            "valid/loss": self.loss,
            "valid/perplexity": self.perplexity,
            "valid/bleu": self.bleu,
        }
        for name, other in self.others.items():
            metrics |= {
                key.replace("valid/", f"valid/{name}/"): value
                for key, value in other.metrics().items()
            }
        if self.others:
            bleus = [self.bleu, *(other.bleu for other in self.others.values())]
            metrics["valid/mean/bleu"] = sum(bleus) / len(bleus)
        return metrics


def validate(
    model: Transformer,
    corpus: EncodedCorpus,
    references: Sequence[str],
    translate: Callable[[], list[str]],
    *,
    compute: Compute,
    scoring: ScoreConfig | None = None,
) -> Validation:
    """Evaluate a model on the validation set.

    Args:
        model: on its device, in any mode; its mode is restored.
        corpus: the encoded pairs.
        references: the target sides of all validation pairs.
        translate: translates the source sides of all validation pairs, in their order.
        compute: the model's device, and the precision of the matmuls.
        scoring: the options of BLEU.
    """
    training = model.training
    model.eval()
    loss = cross_entropy(model, corpus, compute)
    score = bleu(translate(), [references], scoring).value
    model.train(training)
    return Validation(loss, score)


@torch.inference_mode()
def cross_entropy(model: Transformer, corpus: EncodedCorpus, compute: Compute) -> float:
    """Compute the mean cross-entropy of all pairs, in nats per target token (teacher forcing)."""
    longest = int(max(corpus.source_lengths.max(), corpus.target_lengths.max()))
    tokens = max(_BATCH_TOKENS, longest)
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
) -> Validation:
    """Compute loss, perplexity and BLEU of a model on all validation sets.

    Args:
        trained: the model, on its device, and its tokenizer.
        config: the configuration of the training.
        data: the prepared data.
        compute: the model's device, and the precision of the matmuls.

    Raises:
        OutOfMemoryError: if memory does not suffice.
    """
    sets = config.data
    options = TranslationOptions(device=str(compute.device), search=config.search)

    def result(
        place: SplitConfig, pairs: Sequence[SentencePair], corpus: EncodedCorpus
    ) -> Validation:
        into = translator.with_target_language(place.target_language)
        sources, references = [p.source for p in pairs], [p.target for p in pairs]
        return validate(
            trained.model,
            corpus,
            references,
            lambda: [translation.text for translation in into.translate(sources)],
            compute=compute,
            scoring=ScoreConfig(tokenize=config.bleu_tokenizer),
        )

    with oom_as_user_error():
        translator = Translator(trained, replace(options, to=sets.valid.target_language))
        main = result(sets.valid, data.valid_pairs, data.valid)
        others = {
            name: result(sets.valid_sets[name], valid_set.pairs, valid_set.corpus)
            for name, valid_set in data.valid_sets.items()
        }
        return replace(main, others=others)
