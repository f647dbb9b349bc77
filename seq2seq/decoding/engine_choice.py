"""The choice of the engine that is faster for a single sentence on this machine."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from seq2seq.data.tokenizer import Tokenizer
from seq2seq.decoding.translator import ENGINES, TranslationOptions, Translator
from seq2seq.errors import UserError
from seq2seq.storage.checkpoint import TrainedModel

_PIECES = 16
_ROUNDS = 5


def fastest_translator(
    trained: TrainedModel | Sequence[TrainedModel],
    options: TranslationOptions | None = None,
    *,
    sentence: str | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Translator, dict[str, float]]:
    """Open a model with the engine that translates a single sentence fastest here.

    Args:
        trained: a model, or an ensemble.
        options: the options; `engine` is replaced.
        sentence: what to translate; by default 16 pieces of the vocabulary.
        clock: returns a time in seconds.

    Returns:
        The translator, and the seconds per sentence of each engine that can run the model with
        these options (the median of five rounds in turn).

    Raises:
        UserError: if the engine `ours` can't run it.
    """
    options = options or TranslationOptions()
    translators = {"ours": Translator(trained, replace(options, engine="ours"))}
    for engine in ENGINES:
        if engine not in translators:
            try:
                translators[engine] = Translator(trained, replace(options, engine=engine))
            except UserError:
                continue  # it is not installed, or can't run this model with these options
    if sentence is None:
        sentence = _example(translators["ours"].tokenizer)
    times: dict[str, list[float]] = {engine: [] for engine in translators}
    for _ in range(_ROUNDS + 1):
        for engine, translator in translators.items():
            started = clock()
            translator.translate([sentence])
            times[engine].append(clock() - started)
    # The first round allocates memory.
    seconds = {engine: statistics.median(taken[1:]) for engine, taken in times.items()}
    return translators[min(seconds, key=lambda engine: seconds[engine])], seconds


def _example(tokenizer: Tokenizer) -> str:
    size = tokenizer.source_vocab_size
    ids = range(size // 8, size, max(1, size // _PIECES))[:_PIECES]
    return "".join(tokenizer.source_pieces(list(ids))).replace("▁", " ")
