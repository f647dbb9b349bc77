"""Values that are language, and values that are code."""

import json
import re

import pytest

from seq2seq.documents.formats import read_file
from seq2seq.documents.placeholders import is_language
from tests.documents.hostile import LANGUAGES

CODE = r"""#facade|rgba(0,0,0,.5)|550e8400-e29b-41d4-a716-446655440000|en-US|zh-Hans-CN|pt_BR
MM/DD/YYYY|YYYY-MM-DD HH:mm:ss|dddd, MMMM Do YYYY|h:mm a|v1.2.3|1.0.0-beta.1|12px|1.5rem|10MB|PT15M
application/json|text/html; charset=utf-8|2024-05-01T12:00:00Z|aGVsbG8gd29ybGQ=|userName|mdi:home
/usr/share/a|./img/logo.png|src/Button|C:\Program Files\X|https://a.org/b?c=d|me@a.org|localhost:80
0 4px 8px rgba(0, 0, 0, 0.1)|1px solid #ccc|calc(100% - 10px)|*/5 * * * *|@daily|a.org|{{n}}px
d41d8cd98f00b204e9800998ecf8427e|user_name|USER_NAME|common.save|UTC+02:00|Europe/Berlin|--flag
M12 2C6.48 2 2 6.48 2 12|{"a":"b"}|^[a-z0-9]+$|%Y-%m-%d|{{ user }}|@:common.ok|utf-8|Node.js"""
LANGUAGE = """Save|OK|E-mail|iPhone|CANCEL|Save...|Name:|Password*|Wi-Fi|Don't|Größe|日本語|年|हिन्दी
(optional)|Yes/No|Q&A|file(s)|{{n}} item(s)|{{n}} of {{m}} files|5 minutes|1 of 3|Version v1.2.3
Visit https://a.org|Format: MM/DD/YYYY|enable 2FA|GitHub repository|Save (Ctrl+S)|&File|il y a {0}
up to 10MB|<b>Save</b>|{name}'s dog|RabbitMQ-Passwort|Ein-/Ausschalten|km|-day|Delete userName?"""


@pytest.mark.parametrize(("values", "expected"), [(CODE, False), (LANGUAGE, True)])
def test_code_is_told_from_language(values: str, expected: bool) -> None:
    assert [x for x in re.split(r"[|\n]", values) if is_language((x,)) != expected] == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps({"a": "mdi:home", "b": "Save"})),
        ("a.arb", json.dumps({"a": "mdi:home", "b": "Save"})),
        ("a.properties", "a=mdi:home\nb=Save"),
        ("a.strings", '"a" = "mdi:home";"b" = "Save";'),
        ("a.xml", "<resources><string>mdi:home</string><string>Save</string></resources>"),
    ],
)
def test_values_that_are_code_stay(name: str, content: str) -> None:
    assert read_file(name, content.encode(), LANGUAGES).texts == [("Save",)]
