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
        query_sentence, key_sentence = queries.sentences, keys.sentences  # (N,), (M,)
        rows, keys_in_all = len(query_sentence), len(key_sentence)

        def attends(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            same = query_sentence[query] == key_sentence[key]
            return same & (query >= key) if causal else same

        # The blocks of keys of a block of queries: from the first row's sentence to the last one's.
        first_sentences = query_sentence[::_BLOCK]  # (blocks,)
        starts = (keys.starts[first_sentences] // _BLOCK).int()
        query_blocks, key_blocks = (
            torch.arange(-(-count // _BLOCK), dtype=torch.int32, device=starts.device)
            for count in (rows, keys_in_all)
        )
        if causal:
            ends = query_blocks + 1
        else:
            last_sentences = query_sentence[_BLOCK - 1 :: _BLOCK]
            if rows % _BLOCK:
                last_sentences = torch.cat((last_sentences, query_sentence[-1:]))
            ends = ((keys.starts[1:][last_sentences] + (_BLOCK - 1)) // _BLOCK).int()
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
            BLOCK_SIZE=(_BLOCK, _BLOCK),
            mask_mod=attends,
        )

    def attend(self, query: Tensor, key: Tensor, value: Tensor, module: RowAttention) -> Tensor:
        """See `Layout.attend`; weights are not dropped out."""
        attended = flex_attention(query, key, value, block_mask=self.mask)  # (1, H, N, d_v)
        assert isinstance(attended, Tensor)
        return attended


def _from(starts: Tensor, blocks: Tensor) -> Tensor:
    """Number the blocks from each start (N,) on: (N, M), where the last of all M repeats."""
    return (starts.unsqueeze(1) + blocks).clamp(max=len(blocks) - 1)
