"""Documents of strangers, each read and put together in a process of its own.

The process may use so much memory and processor time, where the system limits them, and is killed
when nobody waits for it any more. It imports no PyTorch. The server sends it requests, each the
name of a method of `_Reading` and its arguments as MessagePack, and reads an answer to each.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from itertools import chain
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar, get_type_hints

from msgspec import convert, msgpack

from seq2seq import system
from seq2seq.decoding.translation import Translation
from seq2seq.documents.document import File, Languages
from seq2seq.documents.formats import read_file
from seq2seq.documents.translate import Plan
from seq2seq.errors import UserError
from seq2seq.server.batcher import BusyError

if TYPE_CHECKING:
    from seq2seq.decoding.alignment import Alignment

logger = logging.getLogger("seq2seq")

R = TypeVar("R")
Spans: TypeAlias = list[tuple[int, int]]

_LENGTH = 8  # bytes before each message
_CALL = "from seq2seq.server.documents import serve; serve()"


class FaultError(Exception):
    """A process failed where it should not: the message names the place, and nothing of a text."""


class Reader:
    """A process that reads one document.

    The requests are those of `_Reading`. Raises UserError if the document is refused.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], threads: ThreadPoolExecutor, name: str, limits: str
    ) -> None:
        self._process, self._threads = process, threads
        self._name, self._limits = name, limits

    async def open(self, content: bytes, languages: Languages, char_limit: int) -> list[str]:
        """Read the document, and return the lines of its plan."""
        return await self._ask(list[str], "open", self._name, content, languages, char_limit)

    async def take(self, translations: Sequence[Translation]) -> list[str]:
        """Take translations of lines, and return lines to be translated again."""
        return await self._ask(list[str], "take", translations)

    async def pairs(self) -> list[tuple[str, Translation | str]]:
        """Return the lines whose words are to be aligned, each with its translation."""
        return await self._ask(list[tuple[str, Translation | str]], "pairs")

    async def join(self, alignments: "Sequence[Alignment]") -> bytes:
        """Return the translated document."""
        links = [(x.source_spans, x.target_spans, x.pieces) for x in alignments]
        return await self._ask(bytes, "join", links)

    async def _ask(self, kind: type[R], *request: object) -> R:
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._threads, self._exchange, msgpack.encode(request))
        if not answer:
            code = await loop.run_in_executor(self._threads, self._process.wait)
            if code > 0:  # neither without memory nor killed
                raise FaultError(f"the process of a document ended with code {code}")
            raise UserError(f"{self._name}: takes {self._limits} to read: divide it")
        outcome, value = msgpack.decode(answer)
        if outcome == "done":
            return convert(value, kind)
        raise UserError(value) if outcome == "refused" else FaultError(value)

    def _exchange(self, message: bytes) -> bytes:
        """Send a message, and return the answer; nothing if the process has ended."""
        writer, reader = self._process.stdin, self._process.stdout
        assert writer is not None
        assert reader is not None
        try:
            writer.write(len(message).to_bytes(_LENGTH) + message)
            writer.flush()
        except OSError:  # a broken pipe, which Windows gives other numbers
            return b""
        return _read(reader)


class Readers:
    """Starts processes, at most `count` at a time, each with limits of memory and seconds."""

    def __init__(self, count: int, *, memory: int, seconds: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._threads = ThreadPoolExecutor(count, "documents")
        self._memory, self._seconds = memory, seconds

    @asynccontextmanager
    async def start(self, name: str) -> AsyncIterator[Reader]:
        """Start a process for a document, and kill it in the end."""
        limits = f"more than {self._seconds} s of processor time, or {self._memory >> 20} MB,"
        async with self._free:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _CALL, str(self._memory), str(self._seconds)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,  # its errors may quote the text
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    **system.out_of_reach(),  # Ctrl-C is for the server, which finishes
                )
            except OSError as error:  # no memory, process or open file is left
                logger.error(f"seq2seq: no process for a document: {error.strerror}")
                raise BusyError from None
            try:
                yield Reader(process, self._threads, name, limits)
            finally:
                process.kill()
                await asyncio.get_running_loop().run_in_executor(self._threads, _reap, process)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was killed, and close its pipes."""
    with suppress(OSError), process:  # what it has not read any more
        pass


class _Reading:
    """A document on its way through the process that reads it."""

    _file: File
    _plan: Plan

    def open(self, name: str, content: bytes, languages: Languages, char_limit: int) -> list[str]:
        self._file = read_file(name, content, languages)
        size = sum(len(item) for item in chain(*self._file.texts) if isinstance(item, str))
        if size > char_limit:
            raise UserError(
                f"file ({size}) exceeds file limit ({char_limit}), 20 times the server's"
                " --char-limit"
            )
        self._plan = Plan(self._file.texts)
        return _readable(self._plan.lines)

    def take(self, translations: list[Translation]) -> list[str]:
        return _readable(self._plan.take(translations))

    def pairs(self) -> list[tuple[str, Translation | str]]:
        pairs = self._plan.pairs()
        return list(zip(_readable(line for line, _ in pairs), (t for _, t in pairs), strict=True))

    def join(self, links: list[tuple[Spans, Spans, Spans]]) -> bytes:
        names = ("source_spans", "target_spans", "pieces")
        alignments: list[Any] = [SimpleNamespace(**dict(zip(names, x, strict=True))) for x in links]
        return self._file.join(self._plan.place(alignments))


def _readable(lines: Iterable[str]) -> list[str]:
    """Replace half surrogate pairs, which no encoding can write."""
    return [line.encode(errors="replace").decode() for line in lines]


def serve() -> None:
    """Answer the requests on standard input, within the limits that the arguments give."""
    memory, seconds = map(int, sys.argv[1:])
    system.lower_priority()  # translations come first
    system.limit("AS", memory, memory)
    system.limit("CPU", seconds, seconds + 1)
    system.limit("CORE", 0, 0)
    for number in system.signals("SIGXCPU"):
        signal.signal(number, signal.SIG_DFL)
    reading = _Reading()
    try:
        while message := _read(sys.stdin.buffer):
            content = msgpack.encode(_answer(reading, *msgpack.decode(message)))
            sys.stdout.buffer.write(len(content).to_bytes(_LENGTH) + content)
            sys.stdout.buffer.flush()
    except MemoryError:
        os._exit(0)  # without Python's own end, which needs memory


def _answer(reading: _Reading, name: str, *arguments: object) -> tuple[str, object]:
    """Call a method; return `done`, `refused` or `failed`, and its result or the reason."""
    method = getattr(reading, name)
    kinds = list(get_type_hints(method).values())[:-1]
    try:
        return "done", method(*map(convert, arguments, kinds))
    except UserError as error:
        return "refused", str(error)
    except MemoryError:
        raise
    except Exception as error:
        # The message of an error may hold text, which no log may have.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return "failed", f"{type(error).__name__} in {frame.name}, {frame.filename}:{frame.lineno}"


def _read(stream: IO[bytes]) -> bytes:
    """Read a message; nothing at the end, even if that is within a message."""
    size = int.from_bytes(stream.read(_LENGTH))
    message = stream.read(size)
    return message if len(message) == size else b""
