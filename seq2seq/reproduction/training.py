"""The details of the training (section 5), found by letting the trainer do some updates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from seq2seq.data.batching import Batching
from seq2seq.data.tokenizer import END_ID, PADDING_ID
from seq2seq.reproduction.subject import Finding, Subject
from seq2seq.reproduction.synthetic import synthetic_corpus
from seq2seq.storage.checkpoint import new_transformer
from seq2seq.training.progress import Progress
from seq2seq.training.recorder import NullRecorder
from seq2seq.training.trainer import Trainer

# Fewer words than the model is wide: the gradient at the logits can then be told from that at the
# decoder's states.
_VOCAB_SIZE = 11


@dataclass
class _LastMetrics(NullRecorder):
    """Keeps what the trainer recorded last."""

    metrics: dict[str, float] = field(default_factory=dict)

    def record_metrics(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        self.metrics = dict(metrics)


class Rehearsal:
    """The trainer at work on one layer of the subject's width, in float64, on made-up pairs."""

    def __init__(self, subject: Subject, *, gain: float = 1.0) -> None:
        """The gain, on the shared matrix, makes gradients large or distributions flat."""
        config = replace(subject.model.config, num_layers=1, d_ff=16)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.model = new_transformer(config, _VOCAB_SIZE).double()
        with torch.no_grad():
            self.model.embedding.weight.mul_(gain)
        corpus = synthetic_corpus(400, mean_length=8, vocab_size=_VOCAB_SIZE)
        self.trainer = Trainer(
            self.model,
            Batching(corpus, source_tokens=96, target_tokens=96, seed=1),
            replace(subject.training, max_minutes=None, patience=None, checkpoint_steps=None),
            device=torch.device("cpu"),
            dtype=torch.float32,
            seed=1,
        )
        self.gradients: dict[nn.Parameter, Tensor] = {}
        """The sums over all micro-batches, as they came."""
        self.at_states: list[tuple[Tensor, Tensor]] = []
        """For each micro-batch the decoder's states and the loss' gradient there, (B, T, D)."""
        for parameter in self.model.parameters():
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                self._note_gradient
            )
        self.model.decoder[-1].register_forward_hook(self._note_states)

    def update(self, step: int) -> dict[str, float]:
        """Do the update of that number; what the trainer recorded of it."""
        recorder = _LastMetrics()
        self.at_states.clear()
        trainer = self.trainer
        trainer.config = replace(trainer.config, max_steps=step)
        trainer.progress.step = step - 1
        with torch.random.fork_rng(devices=[]):
            trainer.train(
                recorder,
                validate=lambda: {"valid/loss": 0.0, "valid/perplexity": 1.0, "valid/bleu": 0.0},
                save=lambda best: None,
            )
        return recorder.metrics

    def _note_gradient(self, parameter: Tensor) -> None:
        assert isinstance(parameter, nn.Parameter)
        assert parameter.grad is not None
        self.gradients[parameter] = parameter.grad.clone()

    def _note_states(self, module: nn.Module, inputs: object, states: Tensor) -> None:
        states.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: self.at_states.append((states.detach(), gradient))
        )


@dataclass(frozen=True)
class _Targets:
    """What the loss pulls the model's distributions to."""

    distributions: Tensor
    """(tokens, V)."""
    divisor: float
    """Of the summed loss."""
    tokens: int
    """Targets that are no padding."""
    figures: dict[str, float]
    """What the trainer recorded."""
    loss: float
    """The sum of the cross-entropies between these distributions and the model's."""


def _targets(subject: Subject) -> _Targets:
    """Softmax minus the gradient at the logits: the target distribution of every position."""
    # Far from any certainty, so that the reference token has the lowest gradient.
    rehearsal = Rehearsal(subject, gain=0.1)
    matrix = rehearsal.model.embedding.weight.detach().clone()  # (V, D)
    figures = rehearsal.update(1)
    softmax, gradient = [], []
    for states, at_states in rehearsal.at_states:
        counts = at_states.flatten(0, 1).any(dim=1)  # pads have no gradient
        rows = at_states.flatten(0, 1)[counts]
        # gradient at states = gradient at logits x matrix
        gradient.append(torch.linalg.lstsq(matrix.T, rows.T).solution.T)
        softmax.append((states.flatten(0, 1)[counts] @ matrix.T).softmax(dim=1))
    p, g = torch.cat(softmax), torch.cat(gradient)
    # Beside the reference token all targets are alike, so that gradient = (p - target) / divisor
    # is a straight line in p, whose slope is 1 / divisor.
    others = torch.ones_like(p, dtype=torch.bool).scatter_(1, g.argmin(dim=1, keepdim=True), False)
    x, y = (z[others].view(len(z), -1) for z in (p, g))
    x, y = x - x.mean(dim=1, keepdim=True), y - y.mean(dim=1, keepdim=True)
    divisor = 1.0 / float((x * y).sum() / (x * x).sum())
    distributions = p - g * divisor
    loss = float(-(distributions * p.log()).sum())
    return _Targets(distributions, divisor, len(p), figures, loss)


def label_smoothing(subject: Subject) -> Finding:
    """Row 13: the target distribution, recovered from the loss' gradient in the trainer."""
    found = _targets(subject).distributions
    reference = found.amax(dim=1)
    others = found.sort(dim=1).values[:, :-1]
    mass, other = float(reference.mean()), float(others.mean())
    even = bool((others - other).abs().max() < 1e-6 and (reference - mass).abs().max() < 1e-6)
    total = float(found.sum(dim=1).mean())
    as_code = even and _close(mass, 0.9) and _close(other, 0.1 / (_VOCAB_SIZE - 1))
    base = "V - 1" if _close((1.0 - mass) / max(other, 1e-12), _VOCAB_SIZE - 1) else "V"
    spread = f"eps / ({base}) = {other:.4f} each" if base != "V" else f"{other:.4f} each"
    return Finding(
        f"reference {mass:.4f}, others {spread} (V = {_VOCAB_SIZE}), total {total:.4f}",
        as_code,
        as_code,
    )


def loss_normalisation(subject: Subject) -> Finding:
    """Row 14: the factor on the summed loss, and whether pads are among what is counted."""
    targets = _targets(subject)
    parts = subject.training.micro_batches
    by_tokens = _close(targets.divisor, targets.tokens)
    recorded = _close(targets.figures["train/target_tokens"], targets.tokens)
    # The record may be less the smallest possible loss, the entropy of the targets.
    entropy = float(-torch.xlogy(targets.distributions, targets.distributions.clamp(0)).sum())
    shown = targets.figures["train/loss"] * targets.tokens
    less = not _close(shown, targets.loss) and _close(shown, targets.loss - entropy)
    right = by_tokens and recorded and (less or _close(shown, targets.loss))
    return Finding(
        f"{targets.divisor:.2f} for {targets.tokens} target tokens without pads, in {parts}"
        f" micro-batch{'es' if parts > 1 else ''}"
        + ("; shown less the targets' entropy" if less else ""),
        None,
        right,
    )


def adam(subject: Subject) -> Finding:
    """Row 15: the constants told by the first update, and two updates against the algorithm."""
    # Large gradients: clipping them would show.
    rehearsal = Rehearsal(subject, gain=4.0)
    parameters = list(rehearsal.model.parameters())
    weights = [p.detach().clone() for p in parameters]
    start = torch.cat([w.flatten() for w in weights])
    history = []
    for step in (1, 2):
        figures = rehearsal.update(step)
        gradient = torch.cat([rehearsal.gradients[p].flatten() for p in parameters])
        now = torch.cat([p.detach().flatten() for p in parameters])
        history.append((figures["train/learning_rate"], gradient, now))
        if step == 1:
            state = rehearsal.trainer.optimizer.state
            first = torch.cat([state[p]["exp_avg"].flatten() for p in parameters])
            second = torch.cat([state[p]["exp_avg_sq"].flatten() for p in parameters])
            large = gradient.abs() > 1e-6
            beta_1 = 1.0 - float((first / gradient)[large].median())
            beta_2 = 1.0 - float((second / gradient.square())[large].median())
            moved = (now - start).abs()
            seen = moved > 0
            # |moved| = rate |g| / (|g| + epsilon)
            epsilons = gradient.abs() * (figures["train/learning_rate"] / moved - 1.0)
            small = gradient.abs()[seen] < gradient.abs()[seen].quantile(0.1)
            epsilon = float(epsilons[seen][small].median())
    error = _distance_from_adam(start, history)
    norm = float(history[0][1].norm())
    right = error < 1e-4
    return Finding(
        f"{beta_1:.4g}, {beta_2:.4g}, {epsilon:.2g}; two updates as computed by hand"
        f" {'to' if right else 'but for'} {error:.0e} of the rate, at a gradient's norm of"
        f" {norm:.3g}: {'no clipping, no decay' if right else 'another rule'}",
        right,
        right,
    )


def _distance_from_adam(start: Tensor, history: list[tuple[float, Tensor, Tensor]]) -> float:
    """The largest deviation from the algorithm of Kingma and Ba (2015), in learning rates."""
    weights, first, second = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    error = 0.0
    for step, (rate, gradient, now) in enumerate(history, start=1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.98 * second + 0.02 * gradient.square()
        corrected = (second / (1.0 - 0.98**step)).sqrt() + 1e-9
        weights = weights - rate * first / (1.0 - 0.9**step) / corrected
        error = max(error, float((weights - now).abs().max()) / rate)
    return error


def learning_rates(subject: Subject) -> Finding:
    """Row 16: the rate with which the trainer does its updates 1, 4000 and 100000."""
    rehearsal, size = Rehearsal(subject), subject.model.config.d_model
    right, shown = True, []
    for step in (1, 4000, 100_000):
        figures = rehearsal.update(step)
        used = {float(group["lr"]) for group in rehearsal.trainer.optimizer.param_groups}
        wanted = size**-0.5 * min(step**-0.5, step * 4000**-1.5)
        right = right and all(_close(rate, wanted) for rate in used)
        right = right and _close(figures["train/learning_rate"], wanted)
        shown.append(f"{', '.join(f'{rate:.3g}' for rate in sorted(used))} (step {step:,})")
    return Finding(", ".join(shown), right, right)


def is_shifted(start_id: int) -> bool:
    """Whether a batch's targets are shifted right by one, and closed by `</s>` like its sources."""
    corpus = synthetic_corpus(6, mean_length=5, vocab_size=_VOCAB_SIZE)
    batching = Batching(corpus, source_tokens=400, target_tokens=400, seed=1)
    indices = batching.in_order()[0]
    batch = batching.collate(indices)
    for row, i in enumerate(indices.tolist()):
        source, target = corpus.source(i).tolist(), corpus.target(i).tolist()
        expected = [start_id, *target[:-1]]
        if source[-1] != END_ID or target[-1] != END_ID:
            return False
        for found, wanted in (
            (batch.source[row], source),
            (batch.target_input[row], expected),
            (batch.target_output[row], target),
        ):
            padding = [PADDING_ID] * (len(found) - len(wanted))
            if found.tolist() != wanted + padding:
                return False
    return True


def _close(found: float, wanted: float) -> bool:
    return math.isclose(found, wanted, rel_tol=1e-5)
