"""The interface: encodings, shapes of answers, errors, limits, and the same text as the command."""

import http.client
import json
import logging
import random
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlencode

import pytest

from seq2seq import __version__
from seq2seq.cli.main import main
from seq2seq.decoding.attention import AttentionMaps
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.documents.document import Document
from seq2seq.documents.translate import Plan
from seq2seq.search import nan_error
from seq2seq.server.requests import Limits
from tests.server.live import FakeTranslator, Served, serve_fake, serve_models, wait_until

FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="session")
def translate(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """The lines that `seq2seq translate` writes for some lines."""
    tmp_path = tmp_path_factory.mktemp("command")

    def run(lines: list[str], *words: str) -> list[str]:
        (tmp_path / "in").write_text("".join(line + "\n" for line in lines))
        call = f"translate --model {folder} --device cpu --sentences -i {tmp_path}/in"
        assert main([*call.split(), "-o", str(tmp_path / "out"), *words]) == 0
        return (tmp_path / "out").read_text().split("\n")[:-1]

    return run


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_fake(Limits(timeout=30)) as served:
        yield served


def multipart(*fields: tuple[str, str], file: tuple[str, bytes] | None = None) -> tuple[bytes, str]:
    """The body and the type of a form as browsers send it."""
    parts = [
        f'--frontier\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields
    ]
    if file:
        head = f'content-disposition: form-data; name="file"; filename="{file[0]}"'
        parts.append(f"--frontier\r\n{head}\r\n\r\n".encode() + file[1] + b"\r\n")
    return b"".join([*parts, b"--frontier--\r\n"]), "multipart/form-data; boundary=frontier"


# The same text, however it is sent


def test_the_four_encodings_are_understood(server: Served, translate: Callable) -> None:
    lines = ["a man sees the sea.", "", "nobody paints an apple."]
    one, many = translate(lines[:1])[0], translate(lines)
    languages = [("source", "en"), ("target", "de")]
    for expected, pairs in (
        (one, [("q", lines[0]), *languages]),
        (many, [*(("q", line) for line in lines), *languages]),
    ):
        body, kind = multipart(*pairs)
        for answer in (
            server.ask("POST", "/translate", urlencode(pairs).encode(), {"content-type": FORM}),
            server.ask("POST", "/translate", body, {"content-type": kind}),
            server.ask("POST", "/translate?" + urlencode(pairs)),
        ):
            assert answer.json["translatedText"] == expected
    accents = server.ask(
        "POST", "/translate", "q=ä&source=en&target=de".encode(), {"content-type": FORM}
    )
    assert accents.json == server.translate("ä").json
    as_curl_sends_it = json.dumps({"q": lines[0], "source": "en", "target": "de"}).encode()
    answer = server.ask("POST", "/translate", as_curl_sends_it, {"content-type": FORM})
    assert answer.json["translatedText"] == one
    assert server.translate(lines[0]).json["translatedText"] == one
    assert server.translate(lines).json["translatedText"] == many
    assert server.translate([]).json == {"translatedText": []}
    assert server.translate(lines[:1]).json["translatedText"] == [one]


def test_lines_and_sentences_are_translated_and_the_rest_stays(
    server: Served, translate: Callable
) -> None:
    sentences = ["A man sees the sea.", "Nobody paints.", "Two dogs!"]
    first, *others = translate(sentences)
    found = server.translate("\n" + " ".join(sentences) + "\r\n\n" + sentences[0] + "\n")
    joined = " ".join(text.strip() for text in (first, *others))
    assert found.json["translatedText"] == f"\n{joined}\r\n\n{first}\n"


def test_alternatives_are_those_of_the_command(server: Served, translate: Callable) -> None:
    line = "two small dogs carry an apple."
    nbest = [row.split("\t")[1] for row in translate([line], "--nbest", "4")]
    assert server.translate(line, alternatives=0).json["translatedText"] == nbest[0]
    answer = server.translate(line, alternatives=3).json
    assert [answer["translatedText"], *answer["alternatives"]] == list(dict.fromkeys(nbest))
    many = server.translate([line, line], alternatives=1).json
    assert [many["translatedText"][1], *many["alternatives"][1]] == nbest[:2]


def test_details_tell_scores_and_what_looks_wrong(server: Served, translate: Callable) -> None:
    (row,) = translate(["a man µ"], "--scores")
    answer = server.translate("\na man µ", details=True, alternatives=1).json
    (details,) = answer["details"]
    assert details["source"] == "a man µ"
    assert f"{details['score']:.6f}\t{details['text']}" == row
    assert details["unknown"] == 1
    assert "unknown" in details["suspect"]
    assert details["truncated"] == ("output_truncated" in details["suspect"])
    assert [other["text"] for other in details["alternatives"]] != []
    assert details["alternatives"][0]["score"] <= details["score"]
    for output in (details, *details["alternatives"]):
        assert {j for _, j in output["alignments"]} <= set(range(len(output["text"].split())))


def test_an_answer_says_what_is_cut_off(served: Served) -> None:
    assert served.translate("endless").json == {"translatedText": "ENDLESS", "truncated": True}
    assert served.translate(["a", "endless"]).json["truncated"] == [False, True]
    assert served.translate(["a"]).json == {"translatedText": ["A"]}


def test_fifty_clients_get_what_the_command_writes(
    folder: Path, translate: Callable, sentences: list[str]
) -> None:
    """Each has texts of its own, of random sizes; they share batches, and nothing else."""
    generator = random.Random(4)
    requests = [
        [generator.choice(sentences) for _ in range(generator.choice([1, 1, 2, 5]))]
        for _ in range(50)
    ]
    expected = dict(zip(sentences, translate(sentences), strict=True))
    translator = Translator.load(
        folder, TranslationOptions(device="cpu", workers=2, sentences=True)
    )
    with (
        serve_models(
            {("en", "de"): translator}, Limits(cache=0, batch_tokens=200, batch_limit=1)
        ) as served,
        ThreadPoolExecutor(50) as clients,
    ):
        found = clients.map(lambda lines: served.translate("\n".join(lines)).json, requests)
        for lines, answer in zip(requests, found, strict=True):
            assert answer["translatedText"] == "\n".join(expected[line] for line in lines)
        text = served.ask("GET", "/metrics").content.decode()
        assert served.post("/attention", source="a man", target="the sea").status == 200
    (batches,) = re.findall(r"^seq2seq_batch_sentences_count (.+)", text, re.M)
    (lines_in_batches,) = re.findall(r"^seq2seq_batch_sentences_sum (.+)", text, re.M)
    # They did share batches: a line each would be as many batches as lines.
    assert float(batches) < float(lines_in_batches) / 2


# Other routes


def test_languages_settings_and_detection(server: Served) -> None:
    expected = [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]
    assert server.ask("GET", "/languages").json == expected
    settings = server.ask("GET", "/frontend/settings").json
    assert settings["charLimit"] == 5000
    assert (settings["apiKeys"], settings["keyRequired"]) == (False, False)
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert server.post("/detect", q="Ein Hund").json == [{"confidence": 0.0, "language": "en"}]
    answer = server.translate(["a", "b"], source="auto").json
    assert answer["detectedLanguage"] == [{"confidence": 0.0, "language": "en"}] * 2
    assert server.translate("a", source="auto").json["detectedLanguage"]["language"] == "en"


def test_routes_are_those_of_libretranslates_own_tests(server: Served) -> None:
    for path in ("/detect", "/translate"):
        assert server.ask("GET", path).status == 405
        assert server.ask("POST", path).status == 400
    for path in ("/health", "/spec", "/frontend/settings"):
        assert server.ask("GET", path).status == 200
        assert server.ask("POST", path).status == 405
    assert server.ask("GET", "/languages").status == 200
    assert server.ask("GET", "/health").json["version"] == __version__


def test_several_models_are_served_by_their_languages() -> None:
    makers: list[Any] = [FakeTranslator(), FakeTranslator(), FakeTranslator()]
    pairs = [("en", "de"), ("fr", "de"), ("de", "en")]
    with serve_models(dict(zip(pairs, makers, strict=True))) as served:
        german = "Der Hund läuft durch den Schnee und die Kinder lachen."
        assert served.translate(german, source="auto", target="en").json == {
            "translatedText": german.upper(),
            "detectedLanguage": served.post("/detect", q=german).json[0],
        }
        assert [len(fake.calls) for fake in makers] == [0, 0, 1]
        french = "Le chien court dans la neige et les enfants rient."
        assert served.post("/detect", q=french).json[0]["language"] == "fr"
        served.translate(french, source="fr")
        assert [len(fake.calls) for fake in makers] == [0, 1, 1]
        answer = served.translate("x", source="en", target="en")
        assert answer.status == 400
        translated = "en -> de, fr -> de, de -> en"
        assert answer.json["error"] == f"en is not supported: this server translates {translated}"
        assert served.translate("x", source="FR", target="De").status == 200
        # Each text of an array its model; what is German, or in no language, stays.
        texts = [french, german, "The dog runs through the snow.", "42", "<b>"]
        answer = served.translate(texts, source="auto", target="de").json
        assert answer["translatedText"] == [french.upper(), german, texts[2].upper(), "42", "<b>"]
        assert [one["language"] for one in answer["detectedLanguage"]][:3] == ["fr", "de", "en"]
        targets = {row["code"]: row["targets"] for row in served.ask("GET", "/languages").json}
        assert targets == {"en": ["de"], "fr": ["de"], "de": ["en"]}


def test_the_language_of_lines_is_that_of_all_their_words() -> None:
    """Those in brackets, too: only `html` has tags."""
    makers: dict[Any, Any] = {("en", "de"): FakeTranslator(), ("fr", "de"): FakeTranslator()}
    text = "<Le chien court dans la neige et les enfants rient.>"
    with serve_models(makers) as served:
        (detected,) = served.post("/detect", q=text).json
        assert detected["language"] == "fr"
        assert served.translate(text, source="auto").json["detectedLanguage"] == detected


def test_attention_is_that_of_the_translator(server: Served, folder: Path) -> None:
    maps = Translator.load(folder).attention("a man sees", "the sea")
    answer = server.post("/attention", source="a man sees", target="the sea", layer=1, head="2")
    assert answer.json == maps.record("cross", 1, 2)
    found = server.post("/attention", source="a man sees", target="the sea", kind="decoder").json
    assert (found["layers"], found["heads"]) == ([2], [1, 2])
    assert found["rows"] == found["columns"] == maps.target_input
    own = server.post("/attention", source="a man sees", layer="all").json
    assert (len(own["weights"]), len(own["weights"][0][0])) == (2, len(own["rows"]))


def test_nobody_waits_while_attention_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go = threading.Event(), threading.Event()

    def record(*arguments: Any) -> dict:
        begun.set()
        assert may_go.wait(60)
        return original(*arguments)

    original = AttentionMaps.record
    monkeypatch.setattr(AttentionMaps, "record", record)
    with serve_fake() as served, ThreadPoolExecutor(1) as clients:
        answer = clients.submit(served.post, "/attention", source="a man", target="the sea")
        assert begun.wait(60)
        assert served.ask("GET", "/health").status == 200
        may_go.set()
        assert answer.result().status == 200


def test_an_answer_has_no_more_weights_than_a_layer_of_attention(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seq2seq.server.app._MAX_WEIGHTS", 3 * 5 * 5)
    with serve_fake() as served:
        texts = {"source": "ab cd", "target": "ab cd"}
        assert served.post("/attention", **texts).status == 200
        answer = served.post("/attention", **texts, layer="all")
        assert answer.status == 400
        assert "150 weights: ask for one layer" in answer.json["error"]


def test_the_interface_is_described(server: Served) -> None:
    document = server.ask("GET", "/spec").json
    assert document["paths"].keys() >= {"/translate", "/attention", "/languages", "/health"}
    content = document["paths"]["/translate"]["post"]["requestBody"]["content"]
    assert len(content) == 3
    schema = document["components"]["schemas"]["TranslateFields"]
    assert content["application/json"]["schema"]["$ref"].endswith("/TranslateFields")
    assert set(schema["required"]) == {"q", "source", "target"}
    assert schema["properties"]["format"]["enum"] == ["html", "text"]


def test_metrics_count_and_show_nothing_of_the_text(served: Served) -> None:
    for _ in range(2):
        served.translate("a new sea")
    served.ask("GET", "/secret/of/mine")
    accepted = {"accept": "application/openmetrics-text;version=x, text/plain;version=1.0.0"}
    answer = served.ask("GET", "/metrics", headers=accepted)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.content.decode().splitlines()
    for line in (
        'seq2seq_requests_total{route="/translate",status="200"} 2.0',
        'seq2seq_requests_total{route="other",status="404"} 1.0',
        'seq2seq_lines_total{made="new"} 1.0',
        'seq2seq_lines_total{made="before"} 1.0',
        "seq2seq_request_seconds_count 2.0",
        'seq2seq_batch_sentences_bucket{le="1.0"} 1.0',
        "seq2seq_queue_tokens 0.0",
    ):
        assert line in lines
    assert b"sea" not in answer.content
    assert b"secret" not in answer.content


# Errors and limits

BAD = [
    ({"q": None}, "Invalid request: missing q parameter"),
    ({"q": ["a", 5]}, "q[1]: Expected `str`, got `int`"),
    ({"q": "a" * 5001}, "request (5001) exceeds text limit (5000)"),
    ({"q": ["a"] * 101}, "request (101) exceeds batch limit (100)"),
    ({"target": "zz"}, "zz is not supported"),
    ({"format": "pdf"}, "format: Invalid enum value 'pdf'"),
    ({"format": "a - at `$.b"}, "Invalid enum value"),
    ({"alternatives": 4}, "alternatives must be at most 3"),
    ({"alternatives": "9" * 5000}, "alternatives: "),
    ({"q": "\ud800"}, "not valid JSON"),
]
BAD_FOR_ATTENTION = [
    ({"source": " ", "target": "a"}, "one is blank"),
    ({"source": "a", "head": "x"}, "head: Invalid enum value 'x'"),
    ({"source": "a", "layer": 3}, "layer 3: must be from 1 to 2"),
    ({"source": "a man " * 200, "target": "a"}, "at most 255 tokens"),
]


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [("/translate", *bad) for bad in BAD] + [("/attention", *bad) for bad in BAD_FOR_ATTENTION],
)
def test_the_answer_to_a_bad_request_says_what_is_wrong(
    server: Served, path: str, fields: dict, message: str
) -> None:
    answer = server.post(path, **({"q": "a", "source": "en", "target": "de"} | fields))
    assert answer.status == 400
    assert message in answer.json["error"]


MULTIPART = "multipart/form-data; boundary=frontier"
HOSTILE_JSON = [
    b"", b"{", b"[]", b"\xff\xfe", b'{"q": NaN}', b'{"q": 1e999}', b'{"q": "a", "q": "b"}',
    b'{"q":' * 50_000, b'{"q": "\xff"}', b'{"q": ' + b"9" * 10_000 + b"}",
]  # fmt: skip
HOSTILE_FORMS = [
    (FORM, b"q=%ff&source=en&target=de"),
    (FORM, b"q=\xff&source=en&target=de"),
    (FORM, b"&".join(b"q%d=" % i for i in range(1002))),
    ("multipart/form-data; boundary=", b"x"),
    ("multipart/form-data; boundary=f", b"secret"),
    ("multipart/form-data; boundary=f", b"--f\r\n\r\nx"),
    ("multipart/form-data; boundary=frontier", multipart(*[("q", "a")] * 1001)[0]),
    # The first takes time by the square of its size; others let half surrogate pairs in.
    (f"{MULTIPART}; charset=punycode", multipart(("q", "a-" * 500_000))[0]),
    (f"{MULTIPART}; charset=unicode_escape", multipart(("q", "\\ud800"))[0]),
    (f'{MULTIPART}; Charset="utf-7"', multipart(("q", "+2AA-"))[0]),
]


def test_hostile_bodies_are_refused(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    bodies = [("application/json", body) for body in HOSTILE_JSON]
    for kind, body in [*bodies, *HOSTILE_FORMS]:
        answer = server.ask("POST", "/translate", body, {"content-type": kind})
        assert (answer.status, list(answer.json)) == (400, ["error"]), body[:40]
    # Those of libraries have bytes of a body in them.
    assert {record.name for record in caplog.records} <= {"seq2seq"}


def test_other_paths_are_refused_as_json(server: Served) -> None:
    for path in (
        "/nothing", "/translate/", "/page/..%2f..%2fapp.py", "/page/../app.py", "/page/",
        "/download_file/..%2fapp.py", "/download_file/x.txt", "/%00",
    ):  # fmt: skip
        answer = server.ask("GET", path)
        assert (answer.status, list(answer.json)) == (404, ["error"]), path


def test_a_fault_is_one_clients_and_shows_nothing_of_the_text(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("seq2seq"), "propagate", True)
    served.translator.may_go.clear()
    with ThreadPoolExecutor(3) as clients:
        first = clients.submit(served.translate, "first")
        wait_until(lambda: served.translator.calls)
        good, bad = (clients.submit(served.translate, q) for q in ("good", "a fault of mine"))
        wait_until(lambda: served.service.queue_tokens == 2 + 2 + 5)
        served.translator.may_go.set()
        assert first.result().json == {"translatedText": "FIRST"}
        assert good.result().json == {"translatedText": "GOOD"}
        assert (bad.result().status, bad.result().json) == (500, {"error": "internal error"})
    # The answer goes out first.
    wait_until(lambda: "RuntimeError in translate_batch" in caplog.text)
    monkeypatch.setattr(FakeTranslator, "translate_batch", Mock(side_effect=nan_error()))
    answer = served.translate("another of mine")
    assert answer.status == 500
    assert answer.json["error"] in caplog.text
    assert "mine" not in caplog.text


def test_a_full_queue_and_a_text_larger_than_it_are_refused() -> None:
    with serve_fake(Limits(queue_tokens=10)) as served:
        answer = served.translate("a b c d e f g h i j")
        assert (answer.status, answer.headers["retry-after"]) == (413, None)
        served.translator.may_go.clear()
        with ThreadPoolExecutor(1) as clients:
            waiting = clients.submit(served.translate, "a b c d e f")
            wait_until(lambda: served.translator.calls)
            answer = served.translate("a b c d")
            assert answer.status == 503
            assert answer.json["error"].startswith("busy: ")
            assert answer.headers["retry-after"] == "10"
            served.translator.may_go.set()
            assert waiting.result().status == 200


def test_texts_are_split_and_joined_while_others_are_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    others = ((served.translator, "segments"), (Plan, "pairs"), (Plan, "place"), (Document, "join"))
    for owner, name in ((served.service, "translate_sources"), *others):
        original = getattr(owner, name)

        def record(*arguments: Any, original: Any = original) -> Any:
            threads.append(threading.current_thread())
            return original(*arguments)

        monkeypatch.setattr(owner, name, record)
    served.translate("a\nb")
    loop, *others = threads
    assert len(others) >= 4
    assert loop not in others


def test_lines_of_a_client_that_leaves_are_dropped(served: Served) -> None:
    served.translator.may_go.clear()
    with ThreadPoolExecutor(1) as clients:
        first = clients.submit(served.translate, "first")
        wait_until(lambda: served.translator.calls)
        body = urlencode({"q": "second", "source": "en", "target": "de"}).encode()
        leaving = http.client.HTTPConnection("127.0.0.1", served.port)
        leaving.request("POST", "/translate", body, {"content-type": FORM})
        wait_until(lambda: served.service.queue_tokens == 2 + 2)
        leaving.close()
        wait_until(lambda: served.service.queue_tokens == 2)
        served.translator.may_go.set()
        assert first.result().status == 200
    assert served.translator.calls == [["first"]]


def test_translations_are_kept_up_to_the_limit() -> None:
    with serve_fake(Limits(cache=2)) as served:
        for q in ("a", "b", "a", "c", "b", "a"):
            served.translate(q)
    assert served.translator.calls == [["a"], ["b"], ["c"], ["b"], ["a"]]
