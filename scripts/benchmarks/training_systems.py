"""The steps that `training.py` compares: ours, a peer's in a plain loop, and the matmuls alone."""

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.batches import Batch, Batching, make_batching
from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.device import Compute
from seq2seq.encoded_corpus import EncodedCorpus
from seq2seq.fast.updates import FastUpdater, fit_memory
from seq2seq.model_folder import new_transformer
from seq2seq.tokenizer import PADDING_ID, START_ID
from seq2seq.trainer import Trainer
from seq2seq.transformer import sinusoids
from seq2seq.update import Updater

SMOOTHING = 0.1
SIZES = {
    "small": {"num_layers": 3, "d_model": 256, "d_ff": 1024, "num_heads": 4},
    "base": {"num_layers": 6, "d_model": 512, "d_ff": 2048, "num_heads": 8},
    "big": {"num_layers": 6, "d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
}


class Measured(NamedTuple):
    """What a step that is done had."""

    tokens: int
    rows: int
    """With those that fill up."""
    waited: float
    """Seconds in which it waited for data."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of every system."""

    corpus: str
    size: str
    vocab_size: int
    tokens: int
    micro_batch_tokens: int
    steps: int
    device: str

    @property
    def on_gpu(self) -> bool:
        """Whether the steps are done on a GPU."""
        return self.device.startswith("cuda")

    @property
    def config(self) -> TransformerConfig:
        """The hyperparameters of the model."""
        return TransformerConfig(**SIZES[self.size])  # type: ignore[arg-type]

    def training(self) -> TrainingConfig:
        """Return the configuration of a step."""
        return TrainingConfig(
            source_tokens=self.tokens,
            target_tokens=self.tokens,
            micro_batch_tokens=self.micro_batch_tokens,
            label_smoothing=SMOOTHING,
        )

    def batching(self) -> Batching:
        """Divide the corpus into micro-batches."""
        return make_batching(self.training(), EncodedCorpus(self.corpus), seed=1)

    def batches(self) -> Iterator[list[Any]]:
        """Yield the micro-batches of one step after the other."""
        batching, parts = self.batching(), self.training().micro_batches()
        stream = chain.from_iterable(map(batching.epoch, count()))
        while True:
            yield list(islice(stream, parts))


def ours(work: Work, dtype: torch.dtype, form: Callable[..., Updater]) -> Iterator[Measured]:
    """Do the steps of `seq2seq train`."""
    compute = Compute(torch.device(work.device), dtype)
    torch.manual_seed(1)
    model = new_transformer(work.config, work.vocab_size).to(compute.device)
    updater = form(model, work.batching(), work.training(), compute=compute, seed=1)
    shape = None
    if isinstance(updater, FastUpdater):
        fit_memory(updater, 0)
        shape = updater.shape
    trainer = Trainer(updater)
    with closing(trainer.steps()) as steps:
        for step in steps:
            trainer.update(step)
            tokens = step.batches.source_tokens + step.batches.target_tokens
            rows = sum(shape.rows) * len(step.batches.batches) if shape else tokens
            yield Measured(tokens, rows, step.waited)


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` with tied, scaled embeddings and sinusoids."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.d_model, padding_idx=PADDING_ID)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_layers,
            config.num_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        self.register_buffer("positions", sinusoids(1024, config.d_model).float())

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Source (B, S), target (B, T) -> logits (B, T, V)."""
        padding = source == PADDING_ID
        causal = nn.Transformer.generate_square_subsequent_mask(
            target.size(1), device=target.device, dtype=torch.bool
        )
        states = self.transformer(
            self._embed(source),
            self._embed(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.linear(states, self.embedding.weight)

    def _embed(self, token_ids: Tensor) -> Tensor:
        scaled = self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim)
        positions: Any = self.positions
        embedded: Tensor = self.dropout(scaled + positions[: token_ids.size(1)])
        return embedded


class Marian(nn.Module):
    """Hugging Face's `MarianMTModel` at the same sizes."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        from transformers import MarianConfig, MarianMTModel

        super().__init__()
        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=vocab_size,
                d_model=config.d_model,
                encoder_layers=config.num_layers,
                decoder_layers=config.num_layers,
                encoder_ffn_dim=config.d_ff,
                decoder_ffn_dim=config.d_ff,
                encoder_attention_heads=config.num_heads,
                decoder_attention_heads=config.num_heads,
                activation_function="relu",
                dropout=config.dropout,
                attention_dropout=0.0,
                scale_embedding=True,
                pad_token_id=PADDING_ID,
                decoder_start_token_id=START_ID,
                forced_eos_token_id=None,
            )
        )

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Source (B, S), target (B, T) -> logits (B, T, V)."""
        logits: Tensor = self.model(
            input_ids=source, attention_mask=source != PADDING_ID, decoder_input_ids=target
        ).logits
        return logits


def peer(work: Work, make: str, dtype: torch.dtype) -> Iterator[Measured]:
    """Do the steps of a plain loop with a peer's model."""
    compute = Compute(torch.device(work.device), dtype)
    model = {"torch.nn": TorchTransformer, "marian": Marian}[make](work.config, work.vocab_size)
    model.to(compute.device).train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=compute.on_gpu
    )
    batching = work.batching()
    for batches in work.batches():
        optimizer.zero_grad()
        for indices in batches:
            batch = batching.collate(indices).to(compute.device)
            loss = peer_loss(model, batch, compute, SMOOTHING) / len(batches)
            loss.backward()  # type: ignore[no-untyped-call]
            loss.item()
        optimizer.step()
        yield unpadded(batching.corpus, batches)


def peer_loss(model: nn.Module, batch: Batch, compute: Compute, smoothing: float) -> Tensor:
    """Compute the loss of a peer's model with PyTorch's own label smoothing."""
    with compute.autocast():
        logits = model(batch.source, batch.target_input)
        return F.cross_entropy(
            logits.flatten(0, 1),
            batch.target_output.flatten(),
            ignore_index=PADDING_ID,
            label_smoothing=smoothing,
        )


def unpadded(corpus: EncodedCorpus, batches: list[Any]) -> Measured:
    """Count the tokens of a step."""
    tokens = sum(int(side.sum()) for indices in batches for side in corpus.lengths(indices))
    return Measured(tokens, tokens, 0.0)


def matmul_shapes(
    work: Work, corpus: EncodedCorpus, indices: Any
) -> Iterator[tuple[tuple[int, int, int, int], int]]:
    """Yield (batch, rows, inner, columns) of each forward matmul, and how often it is done."""
    config, layers = work.config, work.config.num_layers
    width = config.d_model
    queries, values = (config.num_heads * size for size in (config.key_width, config.value_width))
    lengths = corpus.lengths(indices)
    source, target = (int(side.sum()) for side in lengths)
    longest_source, longest_target = (int(side.max()) for side in lengths)
    for rows in (source, target):
        yield (1, rows, width, 2 * queries + values), layers  # self-attention, W^Q W^K W^V
        yield (1, rows, values, width), layers
        yield (1, rows, width, config.d_ff), layers
        yield (1, rows, config.d_ff, width), layers
    yield (1, target, width, queries), layers  # attention to the encoder
    yield (1, source, width, queries + values), layers
    yield (1, target, values, width), layers
    yield (1, target, width, work.vocab_size), 1
    heads = len(indices) * config.num_heads
    for rows, columns in (
        (longest_source, longest_source),
        (longest_target, longest_target),
        (longest_target, longest_source),
    ):
        yield (heads, rows, config.key_width, columns), layers
        yield (heads, rows, columns, config.value_width), layers


def matmuls(work: Work, dtype: torch.dtype) -> Iterator[Measured]:
    """The matmuls of a step and nothing else: forward, and both of backward.

    Rows are tokens without padding; only attention is counted over padded sentences.
    """
    device, corpus = torch.device(work.device), EncodedCorpus(work.corpus)
    blocks: dict[str, Tensor] = {}

    def buffer(role: str, batch: int, rows: int, columns: int) -> Tensor:
        size = batch * rows * columns
        if role not in blocks or len(blocks[role]) < size:
            blocks[role] = torch.randn(size, device=device).to(dtype)
        shape = (rows, columns) if batch == 1 else (batch, rows, columns)
        return blocks[role][:size].view(shape)

    for batches in work.batches():
        for indices in batches:
            for (batch, rows, inner, columns), times in matmul_shapes(work, corpus, indices):
                x, weight = buffer("x", batch, rows, inner), buffer("weight", batch, columns, inner)
                y, gradient = buffer("y", batch, rows, columns), buffer("dy", batch, rows, columns)
                x_gradient = buffer("dx", batch, rows, inner)
                weight_gradient = buffer("dw", batch, columns, inner)
                for _ in range(times):
                    torch.matmul(x, weight.mT, out=y)
                    torch.matmul(gradient, weight, out=x_gradient)
                    torch.matmul(gradient.mT, x, out=weight_gradient)
        yield unpadded(corpus, batches)
