"""The tokenizer of a model as `tokenizer.json`, for Hugging Face's libraries in any language.

These look for the names of control symbols, such as `</s>`, in every text, where this program
spells them with ordinary pieces. So the names end with a character that no text has; so do those of
pieces that an imported model writes and doesn't read.
"""

import base64
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from seq2seq.errors import UserError
from seq2seq.interop.pair_tokenizer import SOURCE_MODEL, PairTokenizer
from seq2seq.pieces import PRIVATE, read_processor
from seq2seq.tokenizer import CONTROL_PIECES, END_ID, TOKENIZER_FILE, UNKNOWN_ID, Tokenizer

_NONCHARACTER = "\ufdd0"
"""A character that Unicode keeps out of texts."""
_UNEQUAL = {"\u200d": "\ufdd1", "\u061c": "\ufdd2"}
"""The joiner and the Arabic letter mark, which JavaScript's function in place of the table of
nmt_nfkc handles in its own way, and noncharacters in their place."""
_NEVER_KNOWN = "\ufdd3"
"""A noncharacter that no vocabulary has."""
_SPACE, _UNKNOWN_TEXT = "▁", " ⁇ "
"""The character for a space in a piece of SentencePiece, and its text for an unknown piece."""
_UNIGRAM, _BPE = 1, 2
"""The algorithms of SentencePiece's TrainerSpec that `tokenizer.json` has, too."""
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
"""The types of pieces of SentencePiece's ModelProto that `tokenizer.json` can express."""

_Json: TypeAlias = dict[str, Any]


def hidden(piece: str) -> str:
    """Return a name for a piece that no text is to be encoded to."""
    return piece + _NONCHARACTER


@dataclass(frozen=True)
class TokenizerJson:
    """The content of `tokenizer.json`."""

    content: _Json
    unlisted: int
    """Number of ids after those of the vocabulary: each is a piece that an imported model's table
    lacks, and that the model reads as an unknown one."""


def tokenizer_json(tokenizer: Tokenizer) -> TokenizerJson:
    """Describe a tokenizer that maps a source to its ids with `</s>`, and ids to their text."""
    model = _read_model(tokenizer)
    scores = {each.piece: each.score for each in model.pieces if each.type == _NORMAL}
    byte_pieces = {each.piece for each in model.pieces if each.type == _BYTE}
    listed = tokenizer.source_pieces(list(range(tokenizer.source_vocab_size)))
    controls = {*CONTROL_PIECES, *tokenizer.controls.values()}
    known = set("").union(*scores)
    runs = {p for i, p in enumerate(listed) if i not in controls and known.isdisjoint(p)}
    runs -= byte_pieces | {""}
    scores |= _scores_of_parts(runs)
    read = scores.keys() | byte_pieces
    names = [p if p in read and i not in controls else hidden(p) for i, p in enumerate(listed)]
    unlisted = sorted(scores.keys() - set(names))
    names += unlisted
    escaped = PRIVATE if PRIVATE[ord(_SPACE)] in scores else {}
    is_bpe = model.trainer_spec.model_type == _BPE
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(i, names[i]) for i in sorted(controls - {UNKNOWN_ID})],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [*_normalizers(model, escaped), *_unknown_runs(known, runs)],
        },
        "pre_tokenizer": None,
        "post_processor": _end_symbol(names[END_ID]),
        "decoder": {
            "type": "Sequence",
            "decoders": list(_decoders(names[UNKNOWN_ID], escaped, bool(byte_pieces))),
        },
        "model": _bpe(names, scores, bool(byte_pieces)) if is_bpe else _unigram(names, scores),
    }
    return TokenizerJson(content, len(unlisted))


def _read_model(tokenizer: Tokenizer) -> Any:
    """Parse the SentencePiece model of sources; refuse what the format can't express."""
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    name = TOKENIZER_FILE
    if isinstance(tokenizer, PairTokenizer):
        name = SOURCE_MODEL
        if tokenizer.config.separate_vocabularies:
            raise _refusal("source and target have a vocabulary each")
        if tokenizer.config.punctuation != "none":
            raise _refusal("Moses normalizes the punctuation of a source before it is encoded")
    model = messages.ModelProto.FromString(tokenizer.files()[name])
    spec, trained = model.normalizer_spec, model.trainer_spec
    types = {each.type for each in model.pieces}
    if spec.name not in _NORMALIZATIONS:
        raise _refusal(f"text is normalized by {spec.name}: {', '.join(_NORMALIZATIONS)} would do")
    if trained.model_type not in (_UNIGRAM, _BPE):
        raise _refusal("the pieces are words or characters")
    expressible = {_NORMAL, _UNKNOWN, _CONTROL}
    if trained.model_type == _BPE and name == TOKENIZER_FILE:  # a table may lack bytes
        expressible.add(_BYTE)
    if types - expressible:
        raise _refusal("some pieces are neither ordinary ones nor control symbols")
    if not (spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces):
        raise _refusal("spaces are kept as they are")
    return model


def _refusal(reason: str) -> UserError:
    return UserError(f"the tokenizer can't be exported as tokenizer.json: {reason}")


# From text to pieces.


_NORMALIZATIONS = ("identity", "nmt_nfkc", "nfkc")


def _normalizers(model: Any, escaped: Mapping[int, str]) -> Iterator[_Json]:
    """Yield what is done to a text, in the order of `readable` and of SentencePiece."""
    spec = model.normalizer_spec
    for code, private in escaped.items():
        yield _replace(chr(code), private)
    if spec.name == "nmt_nfkc":
        processor = read_processor(model.SerializeToString())
        kept = {c: other for c, other in _UNEQUAL.items() if c in processor.normalize(c)}
        for character in _UNEQUAL:  # those that are not kept are spaces
            yield _replace(character, kept.get(character, " "))
        table = base64.b64encode(spec.precompiled_charsmap).decode()
        yield {"type": "Precompiled", "precompiled_charsmap": table}
        for character, other in kept.items():
            yield _replace(other, character)
    elif spec.name == "nfkc":
        yield {"type": "NFKC"}
    yield {"type": "Prepend", "prepend": " "}
    yield _replace({"Regex": " +"}, _SPACE)
    yield _replace({"Regex": f"{_SPACE}+$"}, "")


def _unknown_runs(known: Collection[str], runs: Collection[str]) -> Iterator[_Json]:
    """Yield how characters are read that the SentencePiece model of sources lacks.

    SentencePiece makes one piece of all in a row. It is unknown unless it is one of `runs`, those
    that an imported model's table has.
    """
    if runs:
        lacked = f"[^{_escaped(sorted(known), '-')}]"
        listed = "|".join(map(_escaped, sorted(runs)))
        pattern = f"(?<!{lacked})(?!(?:{listed})(?!{lacked})){lacked}+"
        yield _replace({"Regex": pattern}, _NEVER_KNOWN)


def _escaped(characters: Iterable[str], special: str = "") -> str:
    """Write characters such that they stand for themselves in a regular expression."""
    special += r"^$\.*+?()[]{}|/"
    return "".join(f"\\{c}" if c in special else c for c in characters)


def _scores_of_parts(runs: Collection[str]) -> dict[str, float]:
    """Score what runs of characters consist of, so that each run becomes one piece.

    The square of a sum is greater than the sum of squares, and all neighbours can be joined.
    """
    parts = {run[i:end] for run in runs for end in range(len(run) + 1) for i in range(end)}
    return {part: float(len(part)) ** 2 for part in parts}


def _bpe(names: Sequence[str], scores: Mapping[str, float], byte_fallback: bool) -> _Json:
    """Describe a byte-pair encoding: of two neighbours, those that make a better piece are joined.

    Any two pieces that make a piece may be joined, since SentencePiece looks at the result alone.
    """
    merges = [
        (-score, [piece[:end], piece[end:]])
        for piece, score in scores.items()
        for end in range(1, len(piece))
        if piece[:end] in scores and piece[end:] in scores
    ]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": names[UNKNOWN_ID],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": byte_fallback,
        "ignore_merges": False,
        "vocab": {name: i for i, name in enumerate(names)},
        "merges": [pair for _, pair in sorted(merges, key=lambda merge: merge[0])],
    }


def _unigram(names: Sequence[str], scores: Mapping[str, float]) -> _Json:
    """Describe a unigram model: the pieces of a text are those with the highest sum of scores."""
    vocabulary = [[name, scores.get(name, 0.0)] for name in names]
    return {"type": "Unigram", "unk_id": UNKNOWN_ID, "byte_fallback": False, "vocab": vocabulary}


def _end_symbol(end: str) -> _Json:
    """Describe a source: its pieces, then `</s>`."""
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [text, {"SpecialToken": {"id": end, "type_id": 0}}],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {end: {"id": end, "ids": [END_ID], "tokens": [end]}},
    }


def _added_token(token_id: int, name: str) -> _Json:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": name, "special": True, **flags}


# From pieces to text.


def _decoders(unknown: str, escaped: Mapping[int, str], byte_fallback: bool) -> Iterator[_Json]:
    """Yield what is done to pieces: joined, without the first space, as `Tokenizer.decode`."""
    yield _replace(_SPACE, " ")
    if byte_fallback:
        yield {"type": "ByteFallback"}
    yield {"type": "Fuse"}
    yield {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    yield _replace(unknown, _UNKNOWN_TEXT)
    yield _replace(_NONCHARACTER, "")
    for code, private in escaped.items():
        yield _replace(private, chr(code))
    yield _replace("\n", " ")


def _replace(pattern: str | _Json, content: str) -> _Json:
    pattern = {"String": pattern} if isinstance(pattern, str) else pattern
    return {"type": "Replace", "pattern": pattern, "content": content}
