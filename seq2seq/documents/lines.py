"""Plain text: each line is a text."""

import re

from seq2seq.documents.document import Document, Languages, Slot, write_text


def read_lines(content: str, languages: Languages) -> Document:
    """Find the lines that aren't empty."""
    found = re.finditer(r"[^\r\n]+", content)
    return Document(content, [Slot((line[0],), *line.span(), write_text) for line in found])
