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
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import turns
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.interop.export import write_ctranslate2
from seq2seq.machine.resources import retain_freed_memory
from seq2seq.model_folder import load_model
from seq2seq.run.folder import find_model
from seq2seq.search import SearchConfig
from seq2seq.server.guard import listen
from seq2seq.text import read_text_lines

EXTRA_TOKENS = 50
WARM_UP = 20


@dataclass(frozen=True)
class System(turns.System):
    """A server of the table."""

    engine: str = "native"


SYSTEMS = (
    System("ours, engine native, fp32", "ours", "fp32"),
    System("ours, engine ctranslate2, float32", "ours", "fp32", "ctranslate2"),
    System("ours, engine ctranslate2, int8", "ours", "int8", "ctranslate2"),
    System("one at a time, fp32", "one_at_a_time", "fp32"),
    System("CTranslate2, plain route, float32", "plain_route", "float32"),
    System("CTranslate2, plain route, int8", "plain_route", "int8"),
)


def start(system: System, arguments: argparse.Namespace, exported: str) -> subprocess.Popen[str]:
    """Start a server on a free port; it writes its address to standard error."""
    if system.make == "ours":
        command = [sys.executable, "-m", "seq2seq", "serve", "--model", arguments.model]
        command += ["--port", "0", "--device", "cpu", "--cache", "0"]
        command += ["--precision", system.precision, "--beam", str(arguments.beam)]
        command += ["--engine", system.engine]
    else:
        words = {
            "make": system.make,
            "precision": system.precision,
            "model": arguments.model,
            "exported": exported,
            "beam": arguments.beam,
            "threads": arguments.threads,
        }
        command = [sys.executable, __file__, "--serve", json.dumps(words)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def serve(words: dict[str, Any]) -> None:
    """Run one of the other servers."""
    retain_freed_memory()
    translate = {"one_at_a_time": one_at_a_time, "plain_route": plain_route}[words["make"]](words)

    def answer(texts: list[str]) -> JSONResponse:
        return JSONResponse({"translatedText": translate(texts)})

    async def route(request: Request) -> JSONResponse:
        fields = await request.json()
        return await asyncio.to_thread(answer, [fields["q"]])

    app = Starlette(routes=[Route("/translate", route, methods=["POST"])])
    opened = listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{opened.getsockname()[1]} ", file=sys.stderr, flush=True)
    config = uvicorn.Config(app, log_level="critical", access_log=False, http="h11")
    uvicorn.Server(config).run(sockets=[opened])


def one_at_a_time(words: dict[str, Any]) -> Any:
    """Make the loop of LibreTranslate around this project's translator."""
    options = TranslationOptions(device="cpu", search=SearchConfig(beam_size=words["beam"]))
    translator = Translator.load(words["model"], options)
    lock = threading.Lock()

    def translate(texts: list[str]) -> list[str]:
        with lock:
            return [translator.translate([text])[0].text for text in texts]

    return translate


def plain_route(words: dict[str, Any]) -> Any:
    """Make CTranslate2's translator, which has a queue and threads of its own."""
    import ctranslate2

    translator = ctranslate2.Translator(
        words["exported"],
        device="cpu",
        inter_threads=words["threads"],
        intra_threads=1,
        compute_type=words["precision"],
    )
    tokenizer = load_model(find_model(Path(words["model"]))).tokenizer
    ids = {piece: i for i, piece in enumerate(tokenizer.pieces(list(range(tokenizer.vocab_size))))}

    def translate(texts: list[str]) -> list[str]:
        pieces = [tokenizer.pieces(source) for source in tokenizer.encode(texts)]
        found = translator.translate_batch(
            pieces,
            beam_size=words["beam"],
            length_penalty=0.6,
            max_decoding_length=max(map(len, pieces)) + EXTRA_TOKENS,
            suppress_sequences=[["<pad>"], ["<s>"]],
        )
        outputs = [[ids[piece] for piece in result.hypotheses[0]] for result in found]
        return tokenizer.decode(outputs)

    return translate


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


def measure(
    system: System, arguments: argparse.Namespace, exported: str, lines: list[str]
) -> dict[int, dict[str, float]]:
    """Start a server, and measure it with each number of clients."""
    process = start(system, arguments, exported)
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
        return {clients: asyncio.run(load(port, clients, lines)) for clients in arguments.clients}
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def print_table(clients: int, results: dict[System, list[dict[int, dict[str, float]]]]) -> None:
    """Print a table: medians of the rounds, and the range of the speed."""
    print(f"\n### {clients} clients\n" if clients > 1 else "\n### 1 client\n")
    print("| server | p50, ms | p95, ms | sentences/s | range |")
    print("|---|---|---|---|---|")
    for system, rounds in results.items():
        found = [of_round[clients] for of_round in rounds]
        middle = {key: statistics.median(one[key] for one in found) for key in found[0]}
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
    parser.add_argument("--threads", type=int, default=2, help="of the plain route")
    turns.add_round_options(parser)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(json.loads(arguments.serve))
        return
    if not (arguments.model and arguments.source):
        parser.error("--model and --source are needed")
    systems = turns.select(parser, SYSTEMS, arguments.only)
    lines = [line for line in read_text_lines(arguments.source) if line.strip()]
    lines = list(islice(cycle(lines), arguments.requests))
    results: dict[System, list[dict[int, dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        exported = str(Path(folder, "ctranslate2"))
        write_ctranslate2(Path(exported), load_model(find_model(Path(arguments.model))))
        for _ in range(arguments.rounds):
            for system in systems:
                found = measure(system, arguments, exported, lines)
                results.setdefault(system, []).append(found)
    for clients in arguments.clients:
        print_table(clients, results)


if __name__ == "__main__":
    main()
