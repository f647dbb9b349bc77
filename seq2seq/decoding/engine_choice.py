"""The choice of the engine that is faster for a single sentence on this machine."""

import time
from collections.abc import Callable
from dataclasses import replace

from seq2seq.data.tokenizer import END_ID, Tokenizer
from seq2seq.decoding.config import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.storage.trained_model import TrainedModel

_PIECES = 20
_ROUNDS = 5


def fastest_translator(
    trained: TrainedModel,
    options: TranslationOptions,
    *,
    sentence: str | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Translator, str]:
    """Make a translator with each engine, measure them in turn, and choose one.

    Args:
        trained: the model.
        options: the options; `engine` is replaced.
        sentence: what to translate; by default 20 pieces of the vocabulary.
        clock: returns a time in seconds.

    Returns:
        The faster one, and the reason in words.

    Raises:
        UserError: if even the engine `ours` can't run the model with these options.
    """
    ours = Translator(trained, replace(options, engine="ours"))
    sentence = _example(trained.tokenizer) if sentence is None else sentence
    try:
        other = Translator(trained, replace(options, engine="ctranslate2"))
        other.translate([sentence])
    except UserError as error:
        return ours, f"engine ours; the other can't be used: {error}"
    seconds = {ours: float("inf"), other: float("inf")}
    for _ in range(_ROUNDS):
        for translator in seconds:
            start = clock()
            translator.translate([sentence])
            seconds[translator] = min(seconds[translator], clock() - start)
    chosen, slower = sorted(seconds, key=seconds.__getitem__)
    gain = seconds[slower] / seconds[chosen]
    return chosen, (
        f"engine {chosen.options.engine}, for one sentence {gain:.1f} times as fast here as engine"
        f" {slower.options.engine}"
    )


def _example(tokenizer: Tokenizer) -> str:
    first = END_ID + 1
    pieces = tokenizer.source_pieces(
        list(range(first, min(first + _PIECES, tokenizer.source_vocab_size)))
    )
    return "".join(pieces).replace("▁", " ")
