"""Folders as `transformers` writes them, with random weights and vocabularies of any order."""

import io
import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.model_folder import TrainedModel
from seq2seq.search import SearchConfig

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers", reason="an extra of the tests")


class MarianFolder(NamedTuple):
    """A folder and the model that was saved in it, in float64."""

    path: Path
    model: Any


def train_spm(sentences: list[str], size: int, model_type: str = "unigram") -> bytes:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=size,
        model_type=model_type,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture(scope="session")
def spm_models(sentences: list[str]) -> tuple[bytes, bytes]:
    """SentencePiece models of two languages, as Marian's users train them."""
    german = ["Größe", "äöüß", "–", "‘is’", "“it”", "„so“"] * 3
    return train_spm(sentences, 60), train_spm([s[::-1] for s in sentences] + german, 70)


def table(models: tuple[bytes, ...], extra: tuple[str, ...], seed: int) -> dict[str, int]:
    """The union of the pieces with ids in any order, three ordinary pieces missing."""
    pieces = {"</s>", "<unk>", "<pad>", *extra}
    for model in models:
        processor = SentencePieceProcessor(model_proto=model)
        pieces |= {processor.id_to_piece(i) for i in range(3, processor.get_piece_size())}
    shuffled = sorted(pieces - {"▁a", "e", "▁t"})
    random.Random(seed).shuffle(shuffled)
    return {piece: i for i, piece in enumerate(shuffled)}


def two_tables(models: tuple[bytes, bytes], seed: int) -> tuple[dict[str, int], dict[str, int]]:
    """A table of each side; their control symbols have the same ids."""
    tables = tuple(table((model,), (), seed + side) for side, model in enumerate(models))
    for one in tables:
        for place, control in enumerate(("</s>", "<unk>", "<pad>"), start=4):
            other = next(piece for piece, i in one.items() if i == place)
            one[other], one[control] = one[control], place
    return tables


def randomize(model: Any, padding: int) -> None:
    """Add random numbers to a new `MarianMTModel`, nothing of which stays zero that need not."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Large products and all else small, or an untrained model repeats one piece.
            large = "_proj.weight" in name or ".fc" in name
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.9 if large else 0.1)
        model.final_logits_bias.normal_(std=0.1)
        model.final_logits_bias[0, padding] = 0.0
        for matrix in {model.get_input_embeddings(), model.model.decoder.embed_tokens}:
            matrix.weight[padding] = 0.0  # as in every trained model


def greedy(
    trained: TrainedModel, lines: list[str], longest: int, to: str | None = None
) -> list[list[str]]:
    """The first pieces of the most probable outputs of this package."""
    search = SearchConfig(beam_size=1, max_extra_tokens=longest)
    options = TranslationOptions(device="cpu", search=search, to=to)
    translations = Translator(trained, options).translate(lines)
    return [translation.candidates[0].pieces[:longest] for translation in translations]


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


MakeFolder = Callable[..., MarianFolder]


@pytest.fixture
def make_folder(tmp_path: Path, spm_models: tuple[bytes, bytes]) -> MakeFolder:
    """Save a random `MarianMTModel` with its tokenizer."""

    def make(
        *,
        separate: bool = False,
        pieces: tuple[str, ...] = (">>por<<", ">>pob<<"),
        seed: int = 1,
        **choices: Any,
    ) -> MarianFolder:
        if separate:
            vocabulary, own = two_tables(spm_models, seed)
        else:
            vocabulary = own = table(spm_models, pieces, seed)
        settings: dict[str, Any] = {
            "vocab_size": len(vocabulary),
            "decoder_vocab_size": len(own),
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 24,
            "activation_function": "swish",
            "scale_embedding": True,
            "pad_token_id": own["<pad>"],
            "eos_token_id": own["</s>"],
            "decoder_start_token_id": own["<pad>"],
            "forced_eos_token_id": None,
            "max_position_embeddings": 128,
            "share_encoder_decoder_embeddings": not separate,
            "attn_implementation": "eager",
        }
        config = transformers.MarianConfig(**(settings | choices))
        torch.manual_seed(seed)
        model = transformers.MarianMTModel(config).eval()
        randomize(model, own["<pad>"])
        folder = tmp_path / "marian"
        model.generation_config.update(
            bad_words_ids=[[own["<pad>"]]], num_beams=1, forced_eos_token_id=None
        )
        model.save_pretrained(folder)
        for file, content in zip(("source.spm", "target.spm"), spm_models, strict=True):
            (folder / file).write_bytes(content)
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        if separate:
            (folder / "target_vocab.json").write_text(json.dumps(own))
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"source_lang": "en", "target_lang": "pt", "separate_vocabs": separate})
        )
        return MarianFolder(folder, model.double())

    return make
