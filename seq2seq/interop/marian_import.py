"""A folder of a Marian model, Hugging Face's or Marian's own, as a model of this program."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.config import Positions, Start
from seq2seq.errors import UserError
from seq2seq.interop import marian
from seq2seq.interop.marian import RawModel, Table
from seq2seq.interop.marian_folder import read_marian_folder
from seq2seq.interop.pair_tokenizer import PairConfig, PairTokenizer, dump_pieces
from seq2seq.interop.transformers_folder import read_transformers_folder
from seq2seq.model_folder import TrainedModel, meta_transformer
from seq2seq.tokenizer import PADDING_ID, PAIR_FILES, START_ID, UNKNOWN_ID, tokenizer_errors

_TYPOGRAPHIC = "“”„‘’‚«»–—…"  # what Moses replaces by ASCII


def import_marian(folder: Path) -> TrainedModel:
    """Read a folder of Hugging Face's, which has a `config.json`, or of Marian's own.

    Typographic punctuation is normalized if the model knows less than half of it. Positions are
    sinusoidal, as `transformers` computes them, in Hugging Face's folders, and concatenated, with
    which Marian trains, in its own.
    """
    is_own = not (folder / "config.json").exists()
    if is_own and not any(folder.glob("*.npz")):
        raise UserError(
            f"{folder}: no config.json and no .npz in it: only models of Marian can be imported"
        )
    raw = read_marian_folder(folder) if is_own else read_transformers_folder(folder)
    tokenizer = _make_tokenizer(raw)
    order = torch.arange(raw.config.d_model)
    if raw.config.positions is Positions.sinusoidal:
        order = marian.features_of_marian(raw.config.d_model).argsort()
    parameters, choices = _arrange(raw.matrices, raw.bias, raw.tables, order)
    config = replace(raw.config, **choices)
    for layer in marian.layer_names(config):
        for kind in ("weight", "bias"):
            value = raw.weights.pop(f"{layer.marian}.{kind}").float()
            # A copy: it may be mapped from a file that is changed while the model is in use.
            copy = marian.permute(value, layer, order).clone(memory_format=torch.contiguous_format)
            parameters[f"{layer.name}.{kind}"] = copy
    model = meta_transformer(config, tokenizer.vocab_size, tokenizer.source_vocab_size)
    model.load_state_dict(parameters, assign=True)
    return TrainedModel(model.eval(), tokenizer, *raw.languages)


def _make_tokenizer(raw: RawModel) -> PairTokenizer:
    """Make the tokenizer, and make it again if it does not know typographic punctuation."""
    models = (marian.read_file(raw.folder / name) for name in ("source.spm", "target.spm"))
    files = dict(zip(PAIR_FILES, (*models, *map(dump_pieces, raw.tables)), strict=True))
    config = PairConfig(
        separate_vocabularies=raw.tables[0] is not raw.tables[1],
        max_source_tokens=raw.max_source_tokens,
    )
    with tokenizer_errors(raw.folder):
        tokenizer = PairTokenizer(files, config, raw.languages)
        encoded = tokenizer.encode(list(_TYPOGRAPHIC))
        if 2 * sum(UNKNOWN_ID in ids for ids in encoded) > len(_TYPOGRAPHIC):
            return PairTokenizer(files, replace(config, punctuation="moses"), raw.languages)
        return tokenizer


def _arrange(
    uses: dict[str, Tensor], bias: Tensor | None, tables: tuple[Table, Table], order: Tensor
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Put the rows and the features of the vocabulary's matrices into this program's order.

    Return the parameters by their names here, and the choices of the configuration they need.
    """
    source_rows, target_rows = (list(table.values()) for table in tables)
    parameters = {}
    for use, matrix in uses.items():
        rows = source_rows if use == "source" else target_rows
        parameters[_NAMES[use]] = _rows(matrix, rows)[:, order]
    start = parameters[_NAMES["target" if "target" in uses else "source"]][START_ID]
    choices: dict[str, Any] = {
        "shared_embedding": "target" not in uses,
        "tied_output": "output" not in uses,
        "start": Start.symbol if start.any() else Start.zero,
    }
    # Marian has no piece before the first one, and a row that it lacks must not be chosen.
    own_start = target_rows.count(target_rows[START_ID]) > 1
    if own_start or (bias is not None and bias.any()):
        values = torch.zeros(len(target_rows)) if bias is None else _rows(bias[0], target_rows)
        values[[PADDING_ID, START_ID]] = marian.NEVER
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
    taken[torch.tensor(rows) == marian.NO_ROW] = 0.0
    return taken
