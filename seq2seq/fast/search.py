"""Beam search in fast forms: fast steps, and few shapes at fixed addresses for a GPU.

In the latter, only shapes differ from the plain search. Batches are filled up to few sizes; each
sentence has all its hypotheses from the start, all but one of which have probability zero; tensors
have a capacity of T tokens, which is extended when it is used up. The host learns one step late,
while the next one runs, which sentences are done: these accept nothing more.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq import search
from seq2seq.device import HostCopy
from seq2seq.fast.decoder import MULTIPLE, StaticCache, round_down, round_up
from seq2seq.fast.packed import round_batch_size
from seq2seq.search import SearchConfig

if TYPE_CHECKING:  # imported for a GPU
    from seq2seq.fast.graphs import Buffers, Graphs


class FastBeams(search.Beams):
    """`Beams` with candidates by blocks, and batches of few sizes."""

    def candidates(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `Beams.candidates`."""
        (sentences, beam), vocab_size = self.live_scores.shape, logits.size(1)
        logits = logits.view(sentences, beam, vocab_size)
        count = self.most_candidates(beam * vocab_size)
        # On a CPU for a few sentences at a time, so that their scores, 2 MB, stay in its cache.
        chunk = max(1, 2**19 // (beam * vocab_size)) if logits.is_cpu else sentences
        best, indices = [], []
        for first in range(0, sentences, chunk):
            chunk_rows = slice(first, first + chunk)
            scores = self.log_probabilities(logits[chunk_rows], chunk_rows)  # (b, beam, V)
            scores += self.live_scores[chunk_rows].unsqueeze(2)
            values, places = topk_by_blocks(scores.flatten(1), count)
            best.append(values)
            indices.append(places)
            del scores  # the next ones get its memory
        index = torch.cat(indices)
        return torch.cat(best), index // vocab_size, index % vocab_size

    def remaining(self, rounded: Callable[[int], int] = round_batch_size) -> list[int]:
        """Return the sentences to keep: those not done, filled up to a rounded batch size."""
        not_done_first = sorted(range(len(self.sentence_ids)), key=self.is_done)
        not_done = sum(not self.is_done(i) for i in not_done_first)
        return sorted(not_done_first[: rounded(not_done)])


def topk_by_blocks(scores: Tensor, count: int, block: int = 128) -> tuple[Tensor, Tensor]:
    """Compute `scores.topk(count)` of (B, M): values and indices, both (B, count).

    The `count` largest scores are in the `count` blocks with the largest maxima. On a CPU, finding
    those takes a tenth of the time of a selection among all scores. Ties may be resolved
    differently.
    """
    blocks = scores.size(1) // block
    if blocks <= count:
        values, indices = scores.topk(count)
        return values, indices
    whole = blocks * block  # the last, shorter block is compared in full
    maxima = scores[:, :whole].view(-1, blocks, block).amax(dim=2)  # (B, blocks)
    starts = maxima.topk(count).indices.unsqueeze(2) * block  # (B, count, 1)
    within = torch.arange(block, device=scores.device)  # (block,)
    rest = torch.arange(whole, scores.size(1), device=scores.device)  # (M - whole,)
    # (B, count * block + M - whole), the indices among which the best ones are
    candidates = torch.cat(((starts + within).flatten(1), rest.expand(len(scores), -1)), dim=1)
    values, index = scores.gather(1, candidates).topk(count)  # (B, count)
    return values, candidates.gather(1, index)


_MAX_ROWS = 4096
"""Hypotheses of a batch; more hardly gain speed and take memory."""


def full_batch(sentences: int, beam_size: int) -> int:
    """Round the number of sentences of a batch down to one of few sizes."""
    return round_down(max(1, min(sentences, _MAX_ROWS // beam_size)))


@dataclass(eq=False)
class StaticSearch:
    """Searches one batch after the other, in the buffers of the state.

    Without graphs, which record the steps of each shape, their kernels start one by one.
    """

    buffers: "Buffers"
    graphs: "Graphs | None" = None

    @torch.inference_mode()
    def __call__(
        self,
        step: Callable[[Tensor, StaticCache], Tensor],
        state: StaticCache,
        max_lengths: Tensor,
        config: SearchConfig,
        **rules: Unpack[search.Rules],
    ) -> list[list[search.Hypothesis]]:
        """See `beam_search`; step, its tensors and the ids must be the same in every call."""
        beams = _StaticBeams(max_lengths, config, rules, self.buffers)
        count, beam = len(max_lengths), config.beam_size
        sentences = beams.fill_up(round_up(count))  # (B,)
        state.keep(sentences, sentences.repeat_interleave(beam))

        def advance() -> None:
            logits = step(beams.newest.flatten(), state)  # (N,) -> (N, V)
            parents = beams.extend(logits)  # (N,)
            if beam > 1:
                state.reorder(parents)

        copied = None
        while beams.length <= beams.longest:  # then all hypotheses are finished
            if beams.length == beams.capacity:
                beams.reserve(beams.length + MULTIPLE)
                state.reserve(beams.length + MULTIPLE)
            if self.graphs is None:
                advance()
            else:
                # A new version of the buffers has new addresses, and so graphs of its own.
                key = (self.buffers.version, state.shape, *astuple(config), beams.any_full)
                self.graphs.run(key, advance)
            beams.length += 1
            # Read which sentences were done after the step before, while this one runs.
            previous, copied = copied, HostCopy(beams.done_flags.clone())
            if previous is None:
                continue
            done_flags: list[bool] = previous.read().tolist()
            if all(done_flags):
                break
            # Shrink the batch once half of it, rounded, is left.
            if round_up(done_flags.count(False)) <= len(done_flags) // 2:
                beams.store_done(
                    [i for i, yes in enumerate(done_flags) if yes and not beams.is_done(i)]
                )
                state.keep(*beams.keep(beams.remaining(round_up), beam))
                copied = None
        beams.store_done([i for i in range(len(beams.sentence_ids)) if not beams.is_done(i)])
        return beams.results()[:count]


class _StaticBeams(FastBeams):
    """`Beams` in buffers, with a capacity of T tokens for each hypothesis."""

    def __init__(
        self, max_lengths: Tensor, config: SearchConfig, rules: search.Rules, buffers: "Buffers"
    ) -> None:
        super().__init__(max_lengths, config, rules)
        self.buffers, self.longest = buffers, max(self.limits)
        beam = config.beam_size
        # Double precision holds the scores of any model.
        self.finished_scores = self.finished_scores.double()  # (B, beam)
        live_scores = self.live_scores.double()
        self.live_scores = F.pad(live_scores, (0, beam - 1), value=-math.inf)  # (B, beam)
        self.newest = self.live_tokens.squeeze(2).expand(-1, beam)  # (B, beam)
        self.live_tokens = self.live_tokens[:, :, 1:].expand(-1, beam, -1)  # without start symbol
        self.finished_tokens = self.finished_tokens[:, :, :0]  # (B, beam, T), as live_tokens
        self.lengths = torch.zeros_like(max_lengths).unsqueeze(1)  # (B, 1), all equal
        self.done_flags = torch.zeros_like(max_lengths, dtype=torch.bool)  # (B,)

    @property
    def capacity(self) -> int:
        """T, the number of tokens for which there is memory."""
        return self.live_tokens.size(2)

    def fill_up(self, size: int) -> Tensor:
        """Add copies of the last sentence; return which sentence each one is now."""
        last = len(self.sentence_ids) - 1
        sentences, _ = self.keep([min(i, last) for i in range(size)], 1)
        self.sentence_ids = list(range(size))
        return sentences

    def keep(self, sentences: Sequence[int], beam: int) -> tuple[Tensor, Tensor]:
        """See `SearchBatch.keep`."""
        sentence_rows, rows = super().keep(sentences, beam)
        for name in vars(self):
            self._store(name)
        return sentence_rows, rows

    def reserve(self, positions: int) -> None:
        """Extend the capacity."""
        more = (0, positions - self.capacity)
        self.live_tokens = F.pad(self.live_tokens, more, value=search.NO_TOKEN)
        self.finished_tokens = F.pad(self.finished_tokens, more, value=search.NO_TOKEN)
        self._store("live_tokens")
        self._store("finished_tokens")

    def full(self) -> Tensor:
        """See `SearchBatch.full`; graphs read the length from a tensor."""
        return self.max_lengths <= self.lengths.squeeze(1)

    def extend(self, logits: Tensor) -> Tensor:
        """See `Beams.extend`; all tensors are replaced in place."""
        (sentences, beam), alpha = self.live_scores.shape, self.config.alpha
        scores, parents, tokens = self.candidates(logits)  # each (B, C)
        # Merge the candidates that end, of sentences that are not done.
        ends = tokens == self.end_id  # (B, C)
        penalties = ((6.0 + self.lengths.double()) / 6.0) ** alpha  # (B, 1), `</s>` counted
        new = (scores / penalties).masked_fill(~ends | self.done_flags.unsqueeze(1), -math.inf)
        all_scores = torch.cat((self.finished_scores, new), dim=1)  # (B, beam + C)
        finished_scores, index = all_scores.topk(beam)  # (B, beam)
        new_tokens = search.gather_beams(self.live_tokens, parents)  # (B, C, T)
        all_tokens = torch.cat((self.finished_tokens, new_tokens), dim=1)  # (B, beam + C, T)
        self.finished_scores.copy_(finished_scores)
        self.finished_tokens.copy_(search.gather_beams(all_tokens, index))
        # The best of the others are live.
        live_scores, index = scores.masked_fill(ends, -math.inf).topk(beam)  # (B, beam)
        parents, tokens = parents.gather(1, index), tokens.gather(1, index)  # (B, beam)
        history = search.gather_beams(self.live_tokens, parents)  # (B, beam, T)
        newest = self.lengths.unsqueeze(2).expand(-1, beam, 1)  # (B, beam, 1), indices into T
        self.live_tokens.copy_(history.scatter(2, newest, tokens.unsqueeze(2)))
        self.live_scores.copy_(live_scores)
        self.newest.copy_(tokens)
        self.lengths += 1
        self.done_flags |= self.cannot_improve()
        return search.rows_of(torch.arange(sentences, device=parents.device), parents, beam)

    def store_done(self, newly_done: list[int]) -> None:
        """See `Beams.store_done`."""
        tokens = self.finished_tokens
        missing = (0, self.longest - self.capacity)
        self.finished_tokens = F.pad(tokens, missing, value=search.NO_TOKEN)
        super().store_done(newly_done)
        self.finished_tokens = tokens

    def _store(self, name: str) -> None:
        value = getattr(self, name)
        if isinstance(value, Tensor):
            setattr(self, name, self.buffers.store(name, value))
