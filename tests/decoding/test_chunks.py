"""Many workers: none waits for another, and the results come in order."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from seq2seq.decoding.many import Chunk, in_order, make_chunks
from seq2seq.decoding.segments import Segment
from seq2seq.decoding.translation import Candidate
from seq2seq.model_folder import TrainedModel
from tests.decoding.translators import new_translator

SECONDS = 20  # far more than a thread needs for anything but a batch
WORKERS = 16


def test_no_worker_waits_while_there_is_text(
    make_trained: Callable[[], TrainedModel], sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch waits until all workers have one; only some of the last ones wait in vain."""
    chance, full_house = random.Random(1), threading.Barrier(WORKERS, timeout=SECONDS)
    met = []

    def translate_batch(segments: list[Segment]) -> list[list[Candidate]]:
        with suppress(threading.BrokenBarrierError):
            full_house.wait()
            met.extend(segments)
        return [[Candidate("", 0.0, [], False)] for _ in segments]

    def lines() -> Iterator[str]:
        for _ in range(32 * 1024):
            yield " ".join(chance.choices(sentences, k=chance.randint(1, 5)))
        full_house.abort()

    translator = new_translator(make_trained(), workers=WORKERS, batch_tokens=None)
    monkeypatch.setattr(translator, "translate_batch", translate_batch)
    assert len(list(translator.translate_stream(lines()))) == 32 * 1024
    assert len(met) > 22 * 1024  # up to eight chunks are read ahead when the text ends


def test_the_number_of_workers_changes_not_a_bit(
    make_trained: Callable[[], TrainedModel], sentences: list[str]
) -> None:
    one, five = (
        new_translator(make_trained(), workers=workers, precision="bf16", batch_tokens=None)
        for workers in (1, 5)
    )
    expected = list(one.translate_stream(sentences * 2, chunk_lines=70))
    assert list(five.translate_stream(sentences * 2, chunk_lines=70)) == expected


def test_results_come_in_order_from_few_items_ahead() -> None:
    read = []

    def items() -> Iterator[int]:
        for number in range(40):
            read.append(number)
            yield number

    first = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert first.wait(SECONDS)  # while the other worker goes on
        if number == 3:
            first.set()
        return -number

    for count, result in enumerate(in_order([work, work], items())):
        assert result == -count
        assert len(read) <= count + 4
    assert count == 39


def test_chunks_are_consecutive_lines() -> None:
    assert list(make_chunks(iter("abc"), 2)) == [Chunk(1, ["a", "b"]), Chunk(3, ["c"])]
