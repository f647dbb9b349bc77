"""Documents and messages of real programs: `DOCUMENTS=FOLDER pytest tests/documents`."""

import os
import re
from pathlib import Path

import pytest

from seq2seq.documents import find_format
from seq2seq.documents.document import Languages
from seq2seq.documents.formats import read_file
from seq2seq.errors import UserError
from tests.documents.hostile import LANGUAGES
from tests.documents.test_formats import check

FOLDER = Path(os.environ.get("DOCUMENTS", "/nonexistent"))
FILES = [path for path in sorted(FOLDER.rglob("*")) if find_format(path.name)]


@pytest.mark.skipif(not FILES, reason="needs DOCUMENTS=FOLDER, files of any format")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_text_keeps_its_marks_and_the_rest_stays(path: Path) -> None:
    content, languages = path.read_bytes(), LANGUAGES
    try:
        read_file(path.name, content, languages)
    except UserError as error:
        named = re.search(r"is (?:from (\S+) to|in) (\S+), but the model", str(error))
        if named is None and "\n" not in str(error):
            pytest.skip("is broken on purpose")
        languages = Languages(named[1] or languages.source, named[2])
    check(content, path.name, languages)
