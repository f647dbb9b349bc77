"""A Hugging Face folder of a `MarianMTModel` as a model of this program."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.data.pair_tokenizer import (
    SOURCE_MODEL,
    TARGET_MODEL,
    TARGET_VOCABULARY,
    VOCABULARY,
    PairConfig,
    PairTokenizer,
    dump_pieces,
)
from seq2seq.data.punctuation import TYPOGRAPHIC, Punctuation
from seq2seq.data.tokenizer import PADDING_ID, START_ID, UNKNOWN_ID, Tokenizer
from seq2seq.errors import UserError
from seq2seq.export.marian_names import (
    EMBEDDINGS,
    NEVER,
    OUTPUT_BIAS,
    features_of_marian,
    layer_places,
    permute,
)
from seq2seq.importing.config import MarianConfig, read_config, read_tokenizer_settings
from seq2seq.importing.files import MAX_VOCABULARY_BYTES, read_file
from seq2seq.importing.vocabulary import (
    NO_ROW,
    Table,
    check_control_ids,
    make_table,
    read_vocabulary,
)
from seq2seq.importing.weights import find_weights, read_weights
from seq2seq.model.config import Positions, Start
from seq2seq.storage.checkpoint import TrainedModel, unloaded_transformer


def import_marian(
    folder: Path,
    *,
    punctuation: Punctuation | None = None,
    positions: Positions = Positions.sinusoidal,
) -> TrainedModel:
    """Read a folder that `MarianMTModel` and `MarianTokenizer` can read.

    Args:
        folder: the folder.
        punctuation: what to do with typographic punctuation; by default it is normalized if the
            model knows less than half of it.
        positions: sinusoidal, which `transformers` computes, or concatenated, with which Marian
            trained the model.

    Raises:
        UserError: if a file is missing or damaged, the files don't belong together, or this program
            can't express the model.
    """
    config = read_config(folder)
    path = find_weights(folder)
    settings = read_tokenizer_settings(folder)
    languages = (settings.source_lang or "", settings.target_lang or "")
    tables = _read_tables(folder, config, separate=settings.separate_vocabs)
    tokenizer = _make_tokenizer(folder, tables, languages, punctuation, config)
    weights = read_weights(path, config)
    uses = _vocabulary_matrices(path, weights, config)
    order = features_of_marian(config.d_model).argsort()
    if positions is Positions.concatenated:
        order = torch.arange(config.d_model)
    parameters, choices = _arrange(uses, weights.pop(OUTPUT_BIAS, None), tables, order)
    transformer = replace(config.transformer(), positions=positions, **choices)
    for place in layer_places(transformer):
        for kind in ("weight", "bias"):
            value = weights.pop(f"{place.marian}.{kind}").float()
            parameters[f"{place.name}.{kind}"] = permute(value, place, order).contiguous()
    model = unloaded_transformer(transformer, tokenizer)
    model.load_state_dict(parameters, assign=True)
    return TrainedModel(model.eval(), tokenizer, *languages)


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


def _make_tokenizer(
    folder: Path,
    tables: tuple[Table, Table],
    languages: tuple[str, str],
    punctuation: Punctuation | None,
    config: MarianConfig,
) -> PairTokenizer:
    """Make the tokenizer; where nothing is asked for, see which punctuation it knows."""
    separate = tables[0] is not tables[1]
    files = {
        SOURCE_MODEL: read_file(folder / "source.spm", MAX_VOCABULARY_BYTES),
        TARGET_MODEL: read_file(folder / "target.spm", MAX_VOCABULARY_BYTES),
        VOCABULARY: dump_pieces(tables[0].pieces),
        TARGET_VOCABULARY: dump_pieces(tables[1].pieces),
    }

    def make(choice: Punctuation) -> PairTokenizer:
        pair = PairConfig(
            punctuation=choice,
            separate_vocabularies=separate,
            max_source_tokens=config.max_position_embeddings,
        )
        return PairTokenizer.read(files, pair, languages, folder)

    tokenizer = make(punctuation or Punctuation.none)
    if punctuation is None and 2 * len(unknown_punctuation(tokenizer)) > len(TYPOGRAPHIC):
        return make(Punctuation.moses)
    return tokenizer


def unknown_punctuation(tokenizer: Tokenizer) -> str:
    """Return the typographic characters that the source's side does not know."""
    encoded = tokenizer.encode(list(TYPOGRAPHIC))
    return "".join(c for c, ids in zip(TYPOGRAPHIC, encoded, strict=True) if UNKNOWN_ID in ids)


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


def _arrange(
    uses: dict[str, Tensor], bias: Tensor | None, tables: tuple[Table, Table], order: Tensor
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Put the rows and the features of the vocabulary's matrices into this program's order.

    Returns:
        The parameters by their names here, and the choices of the configuration that they need.
    """
    source, target = tables
    by_use = {"source": source, "target": target, "output": target}
    parameters = {
        _NAMES[use]: _rows(matrix, by_use[use].rows)[:, order] for use, matrix in uses.items()
    }
    start = parameters[_NAMES["target" if "target" in uses else "source"]][START_ID]
    choices: dict[str, Any] = {
        "shared_embedding": "target" not in uses,
        "tied_output": "output" not in uses,
        "start": Start.symbol if start.any() else Start.zero,
    }
    # Marian has no piece before the first one, and a row that it lacks must not be chosen.
    own_start = target.rows[START_ID] in target.rows[START_ID + 1 :] + target.rows[:START_ID]
    if own_start or (bias is not None and bias.any()):
        values = torch.zeros(len(target.rows)) if bias is None else bias.float()[0]
        values = _rows(values, target.rows) if bias is not None else values
        values[[PADDING_ID, START_ID]] = NEVER
        parameters["output_bias"] = values
        choices["output_bias"] = True
    return parameters, choices


_NAMES = {
    "source": "embedding.weight",
    "target": "own_target_embedding.weight",
    "output": "own_output_matrix",
}


def _rows(values: Tensor, rows: Sequence[int]) -> Tensor:
    """Take rows of a matrix or a bias; zeros where there is none."""
    taken = values.float()[torch.tensor(rows).clamp(min=0)]
    taken[torch.tensor(rows) == NO_ROW] = 0.0
    return taken
