"""The loss of a batch as a module: the model, its projection and the loss, plain or fast."""

from torch import Tensor, nn

from seq2seq.data.batching import Batch
from seq2seq.kernels.compiled import LossAndGradient
from seq2seq.kernels.joined import JoinedBatch, joined_states
from seq2seq.kernels.loss import projected_loss
from seq2seq.model import Transformer
from seq2seq.training.loss import Loss, label_smoothed_loss


class BatchLoss(nn.Module):
    """The loss of a batch as a module, as DistributedDataParallel needs it."""

    def __init__(
        self,
        model: Transformer,
        smoothing: float,
        *,
        in_chunks: bool,
        of_chunk: LossAndGradient | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.in_chunks = in_chunks
        self.of_chunk = of_chunk

    def forward(self, batch: Batch | JoinedBatch) -> Loss:
        """Compute the sums over the batch's target tokens."""
        rows: Tensor | None = None
        if isinstance(batch, JoinedBatch):
            states, rows = joined_states(self.model, batch), batch.target_rows
        else:
            states = self.model.decoder_states(batch.source, batch.target_input)
        if self.in_chunks:
            smoothed, cross_entropy = projected_loss(
                states,
                self.model.output_matrix,
                batch.target_output,
                smoothing=self.smoothing,
                padding_id=self.model.padding_id,
                rows=rows,
                of_chunk=self.of_chunk,
                bias=self.model.output_bias,
            )
            return Loss(smoothed, cross_entropy)
        return label_smoothed_loss(
            self.model.project(states),
            batch.target_output,
            smoothing=self.smoothing,
            padding_id=self.model.padding_id,
        )
