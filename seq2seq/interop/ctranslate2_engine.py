"""The engine CTranslate2: its search, with a model that is exported in memory."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from seq2seq.errors import EngineError, UserError, out_of_memory
from seq2seq.interop.export import ctranslate2_files
from seq2seq.interop.marian import MAX_POSITIONS
from seq2seq.model_folder import TrainedModel
from seq2seq.search import Hypothesis, SearchConfig, length_penalty, nan_error
from seq2seq.tokenizer import PADDING_ID, START_ID
from seq2seq.translate import Engine, SearchInput

# Products of larger weights leave float32, and CTranslate2 writes blank lines without a word.
_MAX_WEIGHT = 1e15
_COMPUTE_TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}


class CTranslate2Engine(Engine):
    """Searches with CTranslate2; calls from several threads run in parallel.

    It loads a GPU's libraries when it searches first, so that only then their absence is an error.
    Each of `workers` searches has one thread. Without `scores`, those of greedy search are NaN.
    """

    max_positions = MAX_POSITIONS

    def __init__(
        self,
        trained: TrainedModel,
        device: torch.device,
        precision: str,
        beam: int,
        workers: int,
        scores: bool,
    ) -> None:
        try:
            import ctranslate2
        except ImportError:
            raise UserError(
                "engine ctranslate2 is not installed: pip install ctranslate2, or choose the engine"
                " native"
            ) from None
        if device.type == "cuda" and not ctranslate2.get_cuda_device_count():
            raise UserError(f"engine ctranslate2 can't use {device} here: choose device cpu")
        kind = "cuda" if device.type == "cuda" else "cpu"
        with _errors_as_user_errors():
            supported = ctranslate2.get_supported_compute_types(kind)
        if precision == "auto":
            precision = "int8" if "int8" in supported else "fp32"
        compute_type = _COMPUTE_TYPES.get(precision, precision)
        if compute_type not in supported:
            raise UserError(
                f"precision {precision!r} is not possible with engine ctranslate2 here: choose auto"
            )
        if not all(weight.abs().max() < _MAX_WEIGHT for weight in trained.model.parameters()):
            raise nan_error()
        files = ctranslate2_files(trained)
        with _errors_as_user_errors():
            self._translator = ctranslate2.Translator(
                "model.ctranslate2",
                files=files,
                device=kind,
                device_index=device.index or 0,
                compute_type=compute_type,
                inter_threads=workers,
                intra_threads=1,
            )
        # On a CPU, batches of more than 256 hypotheses, or 64 sentences in int8, are slower.
        most = min(64 if compute_type == "int8" else 256, max(1, 256 // beam))
        if kind == "cpu":
            self.rounded = partial(min, most)
        self._scores = scores or beam > 1  # by which hypotheses are ordered
        self._tokenizer = trained.tokenizer
        pieces = self._tokenizer.pieces(list(range(self._tokenizer.vocab_size)))
        self._ids = dict(zip(pieces, range(len(pieces)), strict=True))
        self._suppressed = [[pieces[PADDING_ID]], [pieces[START_ID]]]

    def search(
        self, segments: Sequence[SearchInput], config: SearchConfig
    ) -> list[list[Hypothesis]]:
        """See `Engine.search`."""
        hypotheses = []
        for segment, result in zip(segments, self._translate(segments, config), strict=True):
            # The limit is for the whole call. If too few outputs keep to that of their segment, it
            # is searched again.
            fit = sum(len(pieces) <= segment.max_length for pieces in result.hypotheses)
            if fit < config.nbest:
                (result,) = self._translate([segment], config)
            hypotheses.append(self._hypotheses(result, segment.max_length, config))
        return hypotheses

    def _translate(self, segments: Sequence[SearchInput], config: SearchConfig) -> list[Any]:
        sources = [self._tokenizer.source_pieces(s.source_ids[:-1]) for s in segments]
        with _errors_as_user_errors():
            results: list[Any] = self._translator.translate_batch(
                sources,
                beam_size=config.beam_size,
                num_hypotheses=config.beam_size,
                length_penalty=config.alpha,
                max_decoding_length=max(segment.max_length for segment in segments),
                min_decoding_length=0,
                max_input_length=0,
                suppress_sequences=self._suppressed,
                return_scores=self._scores,
            )
        return results

    def _hypotheses(self, result: Any, max_length: int, config: SearchConfig) -> list[Hypothesis]:
        hypotheses: dict[tuple[int, ...], Hypothesis] = {}
        for pieces, score in zip(result.hypotheses, result.scores or [math.nan], strict=True):
            length = len(pieces)
            if length > max_length:
                continue
            truncated = length >= max_length
            # CTranslate2 counts `</s>` unless the output was cut off.
            log_probability = score * (length + (not truncated)) ** config.alpha
            token_ids = [self._ids[piece] for piece in pieces]
            penalized = log_probability / length_penalty(length + 1, config.alpha)
            hypotheses.setdefault(tuple(token_ids), Hypothesis(token_ids, penalized, truncated))
        ordered = sorted(hypotheses.values(), key=lambda hypothesis: -hypothesis.score)
        return ordered[: config.nbest]


@contextmanager
def _errors_as_user_errors() -> Iterator[None]:
    """Turn what this machine lacks, such as a library of CUDA, into a user error."""
    try:
        yield
    except RuntimeError as error:
        if failure := out_of_memory(error):
            raise failure from error
        message = UserError(error)  # on one line
        raise EngineError(
            f"engine ctranslate2 can't be used here: {message}; choose the engine native"
        ) from error
