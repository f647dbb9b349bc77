"""Attention between the rows of a sentence by FlexAttention, which needs PyTorch's compiler.

Its tiles of 128 rows hold several short sentences.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from seq2seq.fast.rows import PaddedMask, RowAttention, Side
from seq2seq.fast.trials import on_trial


class FlexLayout:
    """Rows attend within their sentence by FlexAttention."""

    def __init__(
        self, queries: Side, keys: Side, mask: PaddedMask, *, causal: bool = False
    ) -> None:
        query_sentence, key_sentence = queries.sentences, keys.sentences  # (R,), (M or N,)
        rows, keys_in_all = len(query_sentence), len(key_sentence)
        block = 64 if on_trial("blocks_of_64") else 128
        adjacent = {"BLOCKS_ARE_CONTIGUOUS": True}
        self.kernel_options: Any = adjacent if on_trial("contiguous_blocks") else None

        def attends(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            same = query_sentence[query] == key_sentence[key]
            return same & (query >= key) if causal else same

        # The blocks of keys of a block of queries: from the first row's sentence to the last one's.
        first_sentences = query_sentence[::block]  # (blocks,)
        starts = (keys.starts[first_sentences] // block).int()
        query_blocks, key_blocks = (
            torch.arange(-(-count // block), dtype=torch.int32, device=starts.device)
            for count in (rows, keys_in_all)
        )
        if causal:
            ends = query_blocks + 1
        else:
            last_sentences = query_sentence[block - 1 :: block]
            if rows % block:
                last_sentences = torch.cat((last_sentences, query_sentence[-1:]))
            ends = ((keys.starts[1:][last_sentences] + (block - 1)) // block).int()
        # Starts and ends rise, so the blocks of queries of a block of keys are adjacent, too.
        query_starts = torch.searchsorted(ends, key_blocks, right=True, out_int32=True)
        query_ends = torch.searchsorted(starts, key_blocks, right=True, out_int32=True)
        self.mask = BlockMask(
            seq_lengths=(rows, keys_in_all),
            kv_num_blocks=(ends - starts)[None, None],
            kv_indices=_from(starts, key_blocks)[None, None],
            full_kv_num_blocks=None,
            full_kv_indices=None,
            q_num_blocks=(query_ends - query_starts)[None, None],
            q_indices=_from(query_starts, query_blocks)[None, None],
            full_q_num_blocks=None,
            full_q_indices=None,
            BLOCK_SIZE=(block, block),
            mask_mod=attends,
        )

    def attend(self, query: Tensor, key: Tensor, value: Tensor, module: RowAttention) -> Tensor:
        """See `Layout.attend`; weights are not dropped out."""
        attended = flex_attention(  # (1, H, R, d_v)
            query, key, value, block_mask=self.mask, kernel_options=self.kernel_options
        )
        assert isinstance(attended, Tensor)
        return attended


def _from(starts: Tensor, blocks: Tensor) -> Tensor:
    """Number the blocks from each start (N,) on: (N, M), where the last of all M repeats."""
    return (starts.unsqueeze(1) + blocks).clamp(max=len(blocks) - 1)
