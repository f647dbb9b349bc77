"""The batcher by itself, on a virtual clock: order, fairness, bounds, cancellation, errors."""

import asyncio
import math
import selectors
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.server.batcher import Batcher, BusyError

few = settings(max_examples=50)

BATCH, QUEUE = 10, 40
SECONDS = 0.5  # for each unit of size


class Clock(selectors.SelectSelector):
    """Waits for nothing; adds the time that it should have waited."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen"
            self.now += timeout
        return ready


def run(main: Coroutine) -> "Record":
    """Like asyncio.run, in no time."""
    clock = Clock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)


@dataclass(frozen=True)
class Item:
    """An item of client number `client`; `bad` ones make their batch fail."""

    client: int
    index: int
    size: int
    bad: bool = False


@dataclass(frozen=True)
class Client:
    """A client that comes at a time, with items of some sizes, and may leave."""

    at: float
    key: str
    sizes: list[int]
    bad: int = -1  # the index of its bad item
    leaves_after: float | None = None


@dataclass
class Record:
    """What happened."""

    batches: list[tuple[float, str, list[Item]]] = field(default_factory=list)
    ends: dict[Item, float] = field(default_factory=dict)
    outcomes: dict[int, object] = field(default_factory=dict)
    left: dict[int, float] = field(default_factory=dict)
    most: int = 0


async def play(clients: list[Client], workers: int = 1) -> Record:
    """Let the clients come and go."""
    record = Record()
    loop = asyncio.get_running_loop()

    async def run_batch(key: str, items: list[Item]) -> list[tuple[str, Item]]:
        record.batches.append((loop.time(), key, items))
        record.most = max(record.most, batcher.waiting + batcher.running)
        await asyncio.sleep(SECONDS * sum(item.size for item in items))
        record.ends[items[0]] = loop.time()
        if any(item.bad for item in items):
            raise ValueError("bad")
        return [(key, item) for item in items]

    batcher = Batcher(run_batch, workers=workers, batch_size=BATCH, queue_size=QUEUE)

    async def come(number: int, client: Client) -> None:
        await asyncio.sleep(client.at)
        items = [Item(number, i, size, i == client.bad) for i, size in enumerate(client.sizes)]
        before = batcher.waiting + batcher.running
        try:
            async with asyncio.timeout(client.leaves_after):
                found = await batcher.submit(client.key, items, client.sizes)
            assert found == [(client.key, item) for item in items]
            record.outcomes[number] = "answered"
        except TimeoutError:
            record.left[number] = loop.time()
            record.outcomes[number] = "left"
        except BusyError:
            assert before + sum(client.sizes) > QUEUE
            record.outcomes[number] = "busy"
        except ValueError:
            assert client.bad in range(len(client.sizes))
            record.outcomes[number] = "failed"

    await asyncio.gather(*(come(number, client) for number, client in enumerate(clients)))
    await asyncio.sleep(1000)
    assert (batcher.waiting, batcher.running) == (0, 0)
    return record


sizes = st.lists(st.integers(1, 12), min_size=0, max_size=6).filter(lambda s: sum(s) <= QUEUE)
crews = st.integers(1, 3)
times = st.integers(0, 40).map(lambda n: n / 4)
leaves = st.integers(1, 40).map(lambda n: n / 4 + 0.1)
clients, leaving = (
    st.lists(st.builds(Client, times, st.sampled_from("ab"), sizes, leaves_after=after), max_size=8)
    for after in (st.none(), st.none() | leaves)
)
failing = st.lists(  # small, and at about the same time: they share batches
    st.builds(
        Client,
        at=st.integers(0, 2).map(float),
        key=st.just("a"),
        sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
        bad=st.integers(-2, 1),
    ),
    max_size=6,
)


@few
@given(clients, crews)
def test_every_client_is_answered_or_refused_and_every_item_runs_once(
    some: list[Client], workers: int
) -> None:
    record = run(play(some, workers))
    begun = [item for _, _, items in record.batches for item in items]
    assert len(begun) == len(set(begun))
    for number, client in enumerate(some):
        ran = [item for item in begun if item.client == number]
        assert len(ran) == (len(client.sizes) if record.outcomes[number] == "answered" else 0)


@few
@given(leaving, crews)
def test_batches_are_bounded_of_one_key_and_for_clients_that_have_not_left(
    some: list[Client], workers: int
) -> None:
    record = run(play(some, workers))
    assert record.most <= QUEUE
    assert set(record.outcomes.values()) <= {"answered", "left", "busy"}
    for start, key, items in record.batches:
        assert len(items) == 1 or len(items) * max(item.size for item in items) <= BATCH
        assert {some[item.client].key for item in items} == {key}
        assert all(start <= record.left.get(item.client, start) for item in items)


@few
@given(clients, crews)
def test_while_an_item_waits_every_worker_has_a_batch(some: list[Client], workers: int) -> None:
    record = run(play(some, workers))
    intervals = [(start, record.ends[items[0]]) for start, _, items in record.batches]
    arrivals = {client.at for client in some}
    for moment in arrivals | {time for interval in intervals for time in interval}:
        busy = sum(start <= moment < end for start, end in intervals)
        waits = any(
            some[item.client].at <= moment < start
            for start, _, items in record.batches
            for item in items
        )
        assert busy <= workers
        assert busy == workers or not waits


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6, 9])
def test_what_waits_is_shared_among_the_idle_workers(workers: int) -> None:
    """Three clients with two items each; a batch could hold all of them."""
    record = run(play([Client(0, "a", [1, 1])] * 3, workers))
    sizes = [len(items) for _, _, items in record.batches]
    assert sum(sizes) == 6
    assert max(sizes) == math.ceil(6 / workers)
    assert {start for start, _, _ in record.batches} == {0}


@few
@given(clients, crews)
def test_jobs_take_turns(some: list[Client], workers: int) -> None:
    """While a job waits, over any batches of its key, no other gets two items more than it."""
    record = run(play(some, workers))
    answered = [n for n in range(len(some)) if record.outcomes[n] == "answered"]
    for number in answered:
        client = some[number]
        counts: list[Counter[int]] = []
        left = len(client.sizes)
        for start, key, items in record.batches:
            if key == client.key and start > client.at:
                counts.append(Counter(item.client for item in items))
            left -= sum(item.client == number for item in items)
            if left == 0:
                break
        waited = counts[:-1]  # in the last batch the job ends, and others go on
        for begin, end in combinations(range(len(waited) + 1), 2):
            window = sum(waited[begin:end], Counter())
            assert max(window.values()) <= window[number] + 1


@few
@given(failing, crews)
def test_a_bad_item_fails_its_own_job_only(some: list[Client], workers: int) -> None:
    record = run(play(some, workers))
    for number, client in enumerate(some):
        if record.outcomes[number] != "busy":
            is_bad = client.bad in range(len(client.sizes))
            assert record.outcomes[number] == ("failed" if is_bad else "answered")
