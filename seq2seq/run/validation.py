"""The validation of a training: every set, translated as the configuration says."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from seq2seq.config import Config
from seq2seq.data.config import SplitConfig
from seq2seq.data.encoded import EncodedCorpus
from seq2seq.data.pair_files import SentencePair
from seq2seq.data.preparation import PreparedData
from seq2seq.decoding.config import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.device import oom_as_user_error
from seq2seq.evaluation.scores import ScoreConfig
from seq2seq.evaluation.validation import Validation, validate
from seq2seq.storage.trained_model import TrainedModel


def validate_sets(
    trained: TrainedModel,
    config: Config,
    data: PreparedData,
    device: torch.device,
    dtype: torch.dtype,
) -> Validation:
    """Compute loss, perplexity and BLEU of a model on all validation sets.

    Args:
        trained: the model, on `device`, and its tokenizer.
        config: the configuration of the training.
        data: the prepared data.
        device: the model's device.
        dtype: the precision of the matrix products.

    Raises:
        OutOfMemoryError: if memory does not suffice.
    """
    sets = config.data
    options = TranslationOptions(device=str(device), search=config.search)

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
            device=device,
            dtype=dtype,
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
