"""Many workers: none waits for another, and the results come in order."""

import random
import threading
from collections.abc import Callable, Iterator

import pytest

from seq2seq.decoding.many import Chunk, in_order, make_chunks
from seq2seq.decoding.segments import Segment
from seq2seq.decoding.translation import Candidate
from seq2seq.model_folder import TrainedModel
from tests.decoding.translators import new_translator

SECONDS = 20  # far more than a thread needs for anything but a batch
WORKERS = 16


class SimulatedTime:
    """Batches take simulated time, which goes on when all workers have one, or nothing happens."""

    def __init__(self) -> None:
        self.now = self.working = self.idle = 0
        self.input_ended = False
        self.ends: list[int] = []
        self.changed = threading.Condition()

    def translate_batch(self, segments: list[Segment]) -> list[list[Candidate]]:
        width = max(len(segment.source_ids) for segment in segments)
        with self.changed:
            end = self.now + width * (20 + len(segments))
            self.ends.append(end)
            self.changed.notify_all()
            while end > self.now:
                # The first of a full house ends; of others, the first after a long time.
                if (len(self.ends) == WORKERS and end == min(self.ends)) or not (
                    self.input_ended or self.changed.wait(SECONDS)
                ):
                    self.advance()
                elif self.input_ended:
                    break
            self.ends.remove(end)
        return [[Candidate("", 0.0, [], False)] for _ in segments]

    def advance(self) -> None:
        passed = min(self.ends) - self.now
        self.working += passed * len(self.ends)
        self.idle += passed * (WORKERS - len(self.ends))
        self.now += passed
        self.changed.notify_all()

    def lines(self, texts: list[str]) -> Iterator[str]:
        yield from texts
        with self.changed:
            self.input_ended = True
            self.changed.notify_all()


def test_no_worker_waits_while_there_is_text(
    make_trained: Callable[[], TrainedModel], sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, time = random.Random(1), SimulatedTime()
    texts = [" ".join(chance.choices(sentences, k=chance.randint(1, 5))) for _ in range(12 * 1024)]
    translator = new_translator(make_trained(), workers=WORKERS, batch_tokens=None)
    monkeypatch.setattr(translator, "translate_batch", time.translate_batch)
    assert len(list(translator.translate_stream(time.lines(texts)))) == len(texts)
    print(f"idle: {time.idle / (time.idle + time.working):.1%}")
    assert time.working > 0
    assert time.idle <= 0.05 * (time.idle + time.working)


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
