"""Sections 5.3 and 5.4: loss, Adam and learning rate, measured in updates of the trainer."""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from seq2seq.batches import Batching
from seq2seq.device import Compute
from seq2seq.fidelity.detail import Finding, Subject, detail
from seq2seq.fidelity.trace import synthetic_corpus
from seq2seq.model_folder import new_transformer
from seq2seq.sizes import TransformerConfig
from seq2seq.train import StepMetrics
from seq2seq.trainer import Trainer

# Less than d_model, so that the gradient at the logits follows from that at the decoder's states.
_VOCAB_SIZE = 11
_MAX_MICRO_BATCHES = 8


class Rehearsal:
    """The subject's training on random pairs, with a small model of its width in float64.

    A large `gain`, a factor on the shared matrix, gives large gradients, a small one flat
    distributions.
    """

    def __init__(self, subject: Subject, *, gain: float = 1.0) -> None:
        d_model = subject.model.config.d_model
        config = TransformerConfig(
            num_layers=1, d_model=d_model, d_ff=16, num_heads=1, d_k=8, d_v=8
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.model = new_transformer(config, _VOCAB_SIZE).double()
        with torch.no_grad():
            self.model.embedding.weight.mul_(gain)
        corpus = synthetic_corpus(400, mean_length=8, vocab_size=_VOCAB_SIZE)
        batching = Batching(corpus, source_tokens=96, target_tokens=96, seed=1)
        count = min(subject.training.micro_batches(), _MAX_MICRO_BATCHES)
        self.micro_batches = batching.epoch(0)[:count]
        self.trainer = Trainer(self.model, batching, subject.training, compute=Compute(), seed=1)
        self.gradients: dict[int, Tensor] = {}
        """The gradient of each parameter, summed over all micro-batches."""
        self.at_states: list[tuple[Tensor, Tensor]] = []
        """The decoder's states of each micro-batch and the gradient there, both (B, T, D)."""
        # A hook that refers to its own tensor, even through other objects, keeps it for ever.
        for number, parameter in enumerate(self.model.parameters()):
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                partial(_keep_gradient, self.gradients, number)
            )
        self.trainer.forms.model.decoder.register_forward_hook(self._keep_states)

    def update(self, step: int) -> StepMetrics:
        """Do one update of the trainer with this step number."""
        self.at_states.clear()
        self.trainer.progress.step = step - 1
        with torch.random.fork_rng(devices=[]):
            return self.trainer.update(self.micro_batches)

    def _keep_states(self, module: nn.Module, inputs: object, states: Tensor) -> None:
        kept, detached = self.at_states, states.detach()
        states.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: kept.append((detached, gradient))
        )


def _keep_gradient(gradients: dict[int, Tensor], number: int, parameter: Tensor) -> None:
    assert parameter.grad is not None
    gradients[number] = parameter.grad.clone()


@dataclass(frozen=True)
class _Targets:
    """The target distributions of one update, recovered from its gradient."""

    distributions: Tensor
    """(tokens, V), a row for each target token."""
    divisor: float
    """Of the summed loss."""
    loss: float
    """The summed cross-entropy between these distributions and the model's."""
    metrics: StepMetrics
    micro_batches: int


def _targets(subject: Subject) -> _Targets:
    """Recover the target distributions: softmax minus the gradient at the logits."""
    # Flat distributions, so that the reference token has the lowest gradient.
    rehearsal = Rehearsal(subject, gain=0.1)
    matrix = rehearsal.model.embedding.weight.detach().clone()  # (V, D)
    metrics = rehearsal.update(1)
    states, at_states = (
        torch.cat([tensor.flatten(0, 1) for tensor in tensors])
        for tensors in zip(*rehearsal.at_states, strict=True)
    )
    counts = at_states.any(dim=1)  # padding has no gradient
    p = (states[counts] @ matrix.T).softmax(dim=1)
    # The gradient at the states is that at the logits times the matrix.
    g = torch.linalg.lstsq(matrix.T, at_states[counts].T).solution.T
    # All targets but the reference are equal, so gradient = (p - target) / divisor is linear in p,
    # with slope 1 / divisor.
    others = torch.ones_like(p, dtype=torch.bool).scatter_(1, g.argmin(dim=1, keepdim=True), False)
    x, y = (z[others].view(len(z), -1) for z in (p, g))
    x, y = x - x.mean(dim=1, keepdim=True), y - y.mean(dim=1, keepdim=True)
    divisor = 1.0 / float((x * y).sum() / (x * x).sum())
    distributions = p - g * divisor
    loss = float(-(distributions * p.log()).sum())
    return _Targets(distributions, divisor, loss, metrics, len(rehearsal.micro_batches))


@detail(
    "label smoothing (5.4)",
    paper="eps = 0.1, as Szegedy et al. (2016): eps / V to each of the V tokens",
    tensor2tensor="reference 1 - eps, each other token eps / (V - 1); padding nothing",
)
def label_smoothing(subject: Subject) -> Finding:
    """Recover the target distribution from the gradient in the trainer."""
    found = _targets(subject).distributions
    reference, others = found.amax(dim=1), found.sort(dim=1).values[:, :-1]
    mass, other = float(reference.mean()), float(others.mean())
    even = bool((others - other).abs().max() < 1e-6 and (reference - mass).abs().max() < 1e-6)
    shares = {"V": 0.1 / _VOCAB_SIZE, "(V - 1)": 0.1 / (_VOCAB_SIZE - 1)}
    spread = [name for name, share in shares.items() if even and _close(other, share)]
    shown = "".join(f"eps / {name} = " for name in spread)
    return Finding(
        f"reference {mass:.4f}, others {shown}{other:.4f} each (V = {_VOCAB_SIZE}), total"
        f" {float(found.sum(dim=1).mean()):.4f}",
        paper="V" in spread and _close(mass, 0.9 + shares["V"]),
        tensor2tensor="(V - 1)" in spread and _close(mass, 0.9),
    )


@detail(
    "the loss is divided by",
    paper=None,
    tensor2tensor="target tokens without padding, over all devices",
)
def loss_normalization(subject: Subject) -> Finding:
    """Recover the divisor of the summed loss, and compare it and the metrics with the tokens."""
    targets = _targets(subject)
    tokens, metrics = len(targets.distributions), targets.metrics
    divided = _close(targets.divisor, tokens) and metrics.target_tokens == tokens
    right = divided and _close(metrics.smoothed, targets.loss)
    count = targets.micro_batches
    return Finding.both(
        f"{targets.divisor:.2f} for {tokens} target tokens without padding, in {count}"
        f" micro-batch{'es' if count > 1 else ''}",
        right,
    )


@detail("Adam (5.3)", paper="0.9, 0.98, 1e-9", tensor2tensor="the same, no clipping, no decay")
def adam(subject: Subject) -> Finding:
    """Compare two updates with the algorithm."""
    # Large gradients, which clipping would change.
    rehearsal = Rehearsal(subject, gain=4.0)
    parameters = list(rehearsal.model.parameters())
    weights, gradients, rates = [parameters_to_vector(parameters).detach()], [], []
    for step in (1, 2):
        rates.append(rehearsal.update(step).learning_rate)
        found = [rehearsal.gradients[number] for number in range(len(parameters))]
        gradients.append(parameters_to_vector(found))
        weights.append(parameters_to_vector(parameters).detach())
    error = _distance_from_adam(weights, gradients, rates)
    right, norm = error < 1e-4, float(gradients[0].norm())
    rule = "0.9, 0.98, 1e-9, no clipping, no decay" if right else "another rule"
    return Finding.both(
        f"{rule}: two updates are those computed by hand {'to' if right else 'but for'} {error:.0e}"
        f" of the rate, at a gradient's norm of {norm:.3g}",
        right,
    )


def _distance_from_adam(
    weights: list[Tensor], gradients: list[Tensor], rates: list[float]
) -> float:
    """Return the largest deviation from Adam (Kingma and Ba 2015), in learning rates."""
    expected, *found = weights
    first, second = torch.zeros_like(expected), torch.zeros_like(expected)
    error = 0.0
    for step, (after, gradient, rate) in enumerate(
        zip(found, gradients, rates, strict=True), start=1
    ):
        first = 0.9 * first + 0.1 * gradient
        second = 0.98 * second + 0.02 * gradient.square()
        corrected = (second / (1.0 - 0.98**step)).sqrt() + 1e-9
        expected = expected - rate * first / (1.0 - 0.9**step) / corrected
        error = max(error, float((expected - after).abs().max()) / rate)
    return error


@detail(
    "learning rate (5.3)",
    paper="d^-1/2 min(step^-1/2, step 4000^-3/2)",
    tensor2tensor="the same",
)
def learning_rates(subject: Subject) -> Finding:
    """Do the updates 1, 4000 and 100000 of the trainer."""
    rehearsal, d_model = Rehearsal(subject), subject.model.config.d_model
    right, shown = True, []
    for step in (1, 4000, 100_000):
        recorded = rehearsal.update(step).learning_rate
        used = [float(group["lr"]) for group in rehearsal.trainer.optimizer.param_groups]
        expected = d_model**-0.5 * min(step**-0.5, step * 4000**-1.5)
        right = right and all(_close(rate, expected) for rate in (recorded, *used))
        shown.append(f"{', '.join(f'{rate:.3g}' for rate in used)} (step {step:,})")
    return Finding.both(", ".join(shown), right)


def _close(found: float, expected: float) -> bool:
    return math.isclose(found, expected, rel_tol=1e-5)
