"""Sub-word pieces of imported models: a SentencePiece model per side, and a table of pieces.

Marian's vocabularies are tables of their own: a piece of either model that is in the table has the
id of its row, any other piece is unknown. Here the control symbols have the ids of this project.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from seq2seq.controls import LANGUAGE_PIECE
from seq2seq.errors import UserError
from seq2seq.files import parse_json
from seq2seq.pieces import (
    MAX_PIECE,
    MAX_PIECES,
    Span,
    encode_with,
    move_spans,
    read_processor,
    spans_with,
)
from seq2seq.tokenizer import CONTROL_PIECES, PAIR_FILES, UNKNOWN_ID, Tokenizer

SOURCE_MODEL, TARGET_MODEL, *_TABLES = PAIR_FILES


@dataclass(frozen=True, kw_only=True)
class PairConfig:
    """The options of a pair tokenizer, as `config.json` holds them."""

    punctuation: Literal["none", "moses"] = "none"
    """The normalization of punctuation: none, or that of Moses' normalize-punctuation.perl."""
    separate_vocabularies: bool = False
    """Whether the target has a table of its own."""
    max_source_tokens: int = 512
    """The longest source that the model was made for, `</s>` counted."""

    def __post_init__(self) -> None:
        if self.max_source_tokens < 2:
            raise UserError(f"max_source_tokens is {self.max_source_tokens}: must be at least 2")

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the tokenizer's files."""
        return PAIR_FILES if self.separate_vocabularies else PAIR_FILES[:-1]


class PairTokenizer(Tokenizer):
    """Converts text to token ids and back, with a SentencePiece model for each side.

    No text encodes to a control symbol or to a target language's piece, such as `>>de<<`: typed in
    a sentence, they are spelled with ordinary pieces. A lone surrogate reads as U+FFFD.

    The files, named in `config.files`, are the SentencePiece models, and each table as a JSON list
    of pieces in the order of their ids. The languages tell how punctuation is normalized.
    """

    def __init__(
        self, files: Mapping[str, bytes], config: PairConfig, languages: tuple[str, str]
    ) -> None:
        self.config, self.options = config, asdict(config)
        self.max_source_tokens = config.max_source_tokens
        self._files = {name: files[name] for name in config.files}
        tables = [_read_table(name, files[name]) for name in _TABLES if name in self._files]
        source_pieces, self._pieces = tables[0], tables[-1]
        moses = config.punctuation == "moses"
        self._source = _Side(files[SOURCE_MODEL], source_pieces, languages[0], moses=moses)
        self._target = _Side(files[TARGET_MODEL], self._pieces, languages[1], moses=moses)
        self.source_vocab_size, self.vocab_size = len(source_pieces), len(self._pieces)
        self.controls = self._source.controls

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each source; see `Tokenizer.encode`."""
        return self._source.encode(texts)

    def encode_target(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each translation; see `Tokenizer.encode_target`."""
        return self._target.encode(texts)

    def _knows(self, source: str) -> bool:
        return UNKNOWN_ID not in self.encode([source])[0]

    def source_spans(self, text: str) -> Sequence[Span]:
        """See `Tokenizer.source_spans`."""
        read = self._without_unseen(text)
        return move_spans(self._source.spans(read), read, text)

    def target_spans(self, text: str) -> Sequence[Span]:
        """See `Tokenizer.target_spans`."""
        return self._target.spans(text)

    def encode_sampled(self, texts: list[str], rate: float, seed: int) -> list[list[int]]:
        """Refuse to sample: most of these SentencePiece models are not byte-pair encodings."""
        raise UserError(
            f"data.tokenizer.sampling={rate}: the tokenizer of an imported model can't be sampled;"
            " remove it"
        )

    def decode(self, token_ids: list[list[int]]) -> list[str]:
        """Return the translation of each list of ids; see `Tokenizer.decode`."""
        return list(map(self._target.decode, token_ids))

    def source_pieces(self, token_ids: list[int]) -> list[str]:
        """Return the source's piece of each id."""
        return [self._source.pieces[token_id] for token_id in token_ids]

    def files(self) -> dict[str, bytes]:
        """Return the files of a model folder that hold the tokenizer."""
        return self._files


class _Side:
    """The pieces of one side: its SentencePiece model and its table."""

    def __init__(self, model: bytes, pieces: Sequence[str], language: str, *, moses: bool) -> None:
        self.processor = read_processor(model)
        self.pieces = pieces
        self.normalize: Callable[[str], str] = str
        if moses:
            from sacremoses import MosesPunctNormalizer

            self.normalize = MosesPunctNormalizer(language).normalize
        self.controls: dict[str, int] = {}
        self.ids: dict[str, int] = {}
        for token_id, piece in enumerate(pieces):
            if LANGUAGE_PIECE.fullmatch(piece):
                self.controls[piece] = token_id
            elif token_id not in CONTROL_PIECES:
                self.ids[piece] = token_id
        self.written = {UNKNOWN_ID, *self.ids.values()}

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalize and divide into pieces; those that the table lacks are unknown."""
        pieces = encode_with(self.processor, list(map(self.normalize, texts)), str)
        return [[self.ids.get(piece, UNKNOWN_ID) for piece in line] for line in pieces]

    def spans(self, text: str) -> Sequence[Span]:
        """Return where each piece stands in a text."""
        normalized = self.normalize(text)
        spans = spans_with(self.processor, normalized)
        return move_spans(spans, normalized, text)

    def decode(self, token_ids: list[int]) -> str:
        """Join the pieces of a text, without those that stand for no text."""
        pieces = [self.pieces[i] for i in token_ids if i in self.written]
        text: str = self.processor.decode_pieces(pieces)
        # The model leaves "▁" in pieces that only the other side's has.
        return text.replace("▁", " ").replace("\n", " ").strip()


def _read_table(name: str, content: bytes) -> list[str]:
    """Read and check a table of pieces in the order of their ids."""
    pieces: list[str] = parse_json(Path(name), content, list[str])
    check_pieces(name, pieces)
    return pieces


def check_pieces(name: str, pieces: Sequence[str]) -> None:
    """Check a table of pieces in the order of their ids."""
    if pieces[: len(CONTROL_PIECES)] != list(CONTROL_PIECES.values()):
        raise UserError(f"{name} does not begin with {', '.join(CONTROL_PIECES.values())}")
    if len(pieces) > MAX_PIECES:
        raise UserError(f"{name} has more than {MAX_PIECES:,} pieces")
    if len(set(pieces)) < len(pieces):
        raise UserError(f"{name} has a piece twice")
    if max(map(len, pieces)) > MAX_PIECE:
        raise UserError(f"{name} has a piece of more than {MAX_PIECE:,} characters")


def dump_pieces(pieces: Iterable[str]) -> bytes:
    """Return a table as it is saved."""
    return json.dumps(list(pieces), ensure_ascii=False, indent=0).encode()
