"""Sections 3.4 and 3.5: embeddings, the shared matrix, positions, and the decoder's start."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from seq2seq.fidelity.detail import Finding, Subject, detail
from seq2seq.fidelity.trace import FIRST_WORD, LENGTH, mode, random_tokens, trace
from seq2seq.tokenizer import PADDING_ID
from seq2seq.transformer import Transformer


@detail(
    "positions (3.5)",
    paper="sine and cosine interleaved, pos / 10000^(2i/d)",
    tensor2tensor="halves concatenated, wavelengths by log(10000) / (d/2 - 1)",
)
def positions(subject: Subject) -> Finding:
    """Embed a word at every position, and subtract its scaled embedding."""
    d = subject.model.config.d_model
    found = _position_vectors(subject.model).double()
    position, i = torch.arange(LENGTH).double().unsqueeze(1), torch.arange(d // 2).double()
    angle = position / 10000 ** (2 * i / d)
    interleaved = torch.stack((angle.sin(), angle.cos()), dim=2).flatten(1)
    angle = position * torch.exp(-i * math.log(10000) / max(d // 2 - 1, 1))
    concatenated = torch.cat((angle.sin(), angle.cos()), dim=1)
    paper, tensor2tensor = (
        torch.allclose(found, table, atol=1e-4) for table in (interleaved, concatenated)
    )
    shown = ", ".join(f"PE(10, {i}) = {value:.4f}" for i, value in enumerate(found[10, :3]))
    layout = "interleaved" if paper else "concatenated" if tensor2tensor else "no sinusoids"
    return Finding(f"{layout}: {shown}", paper, tensor2tensor)


def _position_vectors(model: Transformer) -> Tensor:
    """Measure the positional encodings, (LENGTH, D)."""
    with mode(model, training=False):
        embedded = model.embed(torch.full((1, LENGTH), FIRST_WORD))[0]
        return embedded - _scale(model) * model.embedding.weight[FIRST_WORD]


def _scale(model: Transformer, stack: int = 0) -> float:
    """Measure the factor from differences of embedding rows to differences of embedded tokens."""
    seen = trace(model, training=False)[stack]
    embedding = (model.embedding, model.target_embedding)[stack]
    with torch.no_grad():
        rows = embedding.weight[seen.token_ids[:, 1:]]
        rows, embedded = rows[0] - rows[1], (seen.embedded[0] - seen.embedded[1])[1:]
        return float((rows * embedded).sum() / (rows * rows).sum())


@detail(
    "embedding scale (3.4)", paper="times sqrt(d_model)", tensor2tensor="the same, padding zeroed"
)
def embedding_scale(subject: Subject) -> Finding:
    """Compare embedded tokens with their embedding rows, and sentences with and without padding."""
    model = subject.model
    expected = math.sqrt(model.config.d_model)
    source, target = _scale(model, 0), _scale(model, 1)
    right = all(math.isclose(scale, expected, rel_tol=1e-4) for scale in (source, target))
    masked = _padding_is_masked(model)
    return Finding.both(
        f"times {source:.4g} (source), {target:.4g} (target); sqrt(d_model) = {expected:.4g};"
        f" padding reaches {'no token' if masked else 'other tokens'}",
        right and masked,
    )


def _padding_is_masked(model: Transformer) -> bool:
    with mode(model, training=False):
        source, target_input = random_tokens(model)[:, :5], random_tokens(model)
        padded = torch.cat((source, torch.full_like(source, PADDING_ID)), dim=1)
        memories, states = [], []
        for sentence in (source, padded):
            mask = model.source_mask(sentence)
            memory = model.encode(sentence, mask)
            memories.append(memory[:, :5])
            states.append(model.decode(target_input, memory, mask))
        pairs = (memories, states)
        return all(torch.allclose(one, other, atol=1e-4) for one, other in pairs)


@detail(
    "shared matrix (3.4)",
    paper="source embedding = target embedding = pre-softmax matrix",
    tensor2tensor="the same, logits without bias",
)
def shared_matrix(subject: Subject) -> Finding:
    """Change a row of each matrix: the source, target and logit of its token must change."""
    model = subject.model
    stacks = {id(p) for stack in (model.encoder, model.decoder) for p in stack.parameters()}
    outside = {p.data_ptr(): p for p in model.parameters() if id(p) not in stacks}
    d_model = model.config.d_model
    shapes = {(n, d_model) for n in (model.vocab_size, model.embedding.num_embeddings)}
    moved = [_moved_by(model, p) for p in outside.values() if p.shape in shapes]
    bias = any(_makes_bias(model, parameter) for parameter in outside.values())
    shared = moved == [["source", "target", "logits"]]
    if shared and not bias:
        return Finding.both("one storage: a row moves source, target and logit; no bias", True)
    uses = "; ".join(" and ".join(names) or "nothing" for names in moved)
    remark = "; logits with a bias" if bias else ""
    return Finding(f"{len(moved)} matrices of V x d_model, moving: {uses}{remark}", shared, False)


def _moved_by(model: Transformer, matrix: nn.Parameter) -> list[str]:
    """Find which of the three uses of a token change with its row of a matrix."""
    token = FIRST_WORD + 1
    sentence, context = torch.tensor([[token]]), torch.tensor([[FIRST_WORD]])
    mask = model.source_mask(context)

    def uses() -> list[Tensor]:
        return [
            model.encode(sentence, mask),
            model.decode(sentence, model.encode(context, mask), mask),
            model.project(torch.ones(1, model.config.d_model))[:, token],
        ]

    with mode(model, training=False):
        before = uses()
        with _changed(matrix, token):
            after = uses()
    names = ("source", "target", "logits")
    return [n for n, a, b in zip(names, before, after, strict=True) if not torch.equal(a, b)]


def _makes_bias(model: Transformer, parameter: nn.Parameter) -> bool:
    """Return whether the logits of a zero state depend on a parameter."""
    with mode(model, training=False), _changed(parameter, slice(None)):
        return bool(model.project(torch.zeros(1, model.config.d_model)).any())


@contextmanager
def _changed(parameter: nn.Parameter, rows: int | slice) -> Iterator[None]:
    """Change rows of a parameter within the context; needs no_grad."""
    before = parameter[rows].clone()
    parameter[rows] += torch.linspace(0.5, 1.0, before.size(-1))
    yield
    parameter[rows] = before


@detail(
    "decoder's start (3.1)",
    paper="outputs shifted right by one",
    tensor2tensor="a zero vector first; </s> closes both sides",
)
def decoder_start(subject: Subject) -> Finding:
    """Subtract the encoding of position 0 from the embedded start symbol."""
    model = subject.model
    with mode(model, training=False):
        embedded = model.embed(torch.tensor([[model.start_id]]), is_target=True)[0, 0]
        start = embedded - _position_vectors(model)[0]
        row = _scale(model, 1) * model.target_embedding.weight[model.start_id]
        zero = torch.allclose(start, torch.zeros_like(start), atol=1e-4)
        symbol = torch.allclose(start, row, atol=1e-4)
    name = "a zero vector" if zero else "the embedding of <s>" if symbol else "something else"
    order = "outputs shifted right by one, </s> last on both sides"  # of any model: `collate`
    return Finding(f"{name}; {order}", symbol, zero)
