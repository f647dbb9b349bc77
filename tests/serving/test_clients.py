"""The programs that people already use, unchanged, against the server."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI
from translate import Translator as PyPITranslator

from seq2seq.decoding.translator import Translator
from tests.serving.live import Served

TEXT = "two small dogs carry an apple."


@pytest.fixture(scope="module")
def expected(folder: Path) -> str:
    return Translator.load(folder).translate([TEXT])[0].text


def test_libretranslatepy(server: Served, expected: str) -> None:
    client = LibreTranslateAPI(server.url)
    assert client.translate(TEXT, "en", "de") == expected
    assert client.languages()[0] == {"code": "en", "name": "English", "targets": ["de"]}
    assert client.detect(TEXT)[0]["language"] == "en"


def test_deep_translator(server: Served, expected: str) -> None:
    client = LibreTranslator("en", "de", api_key="any", custom_url=server.url + "/")
    assert client.translate(TEXT) == expected
    assert client.translate_batch([TEXT, TEXT]) == [expected] * 2


def test_translate_of_pypi(server: Served, expected: str) -> None:
    for source in ("en", "autodetect"):
        client = PyPITranslator(
            provider="libre",
            to_lang="de",
            from_lang=source,
            secret_access_key=None,
            base_url=server.url,
        )
        assert client.translate(TEXT) == expected


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("option", ["-d", "-F", "--data-urlencode"])
def test_curl(server: Served, expected: str, option: str) -> None:
    words = [option, f"q={TEXT}", option, "source=en", option, "target=de"]
    command = ["curl", "-s", *words, f"{server.url}/translate"]
    found = subprocess.run(command, check=True, capture_output=True).stdout
    assert json.loads(found) == {"translatedText": expected}


NODE = """
const form = new FormData();
form.append("q", TEXT); form.append("source", "en"); form.append("target", "de");
const answer = await fetch(URL + "/translate", { method: "POST", body: form });
console.log((await answer.json()).translatedText);
"""
NPM_TRANSLATE = """
import translate from "translate";
translate.engine = "libre"; translate.url = URL + "/translate"; translate.key = "any";
console.log(await translate(TEXT, { from: "en", to: "de" }));
"""
NPM_LIBRETRANSLATE = """
import { translate } from "libretranslate";
console.log(await translate({ query: TEXT, source: "en", target: "de", apiurl: URL }));
console.log(await translate({ query: TEXT, target: "de", apiurl: URL }));
"""


def run_node(code: str, server: Served, folder: Path) -> list[str]:
    names = f"const URL = {json.dumps(server.url)}, TEXT = {json.dumps(TEXT)};\n"
    (folder / "client.mjs").write_text(names + code)
    command = ["node", "client.mjs"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_form_data_as_browsers_send_it(server: Served, expected: str, tmp_path: Path) -> None:
    assert run_node(NODE, server, tmp_path) == [expected]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")
@pytest.mark.parametrize(
    ("package", "code", "lines"),
    [("translate@3.1.0", NPM_TRANSLATE, 1), ("libretranslate@1.0.1", NPM_LIBRETRANSLATE, 2)],
)
def test_clients_of_npm(
    server: Served, expected: str, tmp_path: Path, package: str, code: str, lines: int
) -> None:
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", package]
    installed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip("the npm registry can't be reached")
    assert run_node(code, server, tmp_path) == [expected] * lines
