"""The validation of a run: every set, translated as the configuration says."""

import math
from collections.abc import Sequence
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
    """Of further validation sets, by name."""

    def metrics(self) -> dict[str, float]:
        """Return the metrics by the names under which they are recorded."""
        metrics = {
            "valid/loss": self.loss,
            "valid/perplexity": math.exp(min(self.loss, 700.0)),  # per target token
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
    trained: TrainedModel, config: Config, data: PreparedData, compute: Compute
) -> Validation:
    """Compute loss and BLEU of a model on all validation sets; its mode is restored."""
    sets = config.data
    options = TranslationOptions(
        device=str(compute.device), search=config.search, to=sets.valid.target_language
    )

    def validate(
        split: SplitConfig, pairs: Sequence[SentencePair], corpus: EncodedCorpus
    ) -> Validation:
        for_language = translator.with_target_language(split.target_language)
        translations = for_language.translate([pair.source for pair in pairs])
        outputs, references = [t.text for t in translations], [pair.target for pair in pairs]
        return Validation(
            loss=cross_entropy(trained.model, corpus, compute),
            bleu=bleu(outputs, [references], ScoreConfig(tokenize=config.bleu_tokenizer)).value,
        )

    training = trained.model.training
    trained.model.eval()
    with oom_as_user_error():
        translator = Translator(trained, options)
        main = validate(sets.valid, data.valid_pairs, data.valid)
        others = {
            name: validate(sets.valid_sets[name], valid_set.pairs, valid_set.corpus)
            for name, valid_set in data.valid_sets.items()
        }
    trained.model.train(training)
    return replace(main, others=others)
