"""What networks and clients do to a server: signals, slow or endless requests, connections."""

import re
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from seq2seq.server.guard import listen
from seq2seq.server.requests import Limits
from tests.server.live import Served, read_to_the_end, serve_by_command, serve_fake, wait_until

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
START = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
LONG = "a man sees the long road home. " * 50


@pytest.fixture
def command(folder: Path) -> Iterator:
    with serve_by_command(folder, "--cache", "0", "--beam", "1") as found:
        yield found


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=30)


def usage(pid: int) -> tuple[int, int]:
    """Resident bytes and threads of a process."""
    status = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return 1024 * int(status["VmRSS"].removesuffix("kB")), int(status["Threads"])


@pytest.mark.posix
@pytest.mark.integration
def test_a_signal_ends_it_after_open_requests(command) -> None:
    process, served, log = command
    # One request at a time, since a second one could come later than the signal.
    with ThreadPoolExecutor(1) as clients:
        answers = [clients.submit(served.translate, [LONG, LONG])]

        def works() -> bool:
            if answers[-1].done():  # before anybody has asked
                answers.append(clients.submit(served.translate, [LONG, LONG]))
            return served.ask("GET", "/health").json["queue_tokens"] > 0

        wait_until(works)
        process.send_signal(signal.SIGTERM)
        assert answers[-1].result().status == 200
    assert process.wait(60) == 0
    *requests, last = log.read_text().splitlines()[1:]
    assert last == "seq2seq: stopped"
    # Time, route, status and milliseconds, and nothing of the text.
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} (/health|/translate) 200 \d+ ms"
    assert all(re.fullmatch(pattern, line) for line in requests)
    assert " /translate 200 " in requests[-1]
    with pytest.raises(ConnectionRefusedError):
        served.ask("GET", "/health")


@pytest.mark.posix
@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_as_soon_as_it_says_that_it_translates(
    folder: Path, number: signal.Signals
) -> None:
    with serve_by_command(folder) as (process, _, log):
        process.send_signal(number)
        assert process.wait(60) == 0
        assert log.read_text().endswith("\nseq2seq: stopped\n")


@pytest.mark.posix
@pytest.mark.integration
def test_the_grace_ends_what_takes_longer(folder: Path) -> None:
    with (
        serve_by_command(folder, "--grace", "1") as (process, served, log),
        connect(served) as slow,
    ):
        slow.sendall(START + b"Content-Length: 9\r\n\r\n")
        served.ask("GET", "/health")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert b" 408 " not in read_to_the_end(slow)  # nor has its own time been over
        assert log.read_text().endswith(" ms\nseq2seq: stopped\n")


@pytest.mark.parametrize("announced", [True, False])
def test_a_gigabyte_is_refused_before_it_is_read(announced: bool) -> None:
    with serve_fake() as served, connect(served) as client:
        length = f"Content-Length: {2**30}" if announced else "Transfer-Encoding: chunked"
        client.sendall(START + f"{length}\r\n\r\n".encode())
        block = b"x" * 2**16 if announced else b"10000\r\n" + b"x" * 2**16 + b"\r\n"
        sent = 0
        client.setblocking(False)
        answer = b""
        while not answer and sent < 2**26:
            try:
                sent += client.send(block)
            except BlockingIOError:
                time.sleep(0.001)
            except ConnectionError:  # the server has answered and closed it
                break
            try:
                answer = client.recv(4096)
            except BlockingIOError:
                continue
        assert sent < 2**26
        client.settimeout(60)
        # The head may come before the rest, after which the server still waits for the body.
        while b"bytes" not in answer and (more := client.recv(4096)):
            answer += more
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"larger than 1,048,576 bytes" in answer
        assert served.ask("GET", "/health").status == 200


def test_a_body_of_a_byte_a_second_is_given_up() -> None:
    with serve_fake(Limits(body_seconds=0.5)) as served, connect(served) as client:
        client.sendall(START + b"Connection: close\r\nContent-Length: 99\r\n\r\nq")
        answer = read_to_the_end(client)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b" within 0.5 s" in answer


def test_malformed_heads_are_refused(server: Served) -> None:
    for head in (
        b"GET / HTTP/1.1",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        HEALTH[:-2] + b"X: " + b"a" * 330_000,
        START + b"Content-Length: -1",
        START + b"Content-Length: 1\r\nContent-Length: 2",
        START + b"Content-Length: " + b"9" * 500,
        START + b"Transfer-Encoding: x",
    ):
        with connect(server) as client:
            with suppress(ConnectionError):  # it has been answered before the end
                client.sendall(head + b"\r\n\r\n")
            assert read_to_the_end(client)[9:12] in (b"400", b"413", b"501"), head[:60]
    assert server.ask("GET", "/health").status == 200


def test_an_answer_does_not_wait_for_the_clients_acknowledgement() -> None:
    with listen("127.0.0.1", 0) as opened:
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_body_with_two_lengths_is_the_last_of_its_connection(server: Served) -> None:
    lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with connect(server) as client:
        client.sendall(START + lengths + HEALTH)
        answers = read_to_the_end(client)
    assert answers.count(b"HTTP/1.1 ") == 1


def test_with_too_many_connections_open_requests_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seq2seq.server.guard.MAX_CONNECTIONS", 5)
    with serve_fake() as served:
        with ExitStack() as idle:
            for _ in range(5):
                idle.enter_context(connect(served))
            # Once the server has accepted all of them.
            wait_until(lambda: served.ask("GET", "/health").status == 503)
        wait_until(lambda: served.ask("GET", "/health").status == 200)


@pytest.mark.slow
def test_ten_thousand_requests_leave_memory_and_threads_as_they_were(command) -> None:
    process, served, _ = command

    def ask(number: int) -> int:
        return served.translate(f"{number:05} dogs").status

    # Every size of a batch costs memory once.
    for texts in range(1, 17):
        assert served.translate([f"{number:05} dogs" for number in range(texts)]).status == 200
    with ThreadPoolExecutor(8) as clients:
        assert set(clients.map(ask, range(2000))) == {200}
        before, threads_before = usage(process.pid)
        for first in range(2000, 12_000, 1000):
            assert set(clients.map(ask, range(first, first + 1000))) == {200}
            now, threads = usage(process.pid)
            print(f"{(now - before) / 2**20:.1f} MB more after {first - 1000:,} requests")
    assert now - before < 20 * 2**20
    assert threads <= threads_before + 10  # asyncio's pool may still have grown
