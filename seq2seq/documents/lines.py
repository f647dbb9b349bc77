"""Plain text: each line is a text."""

import re

from seq2seq.documents.document import Document, Languages, Slot


def read_lines(content: str, languages: Languages) -> Document:
    """Read a text; a carriage return before a line feed belongs to the line's end."""
    found = re.finditer(r"[^\r\n]+", content)
    return Document(content, [Slot((m[0],), *m.span(), lambda text: str(text[0])) for m in found])
