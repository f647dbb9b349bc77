"""A folder for ONNX Runtime and transformers.js: two graphs, settings and `tokenizer.json`."""

import json
from pathlib import Path
from typing import Any

from seq2seq.config import Positions
from seq2seq.controls import LANGUAGE_PIECE
from seq2seq.decoding.options import TranslationOptions
from seq2seq.files import Content, write_folder
from seq2seq.interop import marian
from seq2seq.interop.export import GENERATION, check_class, json_bytes, marian_config
from seq2seq.interop.onnx_graph import Precision
from seq2seq.interop.onnx_model import decoder_graph, encoder_graph
from seq2seq.interop.tokenizer_json import hidden, tokenizer_json
from seq2seq.model_folder import TrainedModel, card_file
from seq2seq.search import SearchConfig
from seq2seq.tokenizer import CONTROL_PIECES, END_ID, PADDING_ID, START_ID, UNKNOWN_ID

_DTYPES: dict[Precision, str] = {"fp32": "fp32", "int8": "q8"}
_SUFFIXES: dict[Precision, str] = {"fp32": "", "int8": "_quantized"}
"""The precisions as transformers.js names them, and the ends of its files' names."""


def write_onnx(
    folder: Path,
    trained: TrainedModel,
    precision: Precision = "fp32",
    *,
    card: bytes | None = None,
) -> None:
    """Write a folder with which ONNX Runtime and transformers.js translate."""
    marian.check_head_width(trained.model.config, "transformers.js")
    write_folder(folder, onnx_files(trained, precision) | card_file(card))


def onnx_files(trained: TrainedModel, precision: Precision) -> dict[str, Content]:
    """Make the files of such a folder, by their names."""
    model = trained.model
    check_class(trained)
    tokenizer = tokenizer_json(trained.tokenizer)
    names = graph_names(precision)
    return {
        names["encoder"]: encoder_graph(model, precision, tokenizer.unlisted),
        names["decoder"]: decoder_graph(model, precision),
        "config.json": json_bytes(_config(trained, precision)),
        "generation_config.json": json_bytes(_generation_config(trained)),
        "tokenizer.json": json.dumps(tokenizer.content, ensure_ascii=False).encode(),
        "tokenizer_config.json": json_bytes(_tokenizer_config(trained)),
    }


def graph_names(precision: Precision) -> dict[str, str]:
    """Return the names of the graphs' files, by which transformers.js finds them."""
    suffix = _SUFFIXES[precision]
    return {
        "encoder": f"onnx/encoder_model{suffix}.onnx",
        "decoder": f"onnx/decoder_model_merged{suffix}.onnx",
    }


def _config(trained: TrainedModel, precision: Precision) -> dict[str, Any]:
    """Describe the model in the words of Marian, which transformers.js knows."""
    return {
        **marian_config(trained),
        "is_encoder_decoder": True,
        "transformers.js_config": {"dtype": _DTYPES[precision]},
        "seq2seq": translation_settings(trained),
    }


def translation_settings(trained: TrainedModel) -> dict[str, Any]:
    """Return what a program needs to translate as `seq2seq translate` does by default.

    `target_languages` has the ids that stand before a source for each language, and `tags` those of
    tags. A source has at most `max_source_tokens`, a longer one is divided. Its translation has at
    most `max_extra_tokens` more, and not more than `max_target_tokens`. All three are without
    control symbols, start symbol and `</s>`.
    """
    tokenizer, config, search = trained.tokenizer, trained.model.config, SearchConfig()
    controls = tokenizer.controls
    languages = {
        code: [controls[piece]] if (piece := f">>{code}<<") in controls else []
        for code in trained.target_languages
    }
    longest = _longest_source(trained)
    added = 1 + max(map(len, languages.values()))
    target = longest - added + search.max_extra_tokens
    if config.positions is Positions.learned:
        target = min(target, config.max_learned_positions - 1)
    return {
        "source_language": trained.source_language,
        "target_languages": languages,
        "tags": {p: i for p, i in controls.items() if not LANGUAGE_PIECE.fullmatch(p)},
        "beam_size": search.beam_size,
        "alpha": search.alpha,
        "max_source_tokens": longest - added,
        "max_target_tokens": target,
        "max_extra_tokens": search.max_extra_tokens,
    }


def _longest_source(trained: TrainedModel) -> int:
    """Return the most tokens of a source, its control symbols and `</s>` included."""
    config, longest = trained.model.config, TranslationOptions.max_source_tokens
    longest = min(trained.tokenizer.max_source_tokens or longest, longest)
    if config.positions is Positions.learned:
        longest = min(longest, config.max_learned_positions)
    return longest


def _generation_config(trained: TrainedModel) -> dict[str, Any]:
    longest = translation_settings(trained)["max_target_tokens"] + 1
    return GENERATION | {"max_length": min(longest, GENERATION["max_length"])}


def _tokenizer_config(trained: TrainedModel) -> dict[str, Any]:
    names = {
        "bos_token": START_ID,
        "eos_token": END_ID,
        "pad_token": PADDING_ID,
        "unk_token": UNKNOWN_ID,
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "source_lang": trained.source_language,
        "target_lang": trained.target_language,
        "model_max_length": _longest_source(trained),
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **{name: hidden(CONTROL_PIECES[i]) for name, i in names.items()},
    }
