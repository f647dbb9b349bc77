"""Text in, text out: the Python interface to a trained model."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seq2seq.attention_maps import Attention, forced_attention
from seq2seq.data.batching import pad
from seq2seq.data.tokenizer import END_ID, PADDING_ID, START_ID, UNKNOWN_ID
from seq2seq.decoding.beam_search import Hypothesis, SearchConfig, beam_search
from seq2seq.decoding.prefixes import encode_prefixes, pair_prefixes, restore_prefix
from seq2seq.decoding.sampling import SamplingConfig, sample
from seq2seq.decoding.scoring import TargetScore, score_targets
from seq2seq.decoding.segments import Part, split
from seq2seq.decoding.translation import Candidate, Translation, join
from seq2seq.device import choose_device, choose_precision
from seq2seq.errors import UserError
from seq2seq.kernels.threads import one_at_a_time, side_by_side
from seq2seq.kernels.translation import TranslationKernels, use_translation_kernels
from seq2seq.model.config import Positions
from seq2seq.storage.checkpoint import TrainedModel, find_model, load_model

DEFAULT_BATCH_TOKENS = 2048
MAX_SOURCE_TOKENS = 1024


@dataclass(frozen=True)
class _Task:
    """A line, or a part of one, to be searched."""

    source: list[int]
    """Ends with `</s>`."""
    prefix: str
    forced: list[int]
    """The prefix's token ids."""


class Translator:
    """Translates lists of sentences; call it as often as you like, it keeps nothing.

    Calls from several threads take turns: what a machine can do at once, `workers` does. Its
    model is a copy, laid out for this machine: training the other further changes no translation.

    Args:
        trained: a model and its tokenizer.
        search: beam size, length penalty and so on; a SamplingConfig draws translations instead.
        device: `auto`, `cpu`, `cuda`, ...
        precision: `fp32`, `bf16`, `int8` (on a CPU) or `auto`, which is one of the first two; in
            fp32 the text does not depend on the batch.
        batch_tokens: source tokens translated at once, padding counted.
        workers: batches translated side by side, each by one thread; by default as many as PyTorch
            has threads, and one on a GPU. Their number changes no output.

    Raises:
        UserError: a choice that can't be met.
    """

    def __init__(
        self,
        trained: TrainedModel,
        search: SearchConfig | SamplingConfig | None = None,
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
        # A copy of its own: under autocast every step would cast every matrix anew.
        number = choose_precision(precision, self.device, for_translation=True)
        stored = torch.float32 if number is torch.int8 else number
        self.model = copy.deepcopy(trained.model).to(self.device, stored).requires_grad_(False)
        self.model.eval()
        self.decoder = use_translation_kernels(self.model, number, TranslationKernels())
        self.workers = workers or (torch.get_num_threads() if self.device.type == "cpu" else 1)
        self.tokenizer = trained.tokenizer
        self.batch_tokens = batch_tokens
        self.max_source_tokens = MAX_SOURCE_TOKENS
        self.max_target_tokens = MAX_SOURCE_TOKENS - 1 + self.search.max_extra_tokens
        config = self.model.config
        if config.positions is Positions.learned:
            # Neither side may leave the learned table, the target with its start symbol.
            positions = config.max_learned_positions
            self.max_source_tokens = min(self.max_source_tokens, max(2, positions))
            self.max_target_tokens = min(self.max_target_tokens, max(1, positions - 1))

    @classmethod
    def load(
        cls,
        run: str | Path,
        search: SearchConfig | SamplingConfig | None = None,
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

    def translate(
        self,
        lines: Sequence[str],
        prefixes: Sequence[str] | None = None,
        *,
        first_line: int = 1,
    ) -> list[Translation]:
        """Translate lines, in their order; blank lines stay blank.

        Args:
            lines: the sentences.
            prefixes: what each translation begins with, "" for nothing; spaces around it don't
                count. What follows may go on with its last word: "Eine Fra" may become "Eine Frau".
            first_line: the number of the first line, for messages.

        Raises:
            UserError: another number of prefixes than of lines, or a prefix that is too long.
        """
        longest = self.max_source_tokens - 1
        prefixes = [""] * len(lines) if prefixes is None else prefixes
        parts_of = [
            [Part(line, "", ids)] if len(ids) <= longest else split(line, self.tokenizer, longest)
            for line, ids in zip(lines, self.tokenizer.encode(list(lines)), strict=True)
        ]
        room = [self._longest_output(min(len(parts[0].token_ids), longest)) for parts in parts_of]
        forced = encode_prefixes(self.tokenizer, prefixes, room, first_line)
        tasks = [
            _Task([*part.token_ids[:longest], END_ID], *((prefix, ids) if first else ("", [])))
            for parts, prefix, ids in zip(parts_of, prefixes, forced, strict=True)
            for part, first in zip(parts, (True, *[False] * len(parts)), strict=False)
        ]
        found = iter(self._find(tasks))
        return [
            Translation(
                join([next(found) for _ in parts], parts),
                source_parts=len(parts),
                source_truncated=any(len(part.token_ids) > longest for part in parts),
                unknown=sum(part.token_ids.count(UNKNOWN_ID) for part in parts),
            )
            for parts in parts_of
        ]

    def translate_stream(
        self, lines: Iterable[str], chunk: int = 1024, prefixes: Iterable[str] | None = None
    ) -> Iterator[Translation]:
        """Translate lines as they come, `chunk` at a time, in bounded memory.

        Raises:
            UserError: as `translate`.
        """
        pairs: Iterable[tuple[str, str]] = ((line, "") for line in lines)
        if prefixes is not None:
            pairs = pair_prefixes(lines, prefixes)
        waiting: list[str] = []
        beginnings: list[str] = []
        first_line = 1
        for number, (line, prefix) in enumerate(pairs, start=1):
            waiting.append(line)
            beginnings.append(prefix)
            if len(waiting) == chunk:
                yield from self.translate(waiting, beginnings, first_line=first_line)
                first_line = number + 1
                waiting, beginnings = [], []
        yield from self.translate(waiting, beginnings, first_line=first_line)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[TargetScore]:
        """How probable the model finds given translations, in the pieces the tokenizer makes.

        A pair of blank lines has no tokens and probability 1; otherwise a blank line is a sentence
        of `</s>` alone.

        Raises:
            UserError: unequal counts, or a line that is longer than a model can be given.
        """
        if len(sources) != len(targets):
            raise UserError(
                f"{len(sources)} sources and {len(targets)} translations: give one for each"
            )
        pairs = list(
            zip(
                self._encode_whole(sources, "source", self.max_source_tokens - 1),
                self._encode_whole(targets, "translation", self.max_target_tokens),
                strict=True,
            )
        )
        sizes = [max(map(len, pair)) for pair in pairs]  # a pair counts as its longer side
        by_length = sorted((i for i, size in enumerate(sizes) if size > 1), key=lambda i: -sizes[i])
        batches = list(self._batches(by_length, sizes))
        scores = [TargetScore(0.0, 0)] * len(pairs)
        with self._undisturbed(), side_by_side(min(self.workers, len(batches))) as run:
            found = run(
                lambda batch: score_targets(
                    self.model, [pairs[i][0] for i in batch], [pairs[i][1] for i in batch]
                ),
                batches,
            )
            for batch, of_batch in zip(batches, found, strict=True):
                for i, score in zip(batch, of_batch, strict=True):
                    scores[i] = score
        return scores

    def _encode_whole(self, lines: Sequence[str], name: str, longest: int) -> list[list[int]]:
        encoded = self.tokenizer.encode(list(lines))
        for number, ids in enumerate(encoded, start=1):
            if len(ids) > longest:
                raise UserError(
                    f"line {number}: the {name} has {len(ids)} tokens, at most {longest} can be"
                    " scored; leave the pair out, or split it"
                )
        return [[*ids, END_ID] for ids in encoded]

    def attention(self, source: str, target: str) -> Attention:
        """Who attends to whom when the model is made to translate source to target, in float32.

        A bf16 translator's weights stay as rounded as they are; an int8 one multiplies in eight
        bits here as well.

        Raises:
            UserError: a text is blank, or longer than a model can be given.
        """
        source_ids, target_ids = self.tokenizer.encode([source, target])
        for side, ids, longest in (
            ("source", source_ids, self.max_source_tokens - 1),
            ("target", target_ids, self.max_target_tokens),
        ):
            if not ids:
                raise UserError(f"the {side} is blank: attention needs a text on both sides")
            if len(ids) > longest:
                raise UserError(f"the {side} has {len(ids)} tokens; at most {longest} can be read")
        with self._undisturbed():
            model = self.model
            if model.embedding.weight.dtype is torch.bfloat16:
                model = copy.deepcopy(model).float()
            return forced_attention(model, self.tokenizer, source_ids, target_ids)

    def _find(self, tasks: list[_Task]) -> list[list[Candidate]]:
        """The candidates of each task, none where the source is nothing but `</s>`."""
        candidates: list[list[Candidate]] = [[] for _ in tasks]
        # The longest first: what is left for one worker at the end is little.
        by_length = sorted(
            (i for i, task in enumerate(tasks) if len(task.source) > 1),
            key=lambda i: -len(tasks[i].source),
        )
        batches = list(self._batches(by_length, [len(task.source) for task in tasks]))
        with self._undisturbed(), side_by_side(min(self.workers, len(batches))) as run:
            found = run(self._search, [[tasks[i] for i in batch] for batch in batches])
            for batch, hypotheses in zip(batches, found, strict=True):
                for i, best in zip(batch, hypotheses, strict=True):
                    candidates[i] = self._candidates(best, tasks[i])
        return candidates

    def _batches(self, order: list[int], sizes: list[int]) -> Iterator[list[int]]:
        batch: list[int] = []
        for i in order:
            if batch and (len(batch) + 1) * sizes[batch[0]] > self.batch_tokens:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    @torch.inference_mode()
    def _search(self, tasks: list[_Task]) -> list[list[Hypothesis]]:
        sources = [task.source for task in tasks]
        lengths = [self._longest_output(len(ids) - 1) for ids in sources]
        max_lengths = torch.tensor(lengths, device=self.device)
        source = pad([np.array(ids) for ids in sources]).to(self.device)
        source_mask = self.model.source_mask(source)
        memory = self.model.encode(source, source_mask)
        step, state = self.decoder.step, self.decoder.start(memory, source_mask)
        rules: dict[str, Any] = {
            "start_id": START_ID,
            "end_id": END_ID,
            "never": (PADDING_ID, START_ID),
            "prefixes": [task.forced for task in tasks],
        }
        if isinstance(self.search, SamplingConfig):
            return sample(step, state, max_lengths, self.search, keys=sources, **rules)
        return beam_search(step, state, max_lengths, self.search, **rules)

    def _longest_output(self, source_tokens: int) -> int:
        """Most tokens of a translation, neither `</s>` counted: the paper's input length + 50."""
        return min(source_tokens + self.search.max_extra_tokens, self.max_target_tokens)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """One call at a time, in this translator's precision, whatever the caller's autocast."""
        with one_at_a_time, torch.autocast(self.device.type, enabled=False):
            yield

    def _candidates(self, hypotheses: list[Hypothesis], task: _Task) -> list[Candidate]:
        read, *texts = self.tokenizer.decode([task.forced, *(h.token_ids for h in hypotheses)])
        return [
            Candidate(
                restore_prefix(text, task.prefix, read),
                hypothesis.score,
                self.tokenizer.pieces(hypothesis.token_ids),
                hypothesis.cut,
            )
            for text, hypothesis in zip(texts, hypotheses, strict=True)
        ]
