"""Measure servers of translations under load: latency and sentences per second.

Every server runs in a process of its own, and answers the same sentences with the same model. The
servers take turns in several rounds, so that a slow minute of the machine affects all of them:

    python scripts/benchmarks/serving.py --model runs/mine --source test.en

A request holds one sentence. Each client sends its next request when the last one is answered.
`one at a time` is what LibreTranslate does: a route that translates text by text, one request
after the other. `plain route` is what developers write themselves: CTranslate2 behind a route of
Starlette, with its own queue and threads. Ours keeps no translations (`--cache 0`).
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path

import turns
import uvicorn
from decoding import MAKERS, System, Work
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from seq2seq.interop.export import write_ctranslate2
from seq2seq.machine.resources import retain_freed_memory
from seq2seq.model_folder import find_model, load_model
from seq2seq.server.guard import listen
from seq2seq.text import read_text_lines

WARM_UP = 20

SYSTEMS = (
    System("ours, engine native, fp32", "served", "fp32"),
    System("ours, engine ctranslate2, float32", "served", "fp32", engine="ctranslate2"),
    System("ours, engine ctranslate2, int8", "served", "int8", engine="ctranslate2"),
    System("one at a time, fp32", "ours", "fp32", workers=2),
    System("CTranslate2, plain route, float32", "ctranslate2", "float32", workers=2),
    System("CTranslate2, plain route, int8", "ctranslate2", "int8", workers=2),
)


def start(system: System, work: Work) -> subprocess.Popen[str]:
    """Start a server on a free port; it writes its address to standard error."""
    if system.make == "served":
        command = [sys.executable, "-m", "seq2seq", "serve", "--model", work.model]
        command += ["--port", "0", "--device", "cpu", "--cache", "0"]
        command += ["--precision", system.precision, "--beam", str(work.beam)]
        command += ["--engine", system.engine]
    else:
        given = json.dumps({"work": asdict(work), "system": asdict(system)})
        command = [sys.executable, __file__, "--serve", given]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def serve(work: Work, system: System) -> None:
    """Run one of the other servers."""
    retain_freed_memory()
    translate = MAKERS[system.make](work, system, load_model(find_model(Path(work.model))))
    # CTranslate2 has a queue and threads of its own.
    turn = threading.Lock() if system.make == "ours" else nullcontext()

    def answer(texts: list[str]) -> JSONResponse:
        with turn:
            return JSONResponse({"translatedText": translate(texts)})

    async def route(request: Request) -> JSONResponse:
        fields = await request.json()
        return await asyncio.to_thread(answer, [fields["q"]])

    app = Starlette(routes=[Route("/translate", route, methods=["POST"])])
    opened = listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{opened.getsockname()[1]} ", file=sys.stderr, flush=True)
    config = uvicorn.Config(app, log_level="critical", access_log=False, http="h11")
    uvicorn.Server(config).run(sockets=[opened])


Round = dict[int, dict[str, float]]
"""What was measured in a round, for each number of clients."""


async def client(port: int, sentences: Iterator[str], seconds: list[float]) -> None:
    """Send requests over one connection, until there are no more sentences."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for sentence in sentences:
            body = json.dumps({"q": sentence, "source": "en", "target": "de"}).encode()
            head = (
                "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            begin = time.perf_counter()
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answer.partition(b"content-length:")[2].split(b"\r\n")[0])
            content = await reader.readexactly(length)
            seconds.append(time.perf_counter() - begin)
            if not answer.startswith(b"http/1.1 200 "):
                raise SystemExit(f"not a translation: {content[:200]!r}")
    finally:
        writer.close()


async def load(port: int, clients: int, sentences: list[str]) -> dict[str, float]:
    """Send the sentences from some clients at once."""
    seconds: list[float] = []
    waiting = iter(sentences)
    begin = time.perf_counter()
    await asyncio.gather(*(client(port, waiting, seconds) for _ in range(clients)))
    total = time.perf_counter() - begin
    ordered = sorted(seconds)
    return {
        "p50": 1000 * ordered[len(ordered) // 2],
        "p95": 1000 * ordered[int(len(ordered) * 0.95)],
        "speed": len(ordered) / total,
    }


def measure(system: System, work: Work, clients: list[int], lines: list[str]) -> Round:
    """Start a server, and measure it with each number of clients."""
    process = start(system, work)
    assert process.stderr is not None
    try:
        first = process.stderr.readline()
        while first and "http://" not in first:
            print(first, end="", file=sys.stderr)
            first = process.stderr.readline()
        if not first:
            raise SystemExit(f"{system.name}: it did not start")
        port = int(first.partition("http://")[2].partition(" ")[0].rpartition(":")[2])
        # Its log of requests is read, since a full pipe would stop the server.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        asyncio.run(load(port, 2, lines[:WARM_UP]))
        return {count: asyncio.run(load(port, count, lines)) for count in clients}
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def print_table(clients: int, results: dict[System, list[Round]]) -> None:
    """Print a table: medians of the rounds, and the range of the speed."""
    print(f"\n### {clients} clients\n" if clients > 1 else "\n### 1 client\n")
    print("| server | p50, ms | p95, ms | sentences/s | range |")
    print("|---|---|---|---|---|")
    for system, rounds in results.items():
        found = [of_round[clients] for of_round in rounds]
        middle = turns.medians(found)
        speeds = [one["speed"] for one in found]
        print(
            f"| {system.name} | {middle['p50']:.0f} | {middle['p95']:.0f} |"
            f" {middle['speed']:.1f} | {min(speeds):.1f} to {max(speeds):.1f} |"
        )


def main() -> None:
    """Run the rounds and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="a run or model folder")
    parser.add_argument("--source", help="sentences to translate")
    parser.add_argument("--requests", type=int, default=500, help="for each number of clients")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--beam", type=int, default=4)
    turns.add_round_options(parser)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*turns.given(arguments.serve, Work, System))
        return
    if not (arguments.model and arguments.source):
        parser.error("--model and --source are needed")
    systems = turns.select(parser, SYSTEMS, arguments.only)
    lines = [line for line in read_text_lines(arguments.source) if line.strip()]
    lines = list(islice(cycle(lines), arguments.requests))
    results: dict[System, list[Round]] = {}
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder, "ctranslate2")
        write_ctranslate2(exported, load_model(find_model(Path(arguments.model))))
        work = Work(model=arguments.model, ctranslate2=str(exported), beam=arguments.beam)
        for _ in range(arguments.rounds):
            for system in systems:
                found = measure(system, work, arguments.clients, lines)
                results.setdefault(system, []).append(found)
    for clients in arguments.clients:
        print_table(clients, results)


if __name__ == "__main__":
    main()
