"""How a step is computed: plainly, as the paper says it. `seq2seq/fast` has faster forms of it."""

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from seq2seq.data.batching import Batching
from seq2seq.data.encoded import Rows
from seq2seq.device import Compute
from seq2seq.model import Transformer
from seq2seq.training.loss import Loss, label_smoothed_loss


class Forms:
    """The model and its loss, of one padded micro-batch after the other."""

    compiled = False
    """Whether layers are compiled, which changes dropout's masks."""
    joins = False
    """Whether all micro-batches of a process are computed at once, if they fit into memory."""

    def prepare(self, model: Transformer, batching: Batching, compute: Compute) -> None:
        """Make what is trained: a twin of the model, in training mode, that shares its parameters.

        The model itself stays as it is, to be validated and saved.
        """
        model.eval()
        self.batching, self.compute = batching, compute
        shared = {id(parameter): parameter for parameter in model.parameters()}
        self.model = copy.deepcopy(model, shared).train()
        self.dropouts = {m: m.p for m in self.model.modules() if isinstance(m, nn.Dropout)}
        """The modules of dropout, and their rates after the warm-up of dropout."""

    def reserve(self, most_tokens: tuple[int, int]) -> None:
        """Prepare for batches of at most as many source and target tokens."""

    def set_dropout(self, share: Tensor) -> None:
        """Set all dropout to this share of its rates, ()."""
        for dropout, full_rate in self.dropouts.items():
            dropout.p = share.item() * full_rate

    def collate(self, pairs: Rows) -> Any:
        """Make a batch on the host."""
        return self.batching.collate(pairs)

    def loss(self, batch: Any, smoothing: float) -> Loss:
        """Compute the sums over the batch's target tokens."""
        return label_smoothed_loss(
            self.model(batch.source, batch.target_input),
            batch.target_output,
            smoothing=smoothing,
            padding_id=self.model.padding_id,
        )

    def run(self, key: str, function: Callable[..., None], *batch: Any) -> None:
        """Call a function, with a batch or without one, on the device.

        Functions of one key start the same work.
        """
        function(*(x.to(self.compute.device) for x in batch))
