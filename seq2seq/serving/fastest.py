"""Which engine translates a single sentence fastest on this machine."""

import time
from dataclasses import replace

from seq2seq.data.tokenizer import END_ID
from seq2seq.decoding.translator import TranslationOptions, Translator
from seq2seq.errors import UserError
from seq2seq.storage.checkpoint import TrainedModel

_PIECES = 20
_ROUNDS = 5


def fastest_translator(
    trained: TrainedModel, options: TranslationOptions
) -> tuple[Translator, str]:
    """Make a translator with each engine, measure them in turn, and choose one.

    Returns:
        The faster one, and the reason in words.

    Raises:
        UserError: if even the engine `ours` can't run the model with these options.
    """
    ours = Translator(trained, replace(options, engine="ours"))
    try:
        other = Translator(trained, replace(options, engine="ctranslate2"))
    except UserError as error:
        return ours, f"engine ours; the other can't be used: {error}"
    first = END_ID + 1
    (probe,) = trained.tokenizer.decode([list(range(first, first + _PIECES))])
    seconds = {ours: float("inf"), other: float("inf")}
    for _ in range(_ROUNDS):
        for translator in seconds:
            start = time.perf_counter()
            translator.translate([probe])
            seconds[translator] = min(seconds[translator], time.perf_counter() - start)
    chosen, slower = sorted(seconds, key=seconds.__getitem__)
    gain = seconds[slower] / seconds[chosen]
    return chosen, (
        f"engine {chosen.options.engine}, for one sentence {gain:.1f} times as fast here as engine"
        f" {slower.options.engine}"
    )
