"""A Hugging Face folder, as `MarianMTModel` and `MarianTokenizer` write it."""

from pathlib import Path

from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.export.marian_names import EMBEDDINGS, OUTPUT_BIAS
from seq2seq.importing.config import MarianConfig, read_config, read_tokenizer_settings
from seq2seq.importing.found import Found
from seq2seq.importing.vocabulary import Table, check_control_ids, make_table, read_vocabulary
from seq2seq.importing.weights import find_weights, read_weights


def read_transformers_folder(folder: Path) -> Found:
    """Read the configuration, then the vocabularies, then the weights that they imply.

    Raises:
        UserError: if a file is missing or damaged, the files don't belong together, or this program
            can't express the model.
    """
    config = read_config(folder)
    path = find_weights(folder)
    settings = read_tokenizer_settings(folder)
    tables = _read_tables(folder, config, separate=settings.separate_vocabs)
    weights = read_weights(path, config)
    return Found(
        folder=folder,
        config=config.transformer(),
        max_source_tokens=config.max_position_embeddings,
        languages=(settings.source_lang or "", settings.target_lang or ""),
        tables=tables,
        matrices=_vocabulary_matrices(path, weights, config),
        bias=weights.pop(OUTPUT_BIAS, None),
        weights=weights,
    )


def _read_tables(folder: Path, config: MarianConfig, *, separate: bool) -> tuple[Table, Table]:
    """The vocabularies of source and target; the same one twice if they share it."""
    if separate and config.share_encoder_decoder_embeddings:
        raise UserError(
            f"{folder}: separate_vocabs in tokenizer_config.json, but config.json has one matrix"
        )
    path = folder / "vocab.json"
    vocabulary = read_vocabulary(path, config.vocab_size)
    ids = {"padding": config.pad_token_id, "end": config.eos_token_id}
    if not separate:
        if config.target_vocab_size != config.vocab_size:
            raise UserError(
                f"{folder}: vocabularies of {config.vocab_size:,} and {config.target_vocab_size:,}"
                " pieces, but no separate_vocabs in tokenizer_config.json"
            )
        check_control_ids(path, vocabulary, **ids)
        table = make_table(path, vocabulary, config.decoder_start_token_id)
        return table, table
    target_path = folder / "target_vocab.json"
    target = read_vocabulary(target_path, config.target_vocab_size)
    check_control_ids(target_path, target, **ids)
    start = config.decoder_start_token_id
    return make_table(path, vocabulary), make_table(target_path, target, start)


def _vocabulary_matrices(
    path: Path, weights: dict[str, Tensor], config: MarianConfig
) -> dict[str, Tensor]:
    """The matrices of source, target and output, of which `transformers` would make one storage."""
    names = ["shared", "source", "target", "output"]
    uses = {"source": ["source"], "target": ["target"], "output": ["output"]}
    if config.tie_word_embeddings:
        uses = {"source": ["source"], "target": ["target", "output"]}
        if config.share_encoder_decoder_embeddings:
            uses = {"source": names}
    elif config.share_encoder_decoder_embeddings:
        uses = {
            "source": ["source", "shared"],
            "target": ["target", "shared"],
            "output": ["output"],
        }
    found = {}
    for use, candidates in uses.items():
        present = [EMBEDDINGS[name] for name in candidates if EMBEDDINGS[name] in weights]
        if not present:
            raise UserError(f"{path}: has no {EMBEDDINGS[candidates[0]]}")
        found[use] = weights[present[0]]
    for name in names:
        weights.pop(EMBEDDINGS[name], None)
    return found
