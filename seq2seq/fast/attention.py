"""Attention between the rows of a sentence by FlexAttention, which needs PyTorch's compiler.

Its tiles of 128 rows hold several short sentences.
"""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from seq2seq.fast.rows import PaddedMask, RowAttention, Side

_BLOCK = 128


class FlexLayout:
    """Rows attend within their sentence by FlexAttention."""

    def __init__(
        self, queries: Side, keys: Side, mask: PaddedMask, *, causal: bool = False
    ) -> None:
        query_sentence, key_sentence = _sentences(queries), _sentences(keys)  # (N,), (M,)

        def attends(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            same = query_sentence[query] == key_sentence[key]
            return same & (query >= key) if causal else same

        # The keys of a block of queries: from the first one's sentence to the last one's.
        rows, device = len(query_sentence), query_sentence.device
        firsts = torch.arange(0, rows, _BLOCK, device=device)  # (blocks,)
        lasts = (firsts + _BLOCK - 1).clamp(max=rows - 1)
        start = keys.starts[query_sentence[firsts]] // _BLOCK
        end = keys.starts[query_sentence[lasts] + 1]
        if causal:
            end = torch.minimum(end, lasts + 1)
        counts = (end - 1).div(_BLOCK, rounding_mode="floor") - start + 1
        blocks = torch.arange(-(-len(key_sentence) // _BLOCK), device=device)
        indices = (start.unsqueeze(1) + blocks).clamp(max=len(blocks) - 1)
        self.mask = BlockMask.from_kv_blocks(
            counts.clamp(min=0).int()[None, None],
            indices.int()[None, None],
            BLOCK_SIZE=_BLOCK,
            mask_mod=attends,
            seq_lengths=(rows, len(key_sentence)),
        )

    def attend(self, query: Tensor, key: Tensor, value: Tensor, module: RowAttention) -> Tensor:
        """See `Layout.attend`; weights are not dropped out."""
        attended = flex_attention(query, key, value, block_mask=self.mask)  # (1, H, N, d_v)
        assert isinstance(attended, Tensor)
        return attended


def _sentences(side: Side) -> Tensor:
    """Return the number of the sentence of each row: (N,)."""
    rows = torch.arange(len(side.positions), device=side.starts.device)
    return torch.searchsorted(side.starts[1:], rows, right=True)
