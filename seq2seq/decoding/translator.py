"""Text in, text out: the Python interface to a trained model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from seq2seq.checkpoint import TrainedModel, find_model, load_model
from seq2seq.data.batching import pad
from seq2seq.data.tokenizer import END_ID, PADDING_ID, START_ID
from seq2seq.decoding.beam_search import Hypothesis, SearchConfig, beam_search
from seq2seq.device import autocast, choose_device, choose_precision
from seq2seq.model.config import Positions

DEFAULT_BATCH_TOKENS = 1024
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
    source_cut: bool = False
    """The line was longer than a model can be given, and its end was left out."""

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

    Args:
        trained: a model and its tokenizer.
        search: beam size, length penalty and so on.
        device: `auto`, `cpu`, `cuda`, ...
        precision: `fp32`, `bf16` or `auto`; in fp32 the text does not depend on the batch.
        batch_tokens: source tokens translated at once, padding counted.

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
    ) -> None:
        self.search = search or SearchConfig()
        self.device = choose_device(device)
        self.precision = choose_precision(precision, self.device)
        self.model = trained.model.to(self.device)
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
    ) -> "Translator":
        """Open a run folder (or a model folder) for translation.

        Raises:
            UserError: no model there, a damaged one, or a choice that can't be met.
        """
        trained = load_model(find_model(Path(run)))
        return cls(trained, search, device=device, precision=precision, batch_tokens=batch_tokens)

    def translate(self, lines: Sequence[str]) -> list[Translation]:
        """Translate lines, in their order; blank lines stay blank."""
        sources = self.tokenizer.encode(list(lines))
        translations = [Translation([])] * len(lines)
        longest = self.max_source_tokens - 1
        cuts = [len(ids) > longest for ids in sources]
        sources = [[*ids[:longest], END_ID] for ids in sources]
        blank = [len(ids) == 1 for ids in sources]
        by_length = sorted(
            (i for i in range(len(lines)) if not blank[i]), key=lambda i: len(sources[i])
        )
        training = self.model.training
        self.model.eval()
        for batch in self._batches(by_length, sources):
            found = self._search([sources[i] for i in batch])
            for i, hypotheses in zip(batch, found, strict=True):
                translations[i] = Translation(self._candidates(hypotheses), cuts[i])
        self.model.train(training)
        return translations

    def translate_stream(self, lines: Iterable[str], chunk: int = 4096) -> Iterator[Translation]:
        """Translate lines as they come, `chunk` at a time, in bounded memory."""
        waiting: list[str] = []
        for line in lines:
            waiting.append(line)
            if len(waiting) == chunk:
                yield from self.translate(waiting)
                waiting = []
        yield from self.translate(waiting)

    def _batches(self, order: list[int], sources: list[list[int]]) -> Iterator[list[int]]:
        batch: list[int] = []
        for i in order:
            if batch and (len(batch) + 1) * len(sources[i]) > self.batch_tokens:
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
        with autocast(self.device, self.precision):
            memory = self.model.encode(source)
            return beam_search(
                self.model.step,
                self.model.start(memory, self.search.beam_size),
                lengths + self.search.max_extra_tokens,
                self.search,
                start_id=START_ID,
                end_id=END_ID,
                never=(PADDING_ID, START_ID),
            )

    def _candidates(self, hypotheses: list[Hypothesis]) -> list[Candidate]:
        texts = self.tokenizer.decode([hypothesis.token_ids for hypothesis in hypotheses])
        return [
            Candidate(
                text, hypothesis.score, self.tokenizer.pieces(hypothesis.token_ids), hypothesis.cut
            )
            for text, hypothesis in zip(texts, hypotheses, strict=True)
        ]
