"""The details of the model (sections 3 and 5.4), found by running it."""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.fidelity.subject import Finding, Subject
from seq2seq.fidelity.training import is_shifted
from seq2seq.model import Memory, Transformer
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.embedding import Embedding
from seq2seq.model.layers import DecoderLayer, EncoderLayer, FeedForward

_FIRST_WORD = 4  # after the control symbols
_SENTENCES, _LENGTH = 2, 24
_POSITIONS = (0, 1, 2, 10, 100)


@dataclass(frozen=True)
class Event:
    """A module that ran."""

    module: nn.Module
    inputs: tuple[Any, ...]
    output: Tensor


@dataclass(frozen=True)
class Trace:
    """One stack at work on made-up sentences."""

    token_ids: Tensor
    """(B, T)."""
    events: list[Event]
    """Embedding, sublayers, norms and layers in the order in which they ended."""
    result: Tensor
    """What the stack returned, (B, T, D)."""

    @property
    def embedded(self) -> Tensor:
        """The first layer's input, (B, T, D)."""
        return next(event.output for event in self.events if isinstance(event.module, Embedding))


@contextmanager
def _mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    before = model.training
    model.train(training)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        yield
    model.train(before)


def trace(model: Transformer, *, training: bool) -> tuple[Trace, Trace]:
    """Run encoder and decoder and note what happens inside."""
    events: list[Event] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        events.append(Event(module, inputs, output))

    kinds = (Embedding, MultiHeadAttention, FeedForward, nn.LayerNorm, EncoderLayer, DecoderLayer)
    hooks = [
        module.register_forward_hook(note)
        for module in model.modules()
        if isinstance(module, kinds)
    ]
    with _mode(model, training=training):
        source, target_input = _token_ids(model), _token_ids(model)
        target_input[:, 0] = model.start_id
        memory = model.encode(source)
        encoder = Trace(source, list(events), memory.states)
        events.clear()
        decoder = Trace(target_input, events, model.decode(target_input, memory))
    for hook in hooks:
        hook.remove()
    return encoder, decoder


def _token_ids(model: Transformer) -> Tensor:
    return torch.randint(_FIRST_WORD, model.vocab_size, (_SENTENCES, _LENGTH))


def residual_norm_dropout(subject: Subject) -> Finding:
    """Row 1: each norm's input is x + Dropout(Sublayer(x)), x being the output of the last norm."""
    try:
        rates = measured_dropout(subject.model)
    except OddModelError as odd:
        return Finding(str(odd), False, False)
    if len(rates) > 1:
        return Finding(f"dropout at unequal rates: {_numbers(rates)}", False, False)
    norms = sum(isinstance(module, nn.LayerNorm) for module in subject.model.modules())
    return Finding(
        f"LayerNorm(x + Dropout(Sublayer(x))) at {norms} of {norms} norms, each giving mean 0 and"
        f" variance 1; dropout {_numbers(rates)} on both sums of embedding and position",
        True,
        True,
    )


class OddModelError(Exception):
    """The model is not made as in Figure 1."""


def measured_dropout(model: Transformer) -> list[float]:
    """The rates that are found on sublayers and embeddings; one, if all is well.

    Raises:
        OddModelError: a stack isn't made of LayerNorm(x + Dropout(Sublayer(x))).
    """
    rates = set()
    for stack, quiet in zip(trace(model, training=True), trace(model, training=False), strict=True):
        for added, whole in [(stack.embedded, quiet.embedded), *_sums(stack)]:
            rates.add(round(_dropout_rate(added, whole), 3))
    return sorted(rates)


def _sums(stack: Trace) -> Iterator[tuple[Tensor, Tensor]]:
    """For each norm what was added to its residual, and the sublayer's output."""
    x = stack.embedded
    sublayer: Event | None = None
    layers_to_go = sum(_is_layer(event) for event in stack.events)
    for event in stack.events:
        if isinstance(event.module, nn.LayerNorm):
            if sublayer is None:
                raise OddModelError(
                    "a norm stands before its sublayer: x + Sublayer(LayerNorm(x)), Pre-LN"
                )
            _check_normalised(event)
            yield event.inputs[0] - x, sublayer.output
            x, sublayer = event.output, None
        elif isinstance(event.module, MultiHeadAttention | FeedForward):
            if not torch.equal(event.inputs[0], x):
                raise OddModelError(
                    "a sublayer reads something else than the output of the norm before it"
                )
            sublayer = event
        elif _is_layer(event):
            if not torch.equal(event.output, x):
                raise OddModelError("a layer does not end with a norm")
            layers_to_go -= 1
            if not layers_to_go:
                return


def _is_layer(event: Event) -> bool:
    return isinstance(event.module, EncoderLayer | DecoderLayer)


def _check_normalised(event: Event) -> None:
    norm = event.module
    assert isinstance(norm, nn.LayerNorm)
    gain = norm.weight.double()
    plain = ((event.output.double() - norm.bias.double()) / gain)[..., gain.abs() > 1e-3]
    if len(gain) == plain.size(-1) and (
        plain.mean(-1).abs().max() > 1e-3 or (plain.var(-1, correction=0) - 1).abs().max() > 1e-2
    ):
        raise OddModelError("a norm's output has not mean 0 and variance 1")


def _dropout_rate(added: Tensor, whole: Tensor) -> float:
    """From the factor on what was kept; the share of zeros must agree with it."""
    large = whole.abs() > 1e-2 * whole.abs().max()
    ratio = (added[large] / whole[large]).double()
    kept = ratio[ratio.abs() > 0.5]
    factor = kept.median().item() if len(kept) else 1.0
    rate, zeros = 1.0 - 1.0 / factor, 1.0 - len(kept) / len(ratio)
    strays = (kept - factor).abs().max() if len(kept) else torch.tensor(1.0)
    if strays > 2e-2 * factor or abs(rate - zeros) > 0.04 or not -1e-3 < rate < 1:
        raise OddModelError("a norm's input is not x + Dropout(Sublayer(x))")
    return abs(rate)


def norm_after_the_last_layer(subject: Subject) -> Finding:
    """Row 2: a stack returns what its last layer returns, the very numbers."""
    for name, stack in zip(
        ("encoder", "decoder"), trace(subject.model, training=False), strict=True
    ):
        last = max(i for i, event in enumerate(stack.events) if _is_layer(event))
        if any(isinstance(event.module, nn.LayerNorm) for event in stack.events[last + 1 :]):
            return Finding(f"the {name} has a norm after its last layer", False, False)
        if not torch.equal(stack.events[last].output, stack.result):
            return Finding(f"the {name} changes its last layer's output", False, False)
    return Finding("none: both stacks return their last layer's output", True, True)


def inner_dropout(subject: Subject) -> Finding:
    """Row 3: in training a sublayer gives the same output as in evaluation."""
    random = set()
    for stack in trace(subject.model, training=True):
        for event in stack.events:
            if isinstance(event.module, MultiHeadAttention | FeedForward):
                with _mode(event.module, training=False):
                    if not torch.allclose(event.module(*event.inputs), event.output, atol=1e-5):
                        attention = isinstance(event.module, MultiHeadAttention)
                        random.add("attention weights" if attention else "ReLU")
    if random:
        return Finding(f"dropout on {' and '.join(sorted(random))}", False, False)
    return Finding("none: sublayers give the same in training as in evaluation", True, True)


def norm_epsilon(subject: Subject) -> Finding:
    """Row 4: epsilon = variance / (variance of the output) - variance, where both are tiny."""
    norms = [module for module in subject.model.modules() if isinstance(module, nn.LayerNorm)]
    found = sorted({_epsilon(norm) for norm in norms})
    values = _numbers([value for value, _ in found])
    odd = {remark for _, remark in found if remark}
    same = len(found) == 1 and not odd and math.isclose(found[0][0], 1e-6, rel_tol=1e-3)
    remark = ", ".join(sorted(odd)) or "inside the root, biased variance"
    return Finding(f"{values}, {remark}", None, same)


def _epsilon(norm: nn.LayerNorm) -> tuple[float, str]:
    plain = copy.deepcopy(norm).double()
    with torch.no_grad():
        nn.init.ones_(plain.weight)
        nn.init.zeros_(plain.bias)
        x = torch.linspace(-1.0, 1.0, plain.weight.numel(), dtype=torch.float64)
        x /= x.std(correction=0)

        def variance_of_output(variance: float) -> float:
            return float(plain(x * math.sqrt(variance)).var(correction=0))

        small, smaller = (v / variance_of_output(v) - v for v in (1e-5, 1e-7))
        biased = abs(variance_of_output(1e6) - 1.0) < 1e-6
    inside = math.isclose(small, smaller, rel_tol=1e-3)
    remarks = ["" if inside else "not inside the root", "" if biased else "unbiased variance"]
    return float(f"{smaller:.3g}"), ", ".join(filter(None, remarks))


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
    with _mode(model, training=False):
        embedded: Tensor = model.embedding(torch.tensor([[_FIRST_WORD]]), position)[0, 0]
        return embedded - scale * model.embedding.weight[_FIRST_WORD]


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
    with _mode(model, training=False):
        short, target = _token_ids(model)[:, :5], _token_ids(model)
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
    token = _FIRST_WORD + 1
    sentence = torch.tensor([[token]])
    states = torch.ones(1, model.config.d_model)

    def uses() -> list[Tensor]:
        memory = model.encode(torch.tensor([[_FIRST_WORD]]))
        return [
            model.encode(sentence).states,
            model.decode(sentence, memory),
            model.project(states)[:, token],
        ]

    with _mode(model, training=False):
        before, row = uses(), matrix[token].clone()
        matrix[token] += torch.linspace(0.0, 1.0, len(row))
        after = uses()
        matrix[token] = row
    names = ("source", "target", "logits")
    return [n for n, a, b in zip(names, before, after, strict=True) if not torch.equal(a, b)]


def attention_biases(subject: Subject) -> Finding:
    """Row 9: without biases a vector of zeros stays one."""
    biased = []
    for module in _attentions(subject.model):
        with _mode(module, training=False):
            zeros = torch.zeros(1, 1, subject.model.config.d_model)
            vectors = sum(p.dim() == 1 for p in module.parameters())
            biased.append(bool(vectors) or bool(module(zeros, None, None).any()))
    if all(biased):
        return Finding(f"biases in all {len(biased)} attentions", False, True)
    if any(biased):
        return Finding(f"biases in {sum(biased)} of {len(biased)} attentions", False, False)
    return Finding(f"none in {len(biased)} attentions", True, False)


def attention_formula(subject: Subject) -> Finding:
    """Row 10: every attention against the formula, head by head in float64, with a mask."""
    model = subject.model
    width = model.config.key_width
    scales = {
        f"1/sqrt(d_k) = {width**-0.5:.4g}": width**-0.5,
        "no scale": 1.0,
        "1/d_k": 1.0 / width,
        "1/sqrt(d_model)": model.config.d_model**-0.5,
    }
    found = {
        next((name for name, scale in scales.items() if _attends(module, scale)), "another formula")
        for module in _attentions(model)
    }
    right = found == set(list(scales)[:1])
    causal = _looks_only_back(model)
    return Finding(
        f"softmax(QK^T scaled)V, {', '.join(sorted(found))}; masked keys weigh 0;"
        f" targets see {'only what is before' if causal else 'what is to come'}",
        right and causal,
        right and causal,
    )


def _attentions(model: Transformer) -> list[MultiHeadAttention]:
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


def _attends(module: MultiHeadAttention, scale: float) -> bool:
    """Whether it computes Concat(head_1, ..., head_h) W^O with this factor on Q K^T."""
    exact = copy.deepcopy(module).double()
    with _mode(exact, training=False):
        size = exact.projection.in_features
        x, memory = torch.randn(3, size).double(), torch.randn(4, size).double()
        seen = torch.tensor([True, True, False, True])
        weight, bias = exact.projection.weight, exact.projection.bias
        sizes = [exact.query_size, exact.query_size, exact.value_size]
        matrices = torch.split(weight, sizes)
        biases = torch.split(torch.zeros(len(weight)).double() if bias is None else bias, sizes)
        query, key, value = (
            (y @ matrix.T + b).chunk(exact.num_heads, dim=1)
            for y, matrix, b in zip((x, memory, memory), matrices, biases, strict=True)
        )
        heads = []
        for q, k, v in zip(query, key, value, strict=True):
            scores = (q @ k.T * scale).masked_fill(~seen, -math.inf)
            heads.append(scores.softmax(dim=1) @ v)
        wanted = torch.cat(heads, dim=1) @ exact.output.weight.T
        if exact.output.bias is not None:
            wanted = wanted + exact.output.bias
        return torch.allclose(exact(x[None], memory[None], seen[None, None, None])[0], wanted)


def _looks_only_back(model: Transformer) -> bool:
    with _mode(model, training=False):
        memory: Memory = model.encode(_token_ids(model))
        one, other = _token_ids(model), _token_ids(model)
        half = _LENGTH // 2
        other[:, :half] = one[:, :half]
        first, second = model.decode(one, memory)[:, :half], model.decode(other, memory)[:, :half]
        return torch.allclose(first, second, atol=1e-5)


def feed_forward_formula(subject: Subject) -> Finding:
    """Row 11: every feed-forward sublayer against the formula, in float64."""
    errors = []
    for module in subject.model.modules():
        if isinstance(module, FeedForward):
            exact = copy.deepcopy(module).double()
            with _mode(exact, training=False):
                x = torch.randn(3, exact.inner.in_features).double()
                inner = (x @ exact.inner.weight.T + exact.inner.bias).clamp(min=0)
                wanted = inner @ exact.outer.weight.T + exact.outer.bias
                errors.append(float((exact(x[None])[0] - wanted).abs().max()))
    right = bool(errors) and max(errors) < 1e-9
    return Finding(
        f"max(0, xW1 + b1)W2 + b2, in {len(errors)} of {len(errors)} to {max(errors):.0e}"
        if right
        else "another formula",
        right,
        right,
    )


def initialisation(subject: Subject) -> Finding:
    """Row 12: bounds and deviations of a model before its first update."""
    model, odd = subject.fresh, set[str]()
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            sizes = [module.query_size, module.query_size, module.value_size]
            for matrix in (*torch.split(module.projection.weight, sizes), module.output.weight):
                if not _is_glorot_uniform(matrix):
                    odd.add("attention")
        elif isinstance(module, FeedForward):
            if not all(map(_is_glorot_uniform, (module.inner.weight, module.outer.weight))):
                odd.add("feed-forward")
        elif isinstance(module, nn.LayerNorm):
            if not (bool((module.weight == 1).all()) and not module.bias.any()):
                odd.add("norms")
        elif isinstance(module, nn.Linear) and module.bias is not None and module.bias.any():
            odd.add("biases")
    deviation = float(model.embedding.weight.detach().std())
    if not math.isclose(deviation, model.config.d_model**-0.5, rel_tol=0.03):
        odd.add("embeddings")
    remark = f"otherwise: {', '.join(sorted(odd))}" if odd else "all as the code"
    return Finding(
        f"{remark}; embeddings' deviation {deviation:.4g}, d_model^-1/2 ="
        f" {model.config.d_model**-0.5:.4g}",
        None,
        not odd,
    )


def _is_glorot_uniform(matrix: Tensor) -> bool:
    bound = math.sqrt(6.0 / sum(matrix.shape))
    # A uniform distribution's fourth moment is 9/5 of its squared variance, a normal one's three.
    matrix = matrix.detach()
    variance, fourth = float(matrix.square().mean()), float(matrix.pow(4).mean())
    slack = 6.0 / math.sqrt(matrix.numel())
    return (
        float(matrix.abs().max()) <= bound * 1.0001
        and math.isclose(variance, bound**2 / 3.0, rel_tol=slack)
        and math.isclose(fourth / variance**2, 1.8, rel_tol=2 * slack)
    )


def decoder_start(subject: Subject) -> Finding:
    """Row 8: what the embedding makes of the symbol before the first token."""
    model = subject.model
    with _mode(model, training=False):
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


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
