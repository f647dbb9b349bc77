"""The programs that people already use, unchanged, against the server."""

from pathlib import Path

import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI

from seq2seq.decoding.translator import Translator
from tests.server.live import Served

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
