"""Word alignments: which pieces of a translation belong to those of its source.

The decoder reads the finished translation once. Each piece is linked to the piece of the source
that contributes most to the output of a layer's cross-attention, by the norm of its weighted and
transformed value (Kobayashi et al. 2020). So no search takes longer, and any engine may have made
the translation.

Most models align a piece best in a late layer, in the step that writes it; others in an early one,
in the step that reads it. `choose_step` finds out which: the links of the best step name the pieces
without which the model would not write what it writes.
"""

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from seq2seq.config import Positions, TransformerConfig
from seq2seq.controls import control_ids
from seq2seq.decoding.translation import Translation
from seq2seq.device import copy_to_device
from seq2seq.model_folder import AlignmentStep, TrainedModel
from seq2seq.pieces import Span
from seq2seq.search import SearchConfig, nan_error, pad
from seq2seq.tokenizer import END_ID, START_ID, UNKNOWN_ID, Tokenizer
from seq2seq.transformer import DecoderLayer, MultiHeadAttention, Transformer
from seq2seq.translate import Engine, SearchInput

_WORD = re.compile(r"[^ \t\r\n]+")

Link: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Alignment:
    """The links between a source and its translation; pieces and words are counted from 0."""

    source: str
    target: str
    source_spans: list[Span] = field(default_factory=list)
    """Where each piece stands in the source, without blanks around it."""
    target_spans: list[Span] = field(default_factory=list)
    """Where each piece stands in the translation."""
    pieces: list[Link] = field(default_factory=list)
    """The links from a piece of the source to one of the translation, one for each of these."""
    mutual: list[Link] = field(default_factory=list)
    """The links in `pieces` that are the best for the piece of the source, too."""

    @property
    def words(self) -> list[Link]:
        """The links between words, which are what blanks separate: the mutual ones of their pieces.

        A word may have several or none.
        """
        numbers, target_numbers = _word_numbers(self.source), _word_numbers(self.target)
        links = set[Link]()
        for i, j in self.mutual:
            words = numbers[slice(*self.source_spans[i])]
            links.update(product(words, target_numbers[slice(*self.target_spans[j])]))
        return sorted(link for link in links if min(link) >= 0)

    def __str__(self) -> str:
        """Return the links between words in Pharaoh's format, such as `0-0 1-2`."""
        return " ".join(f"{i}-{j}" for i, j in self.words)

    @classmethod
    def verbatim(cls, text: str) -> "Alignment":
        """Link each character of a text to itself, as if it were a piece."""
        spans = list(map(re.Match.span, re.finditer(r"\S", text)))
        links = list(enumerate(range(len(spans))))
        return cls(text, text, spans, spans, links, links)

    def link(self, span: Span, target_span: Span) -> None:
        """Link the pieces of a part of the source to those of a part of the translation alone."""
        inside = _pieces_in(self.source_spans, span)
        target_inside = _pieces_in(self.target_spans, target_span)
        for links in (self.pieces, self.mutual) if inside and target_inside else ():
            others = [(i, j) for i, j in links if i not in inside and j not in target_inside]
            links[:] = sorted([*others, *product(inside, target_inside)], key=itemgetter(1))

    def add(self, part: "Alignment", start: int, target_start: int) -> None:
        """Add the links of a part, given where it begins in source and target."""
        first, first_target = len(self.source_spans), len(self.target_spans)
        for links, more in ((self.pieces, part.pieces), (self.mutual, part.mutual)):
            links.extend((first + i, first_target + j) for i, j in more)
        for spans, text, offset, of_part in (
            (self.source_spans, self.source, start, part.source_spans),
            (self.target_spans, self.target, target_start, part.target_spans),
        ):
            spans.extend(_bare(text, offset + first, offset + last) for first, last in of_part)


def _bare(text: str, start: int, end: int) -> Span:
    """Drop the blanks at the ends of a span."""
    piece = text[start:end]
    end = start + len(piece.rstrip())
    return end - len(piece.strip()), end


def _overlap(span: Span, other: Span) -> bool:
    return span[0] < other[1] and other[0] < span[1]


def _pieces_in(spans: Sequence[Span], place: Span) -> list[int]:
    """Return the numbers of the pieces of which a part is in a place."""
    return [number for number, span in enumerate(spans) if _overlap(span, place)]


def _word_numbers(text: str) -> list[int]:
    """Return the number of the word to which each character belongs; a blank has -1."""
    numbers = [-1] * len(text)
    for number, word in enumerate(_WORD.finditer(text)):
        numbers[slice(*word.span())] = [number] * len(word[0])
    return numbers


class Part(NamedTuple):
    """A part of a line that is aligned with its translation alone."""

    line: Alignment
    start: int  # where it begins in the source, and its translation in the target
    target_start: int
    source: str  # both texts, without blanks around them
    target: str


def parts_of(
    line: Alignment, segments: Sequence[tuple[str, str, Translation]] = ()
) -> Iterator[Part]:
    """Yield the parts of a line: what is copied before each segment, the segment, and the rest."""
    end = target_end = 0
    for before, segment, translation in segments:
        start = line.source.index(segment, end + len(before))
        after = line.target.index(before, target_end) + len(before)
        target_start = line.target.index(translation.text, after)
        yield _part(line, (end, start), (target_end, target_start))
        end, target_end = start + len(segment), target_start + len(translation.text)
        yield _part(line, (start, end), (target_start, target_end))
    yield _part(line, (end, len(line.source)), (target_end, len(line.target)))


def _part(line: Alignment, span: Span, target_span: Span) -> Part:
    start, end = _bare(line.source, *span)
    target_start, target_end = _bare(line.target, *target_span)
    texts = line.source[start:end], line.target[target_start:target_end]
    return Part(line, start, target_start, *texts)


class PiecePair(NamedTuple):
    """A source and a translation that are aligned."""

    source_ids: list[int]  # with control symbols and `</s>`, which are neither linked nor counted
    target_ids: list[int]  # without such symbols
    stops: bool = False  # whether both end with a mark: these marks are linked to each other only


def end_with_stops(tokenizer: Tokenizer, source: list[int], target: list[int]) -> bool:
    """Return whether both sides end with a piece that is a mark, after others."""
    if min(len(source), len(target)) < 2:
        return False
    last = *tokenizer.source_pieces(source[-1:]), *tokenizer.pieces(target[-1:])
    return not any(map(str.isalnum, "".join(last)))


_PAIRS, _LONGEST, _WORDS = 16, 24, 6
"""Pairs by which a step is chosen, pieces of their sides, and words of those that are made."""


class KnownText(NamedTuple):
    """Sources and translations that a model knows."""

    sources: Sequence[str]
    targets: Sequence[str]
    language: str | None = None  # of the targets, for a model of several


def choose_step(trained: TrainedModel, known: KnownText | None = None) -> AlignmentStep:
    """Choose where a model aligns by text that it knows, by default its own translations.

    For the model as for its users, a piece of a translation belongs to the piece of the source
    that it depends on. So each piece of the source is replaced by the unknown piece in turn. The
    step is chosen whose links name the pieces at whose absence the linked ones lose the largest
    shares of their probabilities.
    """
    model, tokenizer = trained.model, trained.tokenizer
    languages = trained.target_languages
    language = languages[0] if known is None else known.language
    controls = control_ids(tokenizer.controls, language, None, trained.target_language)
    pairs = _known_pairs(model, tokenizer, controls, known) if known else []
    pairs = pairs or _made_pairs(model, tokenizer, controls)
    layers = range(model.config.decoder_depth, 0, -1)
    lost = {AlignmentStep(*step): 0.0 for step in product(layers, (False, True))}
    with torch.inference_mode():
        for pair in pairs:
            losses = _lost_shares(model, pair, len(controls)).tolist()
            source, target_input = _inputs([pair], model.embedding.weight.device)
            of_layers = contributions(model, source, target_input)
            for layer, of_layer in enumerate(of_layers, start=1):
                for reads in (False, True):
                    ((links, _),) = _best_links(_of_step(of_layer, reads), [pair], len(controls))
                    lost[AlignmentStep(layer, reads)] += sum(losses[i][j] for i, j in links)
    return max(lost, key=lost.__getitem__)  # of equal ones the last layer, where it writes


def _known_pairs(
    model: Transformer, tokenizer: Tokenizer, controls: Sequence[int], known: KnownText
) -> list[PiecePair]:
    """Return short pairs from all over a text."""
    distance, longest = max(1, len(known.sources) // (4 * _PAIRS)), _longest(model, controls)
    sources = tokenizer.encode_source([*known.sources[::distance]])
    targets = tokenizer.encode_target([*known.targets[::distance]])
    pairs = []
    for ids, target_ids in zip(sources, targets, strict=True):
        if 1 < len(ids) <= longest and 1 < len(target_ids) <= longest:
            stops = end_with_stops(tokenizer, ids, target_ids)
            pairs.append(PiecePair([*controls, *ids, END_ID], target_ids, stops))
    return pairs[:_PAIRS]


def _longest(model: Transformer, controls: Sequence[int]) -> int:
    """Return how many pieces a side of a pair may have."""
    if model.config.positions is not Positions.learned:
        return _LONGEST
    # The control symbols and `</s>`, or the start symbol, have positions, too.
    return max(1, min(_LONGEST, model.config.max_learned_positions - 1 - len(controls)))


def _made_pairs(
    model: Transformer, tokenizer: Tokenizer, controls: Sequence[int]
) -> list[PiecePair]:
    """Let the model translate lines of words of its vocabulary."""
    pieces = tokenizer.source_pieces(list(range(END_ID + 1, tokenizer.source_vocab_size)))
    words = [piece[1:] for piece in pieces if piece[0] == "▁" and piece[1:].isalpha()]
    chance = random.Random(1)
    lines = [" ".join(chance.choices(words or ["0"], k=_WORDS)) + "." for _ in range(_PAIRS)]
    longest = _longest(model, controls)
    sources = [ids[:longest] for ids in tokenizer.encode_source(lines)]
    inputs = [SearchInput([*controls, *ids, END_ID], longest) for ids in sources]
    found = Engine(model).search(inputs, SearchConfig(beam_size=1))
    pairs = []
    for ids, (best, *_) in zip(sources, found, strict=True):
        if target_ids := best.token_ids:
            stops = end_with_stops(tokenizer, ids, target_ids)
            pairs.append(PiecePair([*controls, *ids, END_ID], target_ids, stops))
    return pairs


def _lost_shares(model: Transformer, pair: PiecePair, controls: int) -> Tensor:
    """Compute the shares (S, T) of their probabilities that target pieces lose.

    Each row has those without a piece of the source.
    """
    places = torch.arange(controls, len(pair.source_ids) - 1)
    source, target_input = _inputs([pair] * (1 + len(places)), model.embedding.weight.device)
    source[1 + torch.arange(len(places)), places] = UNKNOWN_ID
    logits = model(source, target_input)[:, :-1].float()  # (1 + S, T, V)
    ids = torch.tensor(pair.target_ids, device=logits.device).view(1, -1, 1)
    chosen = logits.log_softmax(dim=2).take_along_dim(ids, dim=2).squeeze(2)  # (1 + S, T)
    return 1 - (chosen[1:] - chosen[:1]).clamp(max=0).exp()


def _inputs(pairs: Sequence[PiecePair], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return padded sources (B, S) and targets with the start symbol (B, 1 + T)."""
    source = pad([pair.source_ids for pair in pairs])
    target_input = pad([[START_ID, *pair.target_ids] for pair in pairs])
    return copy_to_device(source, device), copy_to_device(target_input, device)


@torch.inference_mode()
def align_pieces(
    models: Sequence[Transformer],
    pairs: Sequence[PiecePair],
    *,
    controls: int,
    steps: Sequence[AlignmentStep],
) -> list[tuple[list[Link], list[Link]]]:
    """Link each piece of each target to a piece of its source, in one pass over a batch.

    Also return which links are mutual: the best of the source's piece, too.

    Each source begins with `controls` control symbols. Final stops are linked as Chen et al. (2020)
    do. With several models, the mean of their shares decides.
    """
    device = next(models[0].parameters()).device
    source, target_input = _inputs(pairs, device)
    shares = torch.zeros((), device=device)
    for model, step in zip(models, steps, strict=True):
        of_layers = contributions(model, source, target_input)
        shares = shares + _of_step(next(islice(of_layers, step.layer - 1, None)), step.reads)
    if shares.isnan().any():
        raise nan_error()
    return _best_links(shares, pairs, controls)


def _of_step(shares: Tensor, reads: bool) -> Tensor:
    """Return the shares (B, T, S) of the pieces of the targets, given those of all positions."""
    return shares[:, 1:] if reads else shares[:, :-1]


def _best_links(
    shares: Tensor, pairs: Sequence[PiecePair], controls: int
) -> list[tuple[list[Link], list[Link]]]:
    """Link pieces by the largest shares (B, T, S), and find the mutual links."""
    # No control symbol, no `</s>`, no padding, and no final stop is linked to another piece.
    shares = shares.clone()
    for of_pair, (ids, target_ids, stops) in zip(shares, pairs, strict=True):
        of_pair[:, :controls] = -1.0
        of_pair[:, len(ids) - 1 - stops :] = -1.0
        of_pair[len(target_ids) - stops :] = -1.0
        if stops:
            of_pair[len(target_ids) - 1, len(ids) - 2] = 1.0
    best = (shares.argmax(dim=2) - controls).tolist()  # of each piece of the targets
    best_of_source = shares[:, :, controls:].argmax(dim=1).tolist()
    alignments = []
    for row, column, pair in zip(best, best_of_source, pairs, strict=True):
        links = list(zip(row, range(len(pair.target_ids)), strict=False))
        alignments.append((links, [(i, j) for i, j in links if column[i] == j]))
    return alignments


def contributions(model: Transformer, source: Tensor, target_input: Tensor) -> Iterator[Tensor]:
    """Yield each layer's shares (B, T, S) of source positions in what target positions attend to.

    A share is the norm of sum_h weight_h(t, s) W_h^O value_h(s), divided by the sum of these norms
    over s.
    """
    source_mask = model.source_mask(source)  # (B, 1, 1, S)
    memory = model.encode(source, source_mask)  # (B, S, D)
    x = model.embed(target_input, is_target=True)  # (B, T, D)
    target_mask = model.target_mask(target_input)  # (T, T)
    for layer in model.decoder.layers:
        assert isinstance(layer, DecoderLayer)
        if getattr(layer, "pre_norm", False):  # what cross-attention reads (B, T, D)
            y = layer.self_attention_norm(x)
            read = layer.cross_attention_norm(x + layer.self_attention(y, y, target_mask))
        else:
            read = layer.self_attention_norm(x + layer.self_attention(x, x, target_mask))
        yield _shares(layer.cross_attention, model.config, read, memory, source_mask)
        x = layer(x, memory, target_mask, source_mask)


def _shares(
    module: MultiHeadAttention,
    config: TransformerConfig,
    read: Tensor,
    memory: Tensor,
    source_mask: Tensor,
) -> Tensor:
    """Compute the shares (B, T, S) in a cross-attention of `read` (B, T, D) to the memory."""
    heads, groups = config.num_heads, config.kv_heads
    query = module.split_heads(module.w_q(read))  # (B, H, T, K)
    key, value = (
        w(memory).unflatten(2, (groups, -1)).transpose(1, 2).repeat_interleave(heads // groups, 1)
        for w in (module.w_k, module.w_v)
    )  # (B, H, S, K), (B, H, S, d_v)
    scores = (query @ key.transpose(2, 3)).float() / math.sqrt(query.size(3))  # (B, H, T, S)
    weights = scores.masked_fill(~source_mask, -math.inf).softmax(dim=3)
    output = module.w_o.weight.view(read.size(2), heads, -1).permute(1, 2, 0)  # (H, d_v, D)
    transformed = (value @ output).float().transpose(1, 2)  # (B, S, H, D)
    # The squared norm of a weighted sum over heads needs their products with each other only.
    products = transformed @ transformed.transpose(2, 3)  # (B, S, H, H)
    weights = weights.permute(0, 3, 2, 1)  # (B, S, T, H)
    squares = (weights @ products * weights).sum(dim=3).clamp(min=0)  # (B, S, T)
    norms = squares.sqrt().transpose(1, 2)  # (B, T, S)
    return norms / norms.sum(dim=2, keepdim=True)
