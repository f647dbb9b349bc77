"""Changes that a reader makes in `transformer.py`, each of which must be obeyed everywhere."""

import contextlib
import copy
import logging
import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq import transformer
from seq2seq.batches import make_batching
from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.decoder import PrefixDecoder
from seq2seq.decoding.engines import NativeEngine
from seq2seq.device import Compute
from seq2seq.encoded_corpus import EncodedCorpus
from seq2seq.fast.decoder import TranslationKernels
from seq2seq.fast.updates import make_updater
from seq2seq.files import temporary_folder
from seq2seq.search import Hypothesis, SearchConfig, beam_search
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID
from seq2seq.transformer import (
    DecoderLayer,
    Embedding,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEncoding,
    Transformer,
)
from seq2seq.translate import SearchInput
from seq2seq.update import Updater
from tests.models import perturb
from tests.toy import encoded_corpus

V = 19
LONGEST = 9
CONFIG = {"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2, "dropout": 0.0}

# Edits: functions and methods that stand in for those of the file.


def sigmoid_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: nn.Module
) -> Tensor:
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    return dropout(scores.sigmoid().masked_fill(~mask, 0.0)) @ value


def gated_attention(self: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    query = self.split_heads(self.w_q(x))
    key, value = self.keys_and_values(memory)
    heads = self.equation_1(query, key, value, mask)
    return self.w_o(self.concatenate_heads(heads)) * torch.sigmoid(x)


def attention_without_split(
    self: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor
) -> Tensor:
    scores = self.w_q(x) @ self.w_k(memory).transpose(1, 2)
    scores = scores.masked_fill(~mask.squeeze(1) if mask.dim() == 4 else ~mask, -math.inf)
    return self.w_o(scores.softmax(dim=-1) @ self.w_v(memory))


def normed_keys(self: MultiHeadAttention, memory: Tensor) -> tuple[Tensor, Tensor]:
    return (
        F.normalize(self.split_heads(self.w_k(memory)), dim=-1),
        self.split_heads(self.w_v(memory)),
    )


def window(length: int, device: torch.device) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device).tril().triu(-1)


def seeing_ahead(length: int, device: torch.device) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device)


def without_stops(self: Transformer, source: Tensor) -> Tensor:
    return ((source != self.padding_id) & (source != 5))[:, None, None, :]


def twice_as_large(self: Transformer, token_ids: Tensor, *, is_target: bool = False) -> Tensor:
    x = (self.target_embedding if is_target else self.embedding)(token_ids)
    return self.dropout(2 * x + self.positions(x))


def with_memory(
    self: Transformer, target_input: Tensor, memory: Tensor, source_mask: Tensor
) -> Tensor:
    x = self.embed(target_input, is_target=True) + memory.mean(dim=1, keepdim=True)
    return self.decoder(x, memory, self.target_mask(target_input), source_mask)


def capped(self: Transformer, states: Tensor) -> Tensor:
    return torch.tanh(F.linear(states, self.output_matrix, self.output_bias))


def hotter(self: Transformer, source: Tensor, target_input: Tensor) -> Tensor:
    return self.project(self.decoder_states(source, target_input)) / 2 + 0.1 * target_input.sum()


def parallel_layer(
    self: DecoderLayer, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor
) -> Tensor:
    attended = self.self_attention(x, x, target_mask) + self.cross_attention(x, memory, source_mask)
    x = self.self_attention_norm(x + self.dropout(attended))
    return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


def shifted_layer(
    self: DecoderLayer, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor
) -> Tensor:
    x = x + F.pad(x[:, :-1], (0, 0, 1, 0))  # each token sees the one before it
    x = self.self_attention_norm(x + self.self_attention(x, x, target_mask))
    x = self.cross_attention_norm(x + self.cross_attention(x, memory, source_mask))
    return self.feed_forward_norm(x + self.feed_forward(x))


def pooled_layer(self: EncoderLayer, x: Tensor, source_mask: Tensor) -> Tensor:
    x = self.self_attention_norm(x + self.self_attention(x, x, source_mask))
    x = x + x.amax(dim=1, keepdim=True)
    return self.feed_forward_norm(x + self.feed_forward(x))


def smooth(self: FeedForward, x: Tensor) -> Tensor:
    return self.outer(F.gelu(self.inner(x)))


def unscaled(self: Embedding, token_ids: Tensor) -> Tensor:
    return F.embedding(token_ids, self.weight)


def ramp(length: int, d_model: int) -> Tensor:
    return torch.arange(length).unsqueeze(1) / 10 + torch.arange(d_model) / 3


def centred(self: PositionalEncoding, x: Tensor) -> Tensor:
    return transformer.sinusoids(x.size(1), x.size(2)).to(x) - x.mean(dim=(0, 1))


# Subclasses: modules of one's own in a model.


class OwnAttention(MultiHeadAttention):
    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        return gated_attention(self, x, memory, mask)


class OwnEquation(MultiHeadAttention):
    def equation_1(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return sigmoid_attention(query, key, value, mask, self.dropout)


class OwnLayer(DecoderLayer):
    def forward(
        self, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor
    ) -> Tensor:
        return shifted_layer(self, x, memory, target_mask, source_mask)


class OwnFeedForward(FeedForward):
    def forward(self, x: Tensor) -> Tensor:
        return smooth(self, x)


class OwnPositions(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return ramp(x.size(1), x.size(2)).to(x)


class OwnModel(Transformer):
    def project(self, states: Tensor) -> Tensor:
        return capped(self, states)


class CausalConvolution(FeedForward):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.convolution = nn.Conv1d(config.d_model, config.d_model, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.convolution(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)
        return super().forward(x)


class LowRank(nn.Linear):
    """Low-rank adaptation (Hu et al. 2021)."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__(width, out, bias=False)
        self.down, self.up = nn.Linear(width, 2, bias=False), nn.Linear(2, out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.up(self.down(x))


class AdaptedAttention(MultiHeadAttention):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.w_q, self.w_k = LowRank(config.d_model, config.d_model), self.w_k


class AdaptedModel(Transformer):
    def __init__(self, config: TransformerConfig, **sizes: Any) -> None:
        super().__init__(config, **sizes)
        for layer in self.decoder.layers:
            assert isinstance(layer, DecoderLayer)
            layer.self_attention.w_q = LowRank(config.d_model, config.d_model)


class NarrowModel(Transformer):
    def target_mask(self, target_input: Tensor) -> Tensor:
        return window(target_input.size(1), target_input.device)


class LocalLayer(DecoderLayer):
    def forward(
        self, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor
    ) -> Tensor:
        return super().forward(x, memory, target_mask.triu(-2), source_mask)


class GatedShift(DecoderLayer):
    """A branch that does nothing at first."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(
        self, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor
    ) -> Tensor:
        x = x + self.gate * F.pad(x[:, :-7], (0, 0, 7, 0))[:, : x.size(1)]
        return super().forward(x, memory, target_mask, source_mask)


class InstanceModel(Transformer):
    def __init__(self, config: TransformerConfig, **sizes: Any) -> None:
        super().__init__(config, **sizes)
        self.project = partial(capped, self)  # type: ignore[method-assign]


class WithoutDropout(Transformer):
    """Embeddings to which nothing is done after the sum."""

    def __init__(self, config: TransformerConfig, **sizes: Any) -> None:
        super().__init__(config, **sizes)
        del self.dropout

    def embed(self, token_ids: Tensor, *, is_target: bool = False) -> Tensor:
        x = (self.target_embedding if is_target else self.embedding)(token_ids)
        return 2 * x + self.positions(x)


class Change(NamedTuple):
    """A change, and the fast forms that can't follow it: on a CPU and, in addition, on a GPU."""

    owner: Any
    name: str
    value: Any
    unused: tuple[str, ...] = ()
    unused_on_gpu: tuple[str, ...] = ("fixed shapes",)


TRAINING, CACHE, ATTENTION, LOSS = (
    "fast training", "keeps keys and values", "fast forms of attention", "the loss by chunks",
)  # fmt: skip
ON_GPU = ("fused attention", "fixed shapes")
EDITS = [
    Change(transformer, "attention", sigmoid_attention, (ATTENTION,), ON_GPU),
    Change(MultiHeadAttention, "forward", gated_attention, (ATTENTION,), ON_GPU),
    Change(MultiHeadAttention, "forward", attention_without_split, (TRAINING, CACHE)),
    Change(MultiHeadAttention, "keys_and_values", normed_keys, (ATTENTION,), ON_GPU),
    Change(transformer, "causal_mask", window, (ATTENTION,), ON_GPU),
    Change(transformer, "causal_mask", seeing_ahead, (TRAINING, CACHE)),
    Change(Transformer, "source_mask", without_stops, (), ON_GPU),
    Change(Transformer, "embed", twice_as_large),
    Change(Transformer, "decode", with_memory, (TRAINING, CACHE)),
    Change(Transformer, "project", capped, (LOSS,)),
    Change(Transformer, "forward", hotter, (LOSS, CACHE)),
    Change(DecoderLayer, "forward", parallel_layer),
    Change(DecoderLayer, "forward", shifted_layer, (TRAINING, CACHE)),
    Change(EncoderLayer, "forward", pooled_layer, (TRAINING,)),
    Change(FeedForward, "forward", smooth),
    Change(Embedding, "forward", unscaled),
    Change(PositionalEncoding, "compute", staticmethod(ramp), (), ()),
    Change(PositionalEncoding, "forward", centred, (TRAINING, CACHE)),
]
SUBCLASSES = [
    Change(transformer, "MultiHeadAttention", OwnAttention, (ATTENTION,), ON_GPU),
    Change(transformer, "MultiHeadAttention", OwnEquation, (ATTENTION,), ON_GPU),
    Change(transformer, "DecoderLayer", OwnLayer, (TRAINING, CACHE)),
    Change(transformer, "FeedForward", OwnFeedForward),
    Change(transformer, "FeedForward", CausalConvolution, (TRAINING, CACHE)),
    Change(transformer, "PositionalEncoding", OwnPositions),
    Change(transformer, "Transformer", OwnModel, (LOSS,)),
    Change(transformer, "MultiHeadAttention", AdaptedAttention, (ATTENTION,), ON_GPU[1:]),
    Change(transformer, "Transformer", AdaptedModel, (ATTENTION,), ON_GPU[1:]),
    Change(transformer, "Transformer", NarrowModel, (ATTENTION,), ON_GPU),
    Change(transformer, "DecoderLayer", LocalLayer, (TRAINING, CACHE)),
    Change(transformer, "DecoderLayer", GatedShift, (TRAINING, CACHE)),
    Change(transformer, "Transformer", InstanceModel, (LOSS,)),
    Change(transformer, "Transformer", WithoutDropout),
]


def name_of(change: Change) -> str:
    value = getattr(change.value, "__func__", change.value)
    return f"{value.__name__} for {getattr(change.owner, '__name__', '')}.{change.name}"


@contextlib.contextmanager
def changed(change: Change) -> Iterator[type[Transformer]]:
    """Make a change; a subclass is only in the models that are made meanwhile."""
    with mock.patch.object(change.owner, change.name, change.value):
        yield transformer.Transformer


def make_model(make: type[Transformer]) -> Transformer:
    torch.manual_seed(1)
    config = TransformerConfig(**CONFIG)
    model = make(config, vocab_size=V, padding_id=PADDING_ID, start_id=START_ID)
    perturb(model)
    return model.eval()


def losses_of(
    make: Callable[..., Updater],
    model: Transformer,
    corpus: EncodedCorpus,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> list[float]:
    """Train three updates, and return their losses."""
    config = TrainingConfig(
        source_tokens=80, target_tokens=80, micro_batch_tokens=40, warmup_steps=10
    )
    compute, losses = Compute(torch.device(device), dtype), []
    batches = make_batching(config, corpus, seed=1)
    updater = make(model, batches, config, compute=compute, seed=1)
    epoch, count = batches.epoch(0), config.micro_batches()
    for step in range(3):
        ready = updater.collate(epoch[step * count : (step + 1) * count])
        losses.append(updater.update(step + 1, ready).smoothed)
    last = updater.finish()
    found = [loss for loss in [*losses, last.smoothed] if loss]
    assert len(found) == 3
    return found


@cache
def usual_losses() -> list[float]:
    """Those without a change, on the corpus of all changes."""
    with temporary_folder() as folder:
        corpus = encoded_corpus(folder / "train.ids", V, 40, LONGEST - 2)
        return losses_of(Updater, make_model(Transformer), corpus)


INPUTS = [SearchInput([5, 9, 4, 7, END_ID], 6), SearchInput([8, END_ID], 4)]


def translations_of(model: Transformer, device: str) -> list[list[Hypothesis]]:
    """Search with the fast engine."""
    compute = Compute(torch.device(device))
    model = copy.deepcopy(model).to(compute.device)
    search = SearchConfig(nbest=2)
    engine = NativeEngine([model], compute, TranslationKernels(), search, 1, None)
    with torch.inference_mode():
        return engine.search(INPUTS, search)


@torch.inference_mode()
def translations_by_prefixes(model: Transformer) -> list[list[Hypothesis]]:
    decoder = PrefixDecoder(model)
    source = torch.tensor([[5, 9, 4, 7, END_ID], [8, END_ID, 0, 0, 0]])
    return beam_search(
        decoder.step,
        decoder.begin(source),
        torch.tensor([6, 4]),
        SearchConfig(nbest=2),
        start_id=START_ID,
        end_id=END_ID,
        suppressed_ids=(PADDING_ID, START_ID),
    )


def assert_obeyed(
    change: Change, folder: Path, caplog: pytest.LogCaptureFixture, device: str
) -> None:
    """Training and translation are those of the plain code with the change, and lines say so."""
    corpus = encoded_corpus(folder / "train.ids", V, 40, LONGEST - 2)
    with contextlib.ExitStack() as stack:
        make = stack.enter_context(changed(change))
        models = [make_model(make) for _ in range(4)]
        if isinstance(change.value, type):  # it goes on in these models alone
            stack.close()
        plain = losses_of(Updater, models[0], corpus)
        expected = translations_by_prefixes(models[1])
        with caplog.at_level(logging.WARNING, "seq2seq"):
            fast = losses_of(make_updater, models[2].to(device), corpus, device)
            found = translations_of(models[3], device)
    assert plain != pytest.approx(usual_losses(), rel=1e-4)
    assert fast == pytest.approx(plain, rel=1e-4)
    for ours, theirs in zip(found, expected, strict=True):
        assert [each.token_ids for each in ours] == [each.token_ids for each in theirs]
        assert [each.score for each in ours] == pytest.approx([e.score for e in theirs], abs=1e-4)
    expected_lines = change.unused + (change.unused_on_gpu if device == "cuda" else ())
    said = [m.split(" instead of ")[1].split(":")[0] for m in caplog.messages if "instead of" in m]
    assert len(said) == len(set(said))
    assert all(any(part in line for line in said) for part in expected_lines), said
    assert all(any(part in line for part in expected_lines) for line in said), said
