"""Options hold values of the types that they declare, whatever their field."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import get_type_hints

import numpy as np
import pytest

from seq2seq.config import Config
from seq2seq.decoding.config import SamplingConfig, TranslationOptions
from seq2seq.evaluation.scores import ScoreConfig


def option_classes(schema: type) -> Iterator[type]:
    yield schema
    for kind in get_type_hints(schema).values():
        if isinstance(kind, type) and is_dataclass(kind):
            yield from option_classes(kind)


CLASSES = {
    kind
    for schema in (Config, SamplingConfig, TranslationOptions, ScoreConfig)
    for kind in option_classes(schema)
}
OPTIONS = sorted(
    ((kind, field.name) for kind in CLASSES for field in fields(kind)),
    key=lambda option: (option[0].__name__, option[1]),
)


@pytest.mark.parametrize(
    ("kind", "name"), OPTIONS, ids=[f"{kind.__name__}.{name}" for kind, name in OPTIONS]
)
def test_no_option_takes_a_value_of_another_type(kind: type, name: str) -> None:
    declared = get_type_hints(kind)[name]
    wrong = [object(), 1j, b"1"]
    if declared in (int, int | None):
        wrong += ["1", 2.5, 2.0, math.inf, True]
    if declared in (float, float | None):
        wrong += ["0.5", True]
    if declared in (bool, str, str | None):
        wrong += [1]
    if declared in (int, float, bool, str) or isinstance(declared, type):
        wrong += [None]
    for value in wrong:
        with pytest.raises(TypeError, match=f"^{name}="):
            kind(**{name: value})


def test_numbers_of_numpy_are_numbers_and_an_integer_is_a_float() -> None:
    options = SamplingConfig(nbest=np.int64(2), alpha=1, temperature=np.float32(0.5), top_k=None)
    assert (options.nbest, options.alpha, options.temperature) == (2, 1, 0.5)
