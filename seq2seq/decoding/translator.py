"""Text in, text out: the Python interface to a trained model."""

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from seq2seq.checkpoint import TrainedModel, find_model, load_model
from seq2seq.data.batching import pad
from seq2seq.data.tokenizer import END_ID, PADDING_ID, START_ID, UNKNOWN_ID
from seq2seq.decoding.attention import Attention, forced_attention
from seq2seq.decoding.beam_search import Hypothesis, SearchConfig, beam_search
from seq2seq.decoding.long_lines import Part, split
from seq2seq.device import choose_device, choose_precision
from seq2seq.errors import UserError
from seq2seq.model.config import Positions

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_BATCH_TOKENS = 2048
MAX_SOURCE_TOKENS = 1024


@dataclass(frozen=True)
class Candidate:
    """One translation of a sentence."""

    text: str
    score: float
    """Log-probability divided by the length penalty."""
    pieces: list[str]
    """The subword pieces it is made of."""
    cut: bool
    """It was ended at the greatest length."""


@dataclass(frozen=True)
class Translation:
    """What became of one line."""

    candidates: list[Candidate]
    """The best first; empty for a blank line."""
    source_parts: int = 1
    """A line longer than a model can be given is translated in so many parts, cut at the ends of
    its sentences."""
    source_cut: bool = False
    """A sentence of the line was longer than a model can be given, and its end was left out."""
    unknown: int = 0
    """Pieces of the line that the tokenizer has no name for."""

    @property
    def text(self) -> str:
        """The best translation; "" for a blank line."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def score(self) -> float:
        """The best translation's score; 0 for a blank line."""
        return self.candidates[0].score if self.candidates else 0.0


class Translator:
    """Translates lists of sentences; call it as often as you like, it keeps nothing.

    Calls from several threads take turns: what a machine can do at once, `workers` does.

    Args:
        trained: a model and its tokenizer.
        search: beam size, length penalty and so on.
        device: `auto`, `cpu`, `cuda`, ...
        precision: `fp32`, `bf16` or `auto`; in fp32 the text does not depend on the batch.
        batch_tokens: source tokens translated at once, padding counted.
        workers: batches translated side by side, each by one thread; by default as many as PyTorch
            has threads, and one on a GPU. Their number changes no output.

    Raises:
        UserError: a choice that can't be met.
    """

    def __init__(
        self,
        trained: TrainedModel,
        search: SearchConfig | None = None,
        *,
        device: str = "auto",
        precision: str = "fp32",
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
        workers: int | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise UserError(f"workers={workers}: must be at least 1")
        self.search = search or SearchConfig()
        self.device = choose_device(device)
        self.model = trained.model.to(self.device)
        if choose_precision(precision, self.device) is torch.bfloat16:
            # A copy of its own: under autocast every step would cast every matrix anew.
            self.model = copy.deepcopy(self.model).bfloat16()
        self.workers = workers or (torch.get_num_threads() if self.device.type == "cpu" else 1)
        self.tokenizer = trained.tokenizer
        self.batch_tokens = batch_tokens
        self.max_source_tokens = MAX_SOURCE_TOKENS
        config = self.model.config
        if config.positions is Positions.learned:
            # Neither the source nor the longest output it allows may leave the learned table.
            room = config.max_learned_positions - self.search.max_extra_tokens - 1
            self.max_source_tokens = max(2, min(MAX_SOURCE_TOKENS, room))

    @classmethod
    def load(
        cls,
        run: str | Path,
        search: SearchConfig | None = None,
        *,
        device: str = "auto",
        precision: str = "fp32",
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
        workers: int | None = None,
    ) -> "Translator":
        """Open a run folder (or a model folder) for translation.

        Raises:
            UserError: no model there, a damaged one, or a choice that can't be met.
        """
        trained = load_model(find_model(Path(run)))
        return cls(
            trained,
            search,
            device=device,
            precision=precision,
            batch_tokens=batch_tokens,
            workers=workers,
        )

    def translate(self, lines: Sequence[str]) -> list[Translation]:
        """Translate lines, in their order; blank lines stay blank."""
        longest = self.max_source_tokens - 1
        parts_of: list[list[Part]] = []
        sources: list[list[int]] = []  # of all parts of all lines
        for line, ids in zip(lines, self.tokenizer.encode(list(lines)), strict=True):
            whole = [Part(line, "", ids)]
            parts_of.append(whole if len(ids) <= longest else split(line, self.tokenizer, longest))
            sources.extend([*part.token_ids[:longest], END_ID] for part in parts_of[-1])
        found = iter(self._find(sources))
        return [
            Translation(
                _join([next(found) for _ in parts], parts),
                source_parts=len(parts),
                source_cut=any(len(part.token_ids) > longest for part in parts),
                unknown=sum(part.token_ids.count(UNKNOWN_ID) for part in parts),
            )
            for parts in parts_of
        ]

    def translate_stream(self, lines: Iterable[str], chunk: int = 1024) -> Iterator[Translation]:
        """Translate lines as they come, `chunk` at a time, in bounded memory."""
        waiting: list[str] = []
        for line in lines:
            waiting.append(line)
            if len(waiting) == chunk:
                yield from self.translate(waiting)
                waiting = []
        yield from self.translate(waiting)

    def attention(self, source: str, target: str) -> Attention:
        """Who attends to whom when the model is made to translate source to target, in float32.

        A bf16 translator's weights stay as rounded as they are.

        Raises:
            UserError: a text is blank, or longer than a model can be given.
        """
        source_ids, target_ids = self.tokenizer.encode([source, target])
        longest_source = self.max_source_tokens - 1
        longest_target = longest_source + self.search.max_extra_tokens
        for side, ids, longest in (
            ("source", source_ids, longest_source),
            ("target", target_ids, longest_target),
        ):
            if not ids:
                raise UserError(f"the {side} is blank: attention needs a text on both sides")
            if len(ids) > longest:
                raise UserError(f"the {side} has {len(ids)} tokens; at most {longest} can be read")
        with self._evaluating():
            model = self.model
            if model.embedding.weight.dtype is torch.bfloat16:
                model = copy.deepcopy(model).float()
            return forced_attention(model, self.tokenizer, source_ids, target_ids)

    def _find(self, sources: list[list[int]]) -> list[list[Candidate]]:
        """The candidates of each source, none for one that is nothing but `</s>`."""
        candidates: list[list[Candidate]] = [[] for _ in sources]
        # The longest first: what is left for one worker at the end is little.
        by_length = sorted(
            (i for i, ids in enumerate(sources) if len(ids) > 1), key=lambda i: -len(sources[i])
        )
        batches = list(self._batches(by_length, sources))
        with self._evaluating(), _side_by_side(min(self.workers, len(batches))) as run:
            found = run(self._search, [[sources[i] for i in batch] for batch in batches])
            for batch, hypotheses in zip(batches, found, strict=True):
                for i, best in zip(batch, hypotheses, strict=True):
                    candidates[i] = self._candidates(best)
        return candidates

    def _batches(self, order: list[int], sources: list[list[int]]) -> Iterator[list[int]]:
        batch: list[int] = []
        for i in order:
            if batch and (len(batch) + 1) * len(sources[batch[0]]) > self.batch_tokens:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    @torch.inference_mode()
    def _search(self, sources: list[list[int]]) -> list[list[Hypothesis]]:
        source = pad([np.array(ids) for ids in sources]).to(self.device)
        # The paper's "input length": without </s>.
        lengths = (source != PADDING_ID).sum(dim=1) - 1
        return beam_search(
            self.model.step,
            self.model.start(self.model.encode(source), self.search.beam_size),
            lengths + self.search.max_extra_tokens,
            self.search,
            start_id=START_ID,
            end_id=END_ID,
            never=(PADDING_ID, START_ID),
        )

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        with _one_at_a_time:
            training = self.model.training
            self.model.eval()
            try:
                yield
            finally:
                self.model.train(training)

    def _candidates(self, hypotheses: list[Hypothesis]) -> list[Candidate]:
        texts = self.tokenizer.decode([hypothesis.token_ids for hypothesis in hypotheses])
        return [
            Candidate(
                text, hypothesis.score, self.tokenizer.pieces(hypothesis.token_ids), hypothesis.cut
            )
            for text, hypothesis in zip(texts, hypotheses, strict=True)
        ]


def _join(found: list[list[Candidate]], parts: list[Part]) -> list[Candidate]:
    """The candidates of a line from those of its parts: the best ones joined, and so on."""
    if len(parts) == 1:
        return found[0]
    told = [(best, part) for best, part in zip(found, parts, strict=True) if best]
    return [
        Candidate(
            "".join(
                candidate.text + part.separator
                for candidate, (_, part) in zip(row, told, strict=True)
            ).rstrip(),
            sum(candidate.score for candidate in row),
            [piece for candidate in row for piece in candidate.pieces],
            any(candidate.cut for candidate in row),
        )
        for row in zip(*(best for best, _ in told), strict=False)
    ]


# How many threads an operation takes is a setting of the whole process, and so is a model's mode:
# calls from several threads take turns.
_one_at_a_time = threading.Lock()


@contextmanager
def _side_by_side(
    workers: int,
) -> Iterator[Callable[[Callable[[T], R], Iterable[T]], Iterator[R]]]:
    """A `map` over so many threads, in order, in which each operation keeps to its own thread.

    A step of decoding is made of small operations: two threads within one wait for each other more
    than they gain (69 sentences/s against 67 with one), two side by side reached 120. Python is no
    hindrance, since PyTorch lets go of its lock in each operation.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(max(1, workers))
    try:
        yield map if workers < 2 else pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
