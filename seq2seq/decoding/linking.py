"""Links between pieces: which piece of a source each piece of its translation belongs to.

The decoder reads the finished translation once. Each piece is linked to the piece of the source
that contributes most to the output of a layer's cross-attention, by the norm of its weighted and
transformed value (Kobayashi et al. 2020). So no search takes longer, and any engine may have made
the translation.

Most models align a piece best in a late layer, in the step that writes it; others in an early one,
in the step that reads it. `choose_step` finds out which: the links of the best step name the pieces
without which the model would not write what it writes. A changed model whose cross-attention adds
up in another way is aligned by these losses alone.
"""

import logging
import random
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from seq2seq.changes import changed_code
from seq2seq.config import Positions
from seq2seq.controls import control_ids
from seq2seq.decoder import copy_sharing_parameters, disturbed, trial_sentences
from seq2seq.decoding.attended import make_readable, read_attentions
from seq2seq.device import copy_to_device
from seq2seq.model_folder import AlignmentStep, TrainedModel
from seq2seq.search import SearchConfig, nan_error, pad
from seq2seq.tokenizer import END_ID, START_ID, UNKNOWN_ID, Tokenizer
from seq2seq.transformer import Transformer
from seq2seq.translate import Engine, SearchInput

logger = logging.getLogger("seq2seq")

Link: TypeAlias = tuple[int, int]
"""The numbers of a piece of the source and of one of the translation."""


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


def find_step(trained: TrainedModel) -> AlignmentStep | None:
    """Return where a model aligns, as its folder says or as `choose_step` chooses."""
    if not can_read(trained.model):
        return None
    return trained.alignment or choose_step(trained)


@torch.inference_mode()
def choose_step(trained: TrainedModel, known: KnownText | None = None) -> AlignmentStep | None:
    """Choose where a model aligns by text that it knows, by default its own translations.

    For the model as for its users, a piece of a translation belongs to the piece of the source
    that it depends on. The step is chosen whose links name the pieces without which the linked ones
    lose the largest shares of their probabilities. For a changed model that can't be read, there is
    none.
    """
    model, tokenizer = trained.model, trained.tokenizer
    if not can_read(model):
        return None
    languages = trained.target_languages
    language = languages[0] if known is None else known.language
    controls = control_ids(tokenizer.controls, language, None, trained.target_language)
    pairs = _known_pairs(model, tokenizer, controls, known) if known else []
    pairs = pairs or _made_pairs(model, tokenizer, controls)
    reader = copy_sharing_parameters(model)  # so that the model can still be saved
    attentions = _cross_attentions(reader)
    layers = range(len(attentions), 0, -1)
    lost = {AlignmentStep(*step): 0.0 for step in product(layers, (False, True))}
    for pair in pairs:
        losses = lost_shares(model, pair, len(controls)).tolist()
        source, target_input = _inputs([pair], model.embedding.weight.device)
        calls = read_attentions(reader, attentions, source, target_input, needed=len(attentions))
        for layer, call in enumerate(calls, start=1):
            shares = call.shares()
            for reads in (False, True):
                ((links, _),) = _best_links(_of_step(shares, reads), [pair], len(controls))
                lost[AlignmentStep(layer, reads)] += sum(losses[i][j] for i, j in links)
    return max(lost, key=lost.__getitem__)  # of equal ones the last layer, where it writes


def prepare_alignment(trained: TrainedModel) -> AlignmentStep | None:
    """Find where a model aligns, and let its attentions be read by several threads."""
    step = find_step(trained)
    if step is not None:
        make_readable(_cross_attentions(trained.model))
    return step


def _cross_attentions(model: Transformer) -> list[nn.Module]:
    return [layer.get_submodule("cross_attention") for layer in model.decoder.layers]


@torch.inference_mode()
def can_read(model: Transformer) -> bool:
    """Return whether the outputs of all cross-attentions are sums of what they attend to.

    A changed model is tried with other weights, so that none of its parts does nothing; if it can't
    be read, a line says so.
    """
    changed = changed_code(model)
    if not changed:
        return True
    model = disturbed(model).eval()
    source, words = trial_sentences(model)
    target_input = words[:, ::2].T  # (B, T)
    try:
        attentions = _cross_attentions(model)
        calls = read_attentions(model, attentions, source, target_input)
        in_order = [call.module for call in calls] == attentions
        shape = (*target_input.shape, source.size(1))
        if in_order and all(call.is_sum_of_shares(shape) for call in calls):
            return True
    except Exception:  # whatever a changed model lacks
        logger.debug("cross-attention can't be read", exc_info=True)
    names = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
    logger.warning(
        f"{names} changed, so alignments can't read the cross-attention: each piece of a source is"
        " left out in turn, which takes longer; see seq2seq/CHANGE.md"
    )
    return False


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


_MOST_TOKENS = 1024
"""Most target tokens of the copies of a pair that a model reads at once."""


def lost_shares(model: Transformer, pair: PiecePair, controls: int) -> Tensor:
    """Compute the shares (S, T) of their probabilities that target pieces lose.

    Each row has the losses without one piece of the source, which the unknown piece replaces.
    """
    places = range(controls, len(pair.source_ids) - 1)
    without = [pair.source_ids.copy() for _ in places]
    for ids, place in zip(without, places, strict=True):
        ids[place] = UNKNOWN_ID
    copies = [pair, *(pair._replace(source_ids=ids) for ids in without)]
    source, target_input = _inputs(copies, model.embedding.weight.device)
    target = torch.tensor(pair.target_ids, device=source.device).view(1, -1, 1)
    at_once = max(1, _MOST_TOKENS // target_input.size(1))
    chosen = []
    for rows in torch.arange(len(copies), device=source.device).chunk(-(-len(copies) // at_once)):
        logits = model(source[rows], target_input[rows])[:, :-1].float()  # (n, T, V)
        tokens = target.expand(len(rows), -1, -1)
        chosen.append(logits.log_softmax(dim=2).take_along_dim(tokens, dim=2).squeeze(2))
    log_probabilities = torch.cat(chosen)  # (1 + S, T)
    return 1 - (log_probabilities[1:] - log_probabilities[:1]).clamp(max=0).exp()


def _lost_by_pairs(
    model: Transformer, pairs: Sequence[PiecePair], shape: Sequence[int], controls: int
) -> Tensor:
    """Compute the lost shares of each pair, padded to a shape (B, T, S)."""
    shares = torch.zeros(*shape, device=model.embedding.weight.device)
    for of_pair, pair in zip(shares, pairs, strict=True):
        lost = lost_shares(model, pair, controls).T  # (T, S)
        of_pair[: len(lost), controls : controls + lost.size(1)] = lost
    return shares


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
    steps: Sequence[AlignmentStep | None],
) -> list[tuple[list[Link], list[Link]]]:
    """Link each piece of each target to a piece of its source.

    Also return which links are mutual: the best of the source's piece, too. A model reads a batch
    once, up to the layer of its step; without a step, it reads a pair without each piece in turn.

    Before several threads call this, `prepare_alignment` is called for each model. Each source
    begins with `controls` control symbols. Final stops are linked as Chen et al. (2020) do. With
    several models, the mean of their shares decides.
    """
    device = next(models[0].parameters()).device
    source, target_input = _inputs(pairs, device)
    shares = torch.zeros((), device=device)
    for model, step in zip(models, steps, strict=True):
        if step is None:
            shape = len(pairs), target_input.size(1) - 1, source.size(1)
            shares = shares + _lost_by_pairs(model, pairs, shape, controls)
        else:
            attentions = _cross_attentions(model)
            calls = read_attentions(model, attentions, source, target_input, needed=step.layer)
            shares = shares + _of_step(calls[-1].shares(), step.reads)
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
