"""Documents and messages of real programs: `DOCUMENTS=FOLDER pytest tests/documents`."""

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from seq2seq.documents.document import Languages, Mark, write_text
from seq2seq.documents.formats import find_format, read_file
from seq2seq.documents.translate import Plan
from seq2seq.errors import UserError
from tests.documents.hostile import LANGUAGES
from tests.documents.marks import run_plan
from tests.documents.test_formats import check
from tests.documents.test_placeholders import ENGINES

FOLDER = Path(os.environ.get("DOCUMENTS", "/nonexistent"))
MESSAGES = ("arb", "json", "po", "properties", "strings", "stringsdict", "ts", "xml")
FILES = [path for path in sorted(FOLDER.rglob("*")) if find_format(path.name)]
DIALECTS = {
    "C, Java, Apple": r"%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh?|ll?|[qjztL])?[diouxXeEfgGcs@]",
    "Python": r"%\(\w+\)[sd]",
    "braces": r"\{\w*\}",
    "i18next": r"\{\{[^{}]*\}\}",
    "Ruby": r"%\{\w+\}",
    "Symfony": r"%[a-z]\w+%",
    "Qt": r"%L?\d",
}


@pytest.mark.skipif(not FILES, reason="needs DOCUMENTS=FOLDER, files of any format")
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_text_keeps_its_tags_its_tabs_and_its_placeholders(path: Path, engine: object) -> None:
    content, languages = path.read_bytes(), LANGUAGES
    try:
        read_file(path.name, content, languages)
    except UserError as error:
        named = re.search(r"is (?:from (\S+) to|in) (\S+), but the model", str(error))
        if named is None and "\n" not in str(error):
            pytest.skip("is broken on purpose")
        languages = Languages(named[1] or languages.source, named[2])
    check(content, path.name, languages)
    file = read_file(path.name, content, languages)
    for source, target in zip(file.texts, run_plan(Plan(file.texts), engine), strict=True):
        tags = [Counter(i.raw for i in text if isinstance(i, Mark)) for text in (source, target)]
        assert tags[0] == tags[1]
        texts = write_text(source), write_text(target)
        assert texts[0].count("\t") == texts[1].count("\t")
        for dialect in DIALECTS.values() if find_format(path.name) in MESSAGES else ():
            counts = [Counter(re.findall(dialect, text)) for text in texts]
            assert counts[0] == counts[1], texts
