"""Positions, scale, the shared matrix and the start (rows 5 to 8; 3.4 and 3.5), by running them."""

import math

import torch
from torch import Tensor, nn

from seq2seq.model import Transformer
from seq2seq.reproduction.subject import Finding, Subject
from seq2seq.reproduction.synthetic import FIRST_WORD
from seq2seq.reproduction.trace import mode, random_tokens, trace
from seq2seq.reproduction.training import is_shifted

_POSITIONS = (0, 1, 2, 10, 100)


def positions(subject: Subject) -> Finding:
    """Row 5: what the embedding adds to a token's vector at some positions."""
    model = subject.model
    size = model.config.d_model
    scale = _scale(model)
    found = {p: _position_vector(model, p, scale) for p in _POSITIONS}
    half = size // 2
    interleaved = {
        p: [
            math.cos(p / 10000 ** ((j - 1) / size)) if j % 2 else math.sin(p / 10000 ** (j / size))
            for j in range(size)
        ]
        for p in _POSITIONS
    }
    rates = [math.exp(-i * math.log(10000) / max(half - 1, 1)) for i in range(half)]
    concatenated = {
        p: [math.sin(p * rate) for rate in rates] + [math.cos(p * rate) for rate in rates]
        for p in _POSITIONS
    }
    paper, authors = (_near(found, table) for table in (interleaved, concatenated))
    shown = ", ".join(f"PE(10, {i}) = {found[10][i]:.4f}" for i in (0, 1, 2))
    layout = "interleaved" if paper else "concatenated" if authors else "no sinusoids"
    return Finding(f"{layout}: {shown}", paper, authors)


def _position_vector(model: Transformer, position: int, scale: float) -> Tensor:
    """What is left of an embedded token, (D,), without the token."""
    with mode(model, training=False):
        embedded: Tensor = model.embedding(torch.tensor([[FIRST_WORD]]), position)[0, 0]
        return embedded - scale * model.embedding.weight[FIRST_WORD]


def _near(found: dict[int, Tensor], table: dict[int, list[float]]) -> bool:
    return all(
        torch.allclose(found[p].double(), torch.tensor(table[p], dtype=torch.float64), atol=1e-4)
        for p in table
    )


def _scale(model: Transformer, stack: int = 0) -> float:
    """The factor between a difference of embedded tokens and that of their rows."""
    seen = trace(model, training=False)[stack]
    with torch.no_grad():
        rows = model.embedding.weight[seen.token_ids[:, 1:]]
        rows, embedded = rows[0] - rows[1], (seen.embedded[0] - seen.embedded[1])[1:]
        return float((rows * embedded).sum() / (rows * rows).sum())


def embedding_scale(subject: Subject) -> Finding:
    """Row 6: measured on tokens in both stacks; and nothing is read from pads."""
    model = subject.model
    wanted = math.sqrt(model.config.d_model)
    source, target = _scale(model, 0), _scale(model, 1)
    right = all(math.isclose(scale, wanted, rel_tol=1e-4) for scale in (source, target))
    sealed = _pads_are_sealed(model)
    pads = "pads reach no token" if sealed else "pads reach other tokens"
    return Finding(
        f"times {source:.4g} (source), {target:.4g} (target); sqrt(d_model) = {wanted:.4g}; {pads}",
        right and sealed,
        right and sealed,
    )


def _pads_are_sealed(model: Transformer) -> bool:
    with mode(model, training=False):
        short, target = random_tokens(model)[:, :5], random_tokens(model)
        padded = torch.cat((short, torch.full_like(short, model.padding_id)), dim=1)
        plain, longer = model.encode(short), model.encode(padded)
        same_memory = torch.allclose(plain.states, longer.states[:, :5], atol=1e-4)
        return same_memory and torch.allclose(
            model.decode(target, plain), model.decode(target, longer), atol=1e-4
        )


def shared_matrix(subject: Subject) -> Finding:
    """Row 7: moving one row of one matrix moves the source, the target and the logit of a token."""
    model = subject.model
    stacks = {id(p) for stack in (model.encoder, model.decoder) for p in stack.parameters()}
    shape = (model.vocab_size, model.config.d_model)
    matrices = {
        p.data_ptr(): p for p in model.parameters() if p.shape == shape and id(p) not in stacks
    }
    moved = [_moved_by(model, matrix) for matrix in matrices.values()]
    with torch.no_grad():
        bias = bool(model.project(torch.zeros(1, model.config.d_model)).any())
    if moved == [["source", "target", "logits"]] and not bias:
        return Finding("one storage: a row moves source, target and logit; no bias", True, True)
    parts = "; ".join(" and ".join(names) or "nothing" for names in moved)
    return Finding(
        f"{len(matrices)} matrices of V x d_model, moving: {parts}"
        + ("; logits with a bias" if bias else ""),
        moved == [["source", "target", "logits"]],
        False,
    )


def _moved_by(model: Transformer, matrix: nn.Parameter) -> list[str]:
    """Which of the three uses of a token follow its row of a matrix."""
    token = FIRST_WORD + 1
    sentence = torch.tensor([[token]])
    states = torch.ones(1, model.config.d_model)

    def uses() -> list[Tensor]:
        memory = model.encode(torch.tensor([[FIRST_WORD]]))
        return [
            model.encode(sentence).states,
            model.decode(sentence, memory),
            model.project(states)[:, token],
        ]

    with mode(model, training=False):
        before, row = uses(), matrix[token].clone()
        matrix[token] += torch.linspace(0.0, 1.0, len(row))
        after = uses()
        matrix[token] = row
    names = ("source", "target", "logits")
    return [n for n, a, b in zip(names, before, after, strict=True) if not torch.equal(a, b)]


def decoder_start(subject: Subject) -> Finding:
    """Row 8: what the embedding makes of the symbol before the first token."""
    model = subject.model
    with mode(model, training=False):
        embedded = model.embedding(torch.tensor([[model.start_id]]))[0, 0]
        scale = _scale(model)
        row = scale * model.embedding.weight[model.start_id]
        start = embedded - _position_vector(model, 0, scale)
        zero = torch.allclose(start, torch.zeros_like(start), atol=1e-4)
        symbol = torch.allclose(start, row, atol=1e-4)
    shifted = is_shifted(model.start_id)
    name = "a zero vector" if zero else "the embedding of <s>" if symbol else "something else"
    order = "outputs shifted right by one, </s> last on both sides"
    return Finding(
        f"{name}; {order}" if shifted else f"{name}; outputs not shifted",
        symbol and shifted,
        zero and shifted,
    )
