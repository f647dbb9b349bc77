"""Cross-entropy with label smoothing (section 5.4).

The target distribution gives the reference token 1 - eps and each of the other V - 1 tokens
eps / (V - 1), as in tensor2tensor (Szegedy et al. and PyTorch spread eps over all V).
"""

from typing import NamedTuple

from torch import Tensor, nn

from seq2seq.data.batching import Batch
from seq2seq.fast.joined import JoinedBatch, joined_states
from seq2seq.fast.loss import projected_loss
from seq2seq.fast.rows import token_states
from seq2seq.model import Transformer


class Loss(NamedTuple):
    """Sums over the target tokens that are not padding, in nats."""

    smoothed: Tensor
    """The loss that training minimizes; gradients flow through this one alone."""
    cross_entropy: Tensor
    """The loss without smoothing; the exponential of its mean is the perplexity."""


def label_smoothed_loss(
    logits: Tensor, target_output: Tensor, *, smoothing: float, padding_id: int
) -> Loss:
    """The loss of logits (..., V) and target_output (...); `projected_loss` is the fast form."""
    log_probabilities = logits.log_softmax(dim=-1)
    gold = log_probabilities.gather(-1, target_output.unsqueeze(-1)).squeeze(-1)
    others = log_probabilities.sum(dim=-1) - gold
    smoothed = -(1.0 - smoothing) * gold - smoothing / (logits.size(-1) - 1) * others
    counts = target_output != padding_id
    return Loss(smoothed[counts].sum(), -gold[counts].sum())


class BatchLoss(nn.Module):
    """The loss of a batch as a module, as DistributedDataParallel needs it."""

    def __init__(
        self, model: Transformer, smoothing: float, *, chunked: bool, rows: bool = False
    ) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.chunked = chunked
        self.rows = rows

    def forward(self, batch: Batch | JoinedBatch) -> Loss:
        """Compute the sums over the batch's target tokens."""
        model = self.model
        if not self.chunked:
            return label_smoothed_loss(
                model(batch.source, batch.target_input),
                batch.target_output,
                smoothing=self.smoothing,
                padding_id=model.padding_id,
            )
        # Padding is skipped before the projection: states (N, D) and targets (N,) of the tokens.
        if self.rows and isinstance(batch, Batch):
            states, targets = token_states(model, batch)
        else:
            if isinstance(batch, JoinedBatch):
                states, rows = joined_states(model, batch), batch.target_rows
            else:
                states = model.decoder_states(batch.source, batch.target_input)
                rows = (batch.target_output != model.padding_id).flatten().nonzero().squeeze(1)
            states = states.flatten(0, -2).index_select(0, rows)
            targets = batch.target_output.flatten().index_select(0, rows)
        sums = projected_loss(
            states, model.output_matrix, targets, smoothing=self.smoothing, bias=model.output_bias
        )
        return Loss(*sums)
