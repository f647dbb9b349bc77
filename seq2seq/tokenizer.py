"""Sub-word pieces (section 5.1): one SentencePiece model for both languages.

The paper's vocabulary is a byte-pair encoding shared by source and target, of about 37,000 pieces
for English-German. SentencePiece is this project's choice: text in, text out, nothing but the
model file. Of a text whose characters are in the vocabulary, nothing but runs of spaces is lost.
"""

import io
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceNormalizer, SentencePieceTrainer

from seq2seq.errors import UsageError, UserError, check_number
from seq2seq.pieces import (
    MAX_PIECES,
    PRIVATE,
    Span,
    encode_with,
    move_spans,
    read_processor,
    readable,
    spans_with,
    without_lone_surrogates,
)
from seq2seq.settings import digested

PADDING_ID = 0
UNKNOWN_ID = 1
START_ID = 2
END_ID = 3

LONGEST_TRAINING_LINE = 4192
"""Bytes; SentencePiece skips longer lines in its training."""

TOKENIZER_FILE = "tokenizer.model"
PAIR_FILES = ("source.model", "target.model", "vocabulary.json", "target_vocabulary.json")
"""The files of a tokenizer with a SentencePiece model for each side, in imported models."""

CONTROL_PIECES = {PADDING_ID: "<pad>", UNKNOWN_ID: "<unk>", START_ID: "<s>", END_ID: "</s>"}
_WRITTEN = str.maketrans({"\n": " "} | {private: chr(c) for c, private in PRIVATE.items()})
_SAMPLE_SEED = 1
_MIN_COVERAGE = 0.98  # SentencePiece's
# The normal form of sources with unknown characters.
_NFKC = SentencePieceNormalizer(
    rule_name="nmt_nfkc",
    escape_whitespaces=False,
    add_dummy_prefix=False,
    remove_extra_whitespaces=True,
)
# Characters that nobody sees: soft hyphens, joiners, marks of direction, variants of emoji
UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0020-\U000e007f]"
)
_SILENT = 5  # above SentencePiece's highest log level: what goes wrong is raised, not printed


@dataclass(kw_only=True)
class TokenizerConfig:
    """The options of the vocabulary; the default size is the paper's for English-German."""

    vocab_size: int = digested(37000)
    """Pieces of the shared vocabulary, the four control symbols included."""

    byte_fallback: bool = digested(False)
    """Spell a character that is not in the vocabulary as its UTF-8 bytes instead of <unk>."""

    character_coverage: float = digested(1.0)
    """Share of the training text's characters that must have a piece of their own."""

    normalization: str = digested("identity")
    """SentencePiece's normalization: identity, nmt_nfkc, nfkc, nmt_nfkc_cf or nfkc_cf. All but
    identity make some references impossible, such as those with m² or full-width punctuation."""

    max_training_sentences: int = digested(1_000_000)
    """The most sentences, of both sides together, that the vocabulary is learned from; a random
    sample of a larger corpus. SentencePiece needs up to 1.6 KB per sentence, the most for text
    without spaces."""

    sampling: float = digested(0.0)
    """BPE-dropout (Provilkov et al. 2020): the share of merges skipped, at random, where training
    text is encoded, again for each epoch; 0 means none, and 0.1 is their choice for both sides."""

    def __post_init__(self) -> None:
        names = ("identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf")
        if self.normalization not in names:
            raise UsageError(
                f"data.tokenizer.normalization={self.normalization}: choose {', '.join(names)}"
            )
        key, smallest = "data.tokenizer", len(CONTROL_PIECES) + 1
        check_number(f"{key}.vocab_size", self.vocab_size, at_least=smallest, at_most=MAX_PIECES)
        coverage = self.character_coverage
        check_number(f"{key}.character_coverage", coverage, at_least=_MIN_COVERAGE, at_most=1)
        check_number(f"{key}.max_training_sentences", self.max_training_sentences, at_least=1)
        check_number(f"{key}.sampling", self.sampling, at_least=0, below=1)


@contextmanager
def tokenizer_errors(path: Path) -> Iterator[None]:
    """Turn the errors of a tokenizer, from a file or folder of that path, into user errors."""
    try:
        yield
    except (ValueError, RuntimeError, IndexError, UserError) as error:
        is_explained = isinstance(error, ValueError | UserError)
        reason = str(error) if is_explained else "a SentencePiece model can't be parsed"
        raise UserError(
            f"{path}: the tokenizer can't be read: {reason}; copy the folder again"
        ) from None


class Tokenizer:
    """Converts text to token ids and back; source and target share one vocabulary.

    No text encodes to a control symbol: ``<s>``, ``</s>``, ``<pad>`` and ``<unk>`` typed in a
    sentence are spelled with ordinary pieces. A lone surrogate reads as U+FFFD. ``controls`` has
    the ids of further control symbols, such as ``>>de<<`` and ``<bt>``, which may stand before a
    source.
    """

    options: Mapping[str, Any] | None = None
    """Options that are saved beside its files; None if there are none."""
    max_source_tokens: int | None = None
    """The longest source that the model was made for, `</s>` counted; None for any length."""

    def __init__(self, model_bytes: bytes) -> None:
        """See `tokenizer_errors` for bytes that are not a model of this project."""
        self.model_bytes = model_bytes
        self._processor = processor = read_processor(model_bytes)
        self._dropout: Any = None
        for token_id, piece in CONTROL_PIECES.items():
            # An ordinary piece of that name would match typed text.
            special = processor.is_unknown if token_id == UNKNOWN_ID else processor.is_control
            if processor.id_to_piece(token_id) != piece or not special(token_id):
                raise ValueError(f"its piece {token_id} is not the control symbol {piece}")
        self.vocab_size: int = processor.get_piece_size()
        self.source_vocab_size = self.vocab_size
        self._pieces: list[str] = processor.id_to_piece(list(range(self.vocab_size)))
        self.controls: dict[str, int] = {}
        for token_id, piece in enumerate(self._pieces):
            if processor.is_control(token_id) and token_id not in CONTROL_PIECES:
                self.controls[piece] = token_id

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        config: TokenizerConfig,
        log: Callable[[str], None] = lambda message: None,
        controls: Sequence[str] = (),
    ) -> "Tokenizer":
        """Learn a byte-pair encoding, in bounded memory; the same sentences give the same bytes."""
        sample = _sample(sentences, config.max_training_sentences, log)
        model = io.BytesIO()
        # Popped, so that no sentence is in memory both here and in SentencePiece. Not by a Python
        # function: SentencePiece would swallow the exception that a signal raises in it.
        escaped = (without_lone_surrogates(t).translate(PRIVATE) for t in reversed(sample))
        reversed_sample: list[str | None] = [None, *escaped]
        sample.clear()
        # Without any, the model's bytes stay the same as in earlier versions.
        further: dict[str, Any] = {"control_symbols": list(controls)} if controls else {}
        try:
            SentencePieceTrainer.train(
                sentence_iterator=iter(reversed_sample.pop, None),
                model_writer=model,
                model_type="bpe",
                vocab_size=config.vocab_size,
                byte_fallback=config.byte_fallback,
                character_coverage=config.character_coverage,
                normalization_rule_name=config.normalization,
                max_sentence_length=LONGEST_TRAINING_LINE,
                pad_id=PADDING_ID,
                unk_id=UNKNOWN_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                pad_piece=CONTROL_PIECES[PADDING_ID],
                unk_piece=CONTROL_PIECES[UNKNOWN_ID],
                bos_piece=CONTROL_PIECES[START_ID],
                eos_piece=CONTROL_PIECES[END_ID],
                minloglevel=_SILENT,
                **further,
            )
        except RuntimeError as error:
            raise UserError(_explain(str(error), config)) from None
        return cls(model.getvalue())

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each source of training, without start and end symbols, none if blank.

        A source with unknown pieces is read in its NFKC form if that has fewer of them.
        """
        encoded = self.encode_target(texts)
        for i, ids in enumerate(encoded):
            if UNKNOWN_ID in ids:
                text = _NFKC.normalize(without_lone_surrogates(texts[i]))
                forms = ids, *self.encode_target([text])
                encoded[i] = min(forms, key=lambda ids: ids.count(UNKNOWN_ID))
        return encoded

    def encode_sampled(self, texts: list[str], rate: float, seed: int) -> list[list[int]]:
        """Encode with BPE-dropout (Provilkov et al. 2020); texts, rate and seed determine the ids.

        In contrast to the paper's algorithm, a merge that was skipped is not tried again, so that
        the same rate makes more pieces.
        """
        if self._dropout is None:
            sampling = import_module("seq2seq.zoo.bpe_dropout")
            self._dropout = sampling.BpeDropout(self._processor)
        normalized = self._processor.normalize(readable(self._processor, texts))
        sampled: list[list[int]] = self._dropout.encode(normalized, rate, seed)
        return sampled

    def encode_source(self, texts: list[str]) -> list[list[int]]:
        """Encode sources to translate.

        Characters that no reader sees are left out if the vocabulary, and so the training text,
        lacks them.
        """
        return self.encode(list(map(self._without_unseen, texts)))

    def _without_unseen(self, text: str) -> str:
        return UNSEEN.sub(lambda match: match[0] if self._knows(match[0]) else "", text)

    def _knows(self, source: str) -> bool:
        return UNKNOWN_ID not in self.encode_target([source])[0]

    def encode_target(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text as a translation, without start and end symbols."""
        return encode_with(self._processor, texts, int)

    def source_spans(self, text: str) -> Sequence[Span]:
        """Return where each of the pieces that `encode_source` makes of a source stands in it."""
        read = self._without_unseen(text)
        if self.encode([read]) != self.encode_target([read]):
            read = _NFKC.normalize(without_lone_surrogates(read))
        return move_spans(self.target_spans(read), read, text)

    def target_spans(self, text: str) -> Sequence[Span]:
        """Return where each of the pieces that `encode_target` makes of a text stands in it."""
        return spans_with(self._processor, text)

    def decode(self, token_ids: list[list[int]]) -> list[str]:
        """Return the text of each list of ids, one line each, without control symbols."""
        texts = (self._processor.decode(ids) if ids else "" for ids in token_ids)
        return [text.translate(_WRITTEN) for text in texts]

    def pieces(self, token_ids: list[int]) -> list[str]:
        """Return the piece of each id, control symbols included."""
        return [self._pieces[token_id] for token_id in token_ids]

    def source_pieces(self, token_ids: list[int]) -> list[str]:
        """Return the piece of each id of a source."""
        return self.pieces(token_ids)

    def files(self) -> dict[str, bytes]:
        """Return the files of a model folder that hold the tokenizer."""
        return {TOKENIZER_FILE: self.model_bytes}


def _sample(sentences: Iterable[str], size: int, log: Callable[[str], None]) -> list[str]:
    """Draw at most ``size`` sentences uniformly, of those that are not too long."""
    generator = random.Random(_SAMPLE_SEED)
    sample: list[str] = []
    seen = too_long = returns = 0
    for sentence in sentences:
        if len(sentence.encode(errors="replace")) > LONGEST_TRAINING_LINE:
            too_long += 1
            returns += "\r" in sentence
            continue
        seen += 1
        if len(sample) < size:
            sample.append(sentence)
        elif (index := generator.randrange(seen)) < size:
            sample[index] = sentence
    if too_long and not any(map(str.strip, sample)):
        advice = "write a sentence on each line"
        if returns:
            advice += "; carriage returns alone end no line: tr '\\r' '\\n' makes lines of them"
        raise UserError(
            f"no text to train the tokenizer on: of the training data, all {too_long:,} lines that"
            f" aren't blank have more than {LONGEST_TRAINING_LINE:,} bytes; {advice}"
        )
    if not any(map(str.strip, sample)):
        raise UserError("no text to train the tokenizer on; check the training data")
    if seen > size:
        log(f"the tokenizer learns from a sample of {size:,} of {seen:,} sentences")
    if too_long:
        limit = f"{LONGEST_TRAINING_LINE:,} bytes"
        log(f"the tokenizer's training skipped {too_long:,} lines over {limit}")
    return sample


def _explain(message: str, config: TokenizerConfig) -> str:
    setting = f"data.tokenizer.vocab_size={config.vocab_size}"
    if largest := re.search(r"set it to a value <= (\d+)", message):
        return (
            f"{setting}: the training text is too small for that many pieces;"
            f" the largest possible number is {largest[1]}"
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return (
            f"{setting}: the characters of the training text alone need {smallest[1]} pieces;"
            " raise it, or lower data.tokenizer.character_coverage (0.9995 is usual for Chinese"
            " and Japanese)"
        )
    return f"{setting}: SentencePiece refused to train: {message.splitlines()[0]}"
