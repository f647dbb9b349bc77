"""The decoder one token at a time, with a cache, so that no position is computed twice.

A step calls `Transformer.decode` on the newest position alone. Three things would come from the
other positions, and the step supplies them: the number of the newest position, its row of the mask,
and the keys and values of those before. So a change of a layer or of `attention` changes a
step as well. If a position depends on others in another way, no step can compute it:
`PrefixDecoder` reads all positions again for each token. It takes longer, and serves any model.

N = B x beams is the number of hypotheses; those of one sentence are adjacent rows.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from seq2seq.changes import changed_code, report_unused
from seq2seq.config import Positions
from seq2seq.transformer import MultiHeadAttention, PositionalEncoding, Transformer

# The cache of one layer, and of a search.


@dataclass
class LayerCache:
    """The keys and values of one decoder layer."""

    keys: Tensor | None = None
    """(N, H, T, K), for self-attention to the T positions so far."""
    values: Tensor | None = None
    """(N, H, T, d_v)."""
    memory: tuple[Tensor, Tensor] | None = None
    """Keys (B, H, S, K) and values (B, H, S, d_v) for cross-attention: one row per sentence."""

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest position, key (N, H, 1, K) and value (N, H, 1, d_v); return all."""
        if self.keys is not None and self.values is not None:
            key = torch.cat((self.keys, key), dim=2)
            value = torch.cat((self.values, value), dim=2)
        self.keys, self.values = key, value
        return key, value

    def reorder(self, parents: Tensor) -> None:
        """Replace row n by row parents[n]."""
        if self.keys is not None and self.values is not None:
            self.keys = self.keys.index_select(0, parents)
            self.values = self.values.index_select(0, parents)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Drop the cross-attention keys and values of all other sentences."""
        if self.memory is not None:
            keys, values = self.memory
            self.memory = keys.index_select(0, sentences), values.index_select(0, sentences)


@dataclass
class DecoderCache:
    """The state of a search between two steps."""

    layers: list[LayerCache]
    memory: Tensor
    """(B, S, D)."""
    source_mask: Tensor
    """(B, 1, 1, S)."""
    length: int = 0
    """Number of target positions stored."""

    def reorder(self, parents: Tensor) -> None:
        """Replace row n by row parents[n] (N,), a row of the same sentence; N may change."""
        for layer in self.layers:
            layer.reorder(parents)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Keep only `sentences` (indices into B) and their hypotheses `rows` (indices into N)."""
        self.memory = self.memory.index_select(0, sentences)
        self.source_mask = self.source_mask.index_select(0, sentences)
        self.reorder(rows)
        for layer in self.layers:
            layer.keep_sentences(sentences)


_CACHE: ContextVar[DecoderCache | None] = ContextVar("cache", default=None)
"""The cache of the step that is being computed; None while a model reads whole sentences."""


def cache_of_step() -> DecoderCache | None:
    """Return the cache of the step that is being computed in this thread, if any."""
    return _CACHE.get()


@contextmanager
def step_with(cache: DecoderCache) -> Iterator[None]:
    """Make the context in which a model computes one position of each hypothesis."""
    token = _CACHE.set(cache)
    try:
        yield
    finally:
        _CACHE.reset(token)


# The methods that compute one position instead of a whole sentence.


M = TypeVar("M", bound=nn.Module)


def override(module: nn.Module, methods: type[nn.Module], **attributes: object) -> None:
    """Give a module a class that has these methods before those of its present class.

    `attributes` are what these methods need.
    """
    if not isinstance(module, methods):
        module.__class__ = _in_front(methods, type(module))  # type: ignore[arg-type]
    vars(module).update(attributes)


@cache
def _in_front(methods: type[nn.Module], own: type[nn.Module]) -> type[nn.Module]:
    """Make a class, the same one for all modules of a class, which PyTorch compiles together."""
    return type(own.__name__, (methods, own), {})


class _OnePositionModel(Transformer):
    """In a step, the mask of the newest token."""

    def target_mask(self, target_input: Tensor) -> Tensor:
        """Return the last row of the mask of all positions so far: (1, T)."""
        cache = cache_of_step()
        if cache is None:
            return super().target_mask(target_input)
        so_far = target_input.new_zeros(1, cache.length + 1)
        mask = super().target_mask(so_far)
        return mask[..., -1:, :]


class _OnePosition(nn.Module):
    """In a step, the encoding of the newest position."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the last encoding (1, D) of the positions so far."""
        cache = cache_of_step()
        if cache is None:
            return super().forward(x)
        so_far = x[:1].expand(1, cache.length + 1, -1)  # only its length is read
        return super().forward(so_far)[..., -1:, :]


class CachedSelfAttention(MultiHeadAttention):
    """In a step, the keys and values of all positions so far."""

    layer: int

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Map the newest position (N, 1, D) to the keys (N, H, T, K) and values of all."""
        newest, cache = super().keys_and_values(memory), cache_of_step()
        return newest if cache is None else cache.layers[self.layer].append(*newest)


class CachedCrossAttention(MultiHeadAttention):
    """In a step, the keys and values of the encoder's states, computed once for a search."""

    layer: int

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Map memory (B, S, D) to keys (B, H, S, K) and values (B, H, S, d_v)."""
        cache = cache_of_step()
        if cache is None:
            return super().keys_and_values(memory)
        layer = cache.layers[self.layer]
        if layer.memory is None:
            key, value = super().keys_and_values(memory)
            layer.memory = key.contiguous(), value.contiguous()
        return layer.memory

    def equation_1(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend from query (N, H, 1, K) by one attention for all hypotheses of a sentence."""
        if cache_of_step() is None:
            return super().equation_1(query, key, value, mask)
        n, h = query.shape[:2]
        if n == key.size(0):
            return super().equation_1(query, key, value, mask)
        query = query.reshape(key.size(0), -1, h, query.size(3)).transpose(1, 2)  # (B, H, beams, K)
        heads = super().equation_1(query, key, value, mask)  # (B, H, beams, d_v)
        return heads.transpose(1, 2).reshape(n, h, 1, -1)


class IncrementalDecoder:
    """Predicts the next token as `Transformer.decode` does, with the model in evaluation mode.

    It replaces methods of the model's modules, which do what they did outside of steps.
    """

    layer_cache: type[LayerCache] = LayerCache
    self_attention_methods: type[MultiHeadAttention] = CachedSelfAttention
    cross_attention_methods: type[MultiHeadAttention] = CachedCrossAttention
    positions_methods: type[nn.Module] = _OnePosition
    model_methods: type[Transformer] = _OnePositionModel

    def __init__(self, model: Transformer) -> None:
        self.model = model
        override(model, self.model_methods)
        for module in list(model.modules()):
            if isinstance(module, PositionalEncoding) or module is model.positions:
                override(module, self.positions_methods)
        for number, layer in enumerate(model.decoder.layers):
            for name in ("self_attention", "cross_attention"):
                attention = getattr(layer, name, None)
                if isinstance(attention, MultiHeadAttention):
                    override(attention, getattr(self, f"{name}_methods"), layer=number)

    def begin(self, source: Tensor) -> DecoderCache:
        """Encode padded sources (B, S), and start a search for their translations."""
        source_mask = self.model.source_mask(source)  # (B, 1, 1, S)
        return self.start(self.model.encode(source, source_mask), source_mask)

    def start(self, memory: Tensor, source_mask: Tensor) -> DecoderCache:
        """Start a search, given memory (B, S, D) and its mask (B, 1, 1, S)."""
        layers = [self.layer_cache() for _ in self.model.decoder.layers]
        return DecoderCache(layers, memory, source_mask)

    def step(self, token_ids: Tensor, cache: DecoderCache) -> Tensor:
        """Map the newest token (N,) of each hypothesis to the next one's logits (N, V)."""
        with step_with(cache):
            x = self.model.decode(token_ids.unsqueeze(1), cache.memory, cache.source_mask)
        cache.length += 1
        return self.project(x.squeeze(1))

    def project(self, states: Tensor) -> Tensor:
        """Map states (..., D) to logits (..., V)."""
        return self.model.project(states)


def copy_sharing_parameters(model: M) -> M:
    """Copy a model, but for its parameters, which the copy shares."""
    return copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})


# Without a cache.


@dataclass
class Prefixes:
    """The state of a search between two steps: what is read so far."""

    source: Tensor
    """(B, S)."""
    target: Tensor
    """(N, T)."""

    def reorder(self, parents: Tensor) -> None:
        """See `DecoderCache.reorder`."""
        self.target = self.target.index_select(0, parents)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """See `DecoderCache.keep`."""
        self.source = self.source.index_select(0, sentences)
        self.reorder(rows)


class PrefixDecoder:
    """Predicts the next token by the model itself, which reads source and prefix for each token."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def begin(self, source: Tensor) -> Prefixes:
        """Start a search for the translations of padded sources (B, S)."""
        return Prefixes(source, source.new_empty(len(source), 0))

    def step(self, token_ids: Tensor, state: Prefixes) -> Tensor:
        """Map the newest token (N,) of each hypothesis to the next one's logits (N, V)."""
        state.target = torch.cat((state.target, token_ids.unsqueeze(1)), dim=1)  # (N, T)
        beams = len(token_ids) // len(state.source)
        source = state.source.repeat_interleave(beams, dim=0)  # (N, S)
        logits: Tensor = self.model(source, state.target)  # (N, T, V)
        return logits[:, -1]


# The choice between the two.


class StepDecoder(Protocol):
    """The decoder that a search calls, of one model or of several."""

    def begin(self, source: Tensor, /) -> Any:
        """Encode padded sources (B, S), and start a search for their translations."""

    def step(self, token_ids: Tensor, state: Any, /) -> Tensor:
        """Read the newest token of each hypothesis (N,), and return the logits (N, V)."""


def incremental_decoder(model: Transformer) -> StepDecoder:
    """Make a decoder with a cache if it does what the model does, otherwise one without.

    The model stays as it is; a decoder with a cache has a copy that shares its parameters.
    """
    changed = changed_code(model)
    if not changed or computes_the_same(IncrementalDecoder, model):
        return IncrementalDecoder(copy_sharing_parameters(model))
    report_unused("a search that keeps keys and values", changed)
    return PrefixDecoder(model)


def disturbed(model: M) -> M:
    """Copy a model in float32, with other weights, so that none of its parts does nothing."""
    model = copy.deepcopy(model).float()
    with torch.no_grad(), torch.random.fork_rng([]):
        torch.manual_seed(1)
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape).to(parameter.device)
            parameter.add_(noise, alpha=0.1 if parameter.dim() < 2 else 0.02)
    return model


_COMPARED = (0, 1, 2, 3, 5, 9, 14, 22, 39)
"""The places at which the steps are compared with the model."""


@torch.inference_mode()
def computes_the_same(
    make: Callable[[Transformer], StepDecoder],
    model: Transformer,
    expected: Transformer | None = None,
) -> bool:
    """Return whether a decoder computes what the model, or another one, computes for prefixes.

    It is tried on copies in float32, with two sentences of two hypotheses each, one of which is
    padded; the hypotheses are exchanged on the way.
    """
    plain = disturbed(model if expected is None else expected).eval()
    source, words = trial_sentences(plain)
    wanted = _logits_of_prefixes(plain, source, words)
    try:
        found = _logits_of_steps(make(disturbed(model).eval()), source, words)
    except Exception:  # a changed model may be unable to read one position
        return False
    return bool(((found - wanted).abs() <= 1e-4 * wanted.abs().max()).all())


def trial_sentences(model: Transformer) -> tuple[Tensor, Tensor]:
    """Make two sources (2, S), one of which is padded, and two hypotheses (T, 4) of each."""
    device, vocab_size = model.embedding.weight.device, model.embedding.num_embeddings
    learned = model.config.positions is Positions.learned
    longest = min(40, model.config.max_learned_positions) if learned else 40
    source = (torch.arange(60, device=device).view(2, 30)[:, :longest] * 7 + 1) % vocab_size
    source[source == model.padding_id] = (model.padding_id + 1) % vocab_size
    source[1, 11:] = model.padding_id
    words = torch.arange(4 * longest, device=device).view(longest, 4) % vocab_size
    words[0] = words[0, 0]  # one hypothesis of each sentence
    return source, words


def _logits_of_prefixes(model: Transformer, source: Tensor, words: Tensor) -> Tensor:
    """Compute the logits (places, N, V) after the compared places of words (T, N)."""
    source = source.repeat_interleave(2, dim=0)  # (N, S)
    read, logits = words[:0].T, list[Tensor]()
    for place, tokens in enumerate(words):
        read = torch.cat((read, tokens.unsqueeze(1)), dim=1)  # (N, T)
        if place in _COMPARED:
            logits.append(model(source, read)[:, -1])
        read = read[_parents(place, read.device)]
    return torch.stack(logits)


def _logits_of_steps(decoder: StepDecoder, source: Tensor, words: Tensor) -> Tensor:
    """Compute the same, step by step."""
    state, logits = decoder.begin(source), list[Tensor]()
    state.reorder(torch.tensor([0, 0, 1, 1], device=source.device))
    for place, tokens in enumerate(words):
        found = decoder.step(tokens, state)
        if place in _COMPARED:
            logits.append(found)
        state.reorder(_parents(place, source.device))
    return torch.stack(logits)


def _parents(place: int, device: torch.device) -> Tensor:
    """Return how the hypotheses of both sentences go on after a place."""
    return torch.tensor([1, 0, 3, 3] if place % 3 else [0, 1, 3, 2], device=device)
