"""HTML: the texts of a document, and the document with others in their place.

Tags, comments and entities stay as they stand. Each text between two tags is translated by itself,
with its white space as a browser shows it; what is not meant for readers, or marked as not to be
translated, stays.
"""

import re
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser

_LEFT_ALONE = frozenset({"script", "style", "code", "pre", "textarea", "kbd", "samp", "var"})
_RAW = frozenset({"script", "style"})  # whose content has no entities
_EMPTY = frozenset(
    "area base br col embed hr img input link meta source track wbr".split()  # noqa: SIM905
)
_SPACES = " \t\n\r\f"  # HTML's


@dataclass(frozen=True)
class Document:
    """A document: its texts, and all that stays between them."""

    lines: list[str]
    """The texts, without line ends."""
    rest: list[str]
    """What stands before each text, and after the last."""

    @classmethod
    def of(cls, content: str) -> "Document":
        """Find the texts of a document, or of a part of one, however malformed."""
        parser = _Parser()
        parser.feed(content)
        parser.close()
        parser.handle_data(parser.rawdata)  # an element at the end that was never closed
        parser.finish_text()
        return cls(parser.lines, parser.rest)

    def join(self, translated: list[str]) -> str:
        """Put translations in the place of the texts."""
        parts = [self.rest[0]]
        for text, rest in zip(translated, self.rest[1:], strict=True):
            parts += [escape(text, quote=False), rest]
        return "".join(parts)


class _Parser(HTMLParser):
    """Divides a document into texts and the rest."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.rest = [""]
        self._text = ""
        # The open elements inside the outermost one that is left alone, itself included.
        self._alone: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._stay(self.get_starttag_text() or "")
        if tag not in _EMPTY and (self._alone or _is_left_alone(tag, dict(attrs))):
            self._alone.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # A slash means nothing to a browser, except in svg and math.
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._stay(f"</{tag}>")
        if tag in self._alone:
            while self._alone.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self._text += data

    def finish_text(self) -> None:
        """Take the text since the last tag, which may have come in parts."""
        text, self._text = self._text, ""
        bare = text.strip(_SPACES)
        if self._alone:
            self.rest[-1] += text if self._alone[-1] in _RAW else escape(text, quote=False)
        elif not bare.strip():
            self.rest[-1] += escape(text, quote=False)
        else:
            start, end = text.split(bare, 1)
            self.rest[-1] += start
            self.lines.append(" ".join(re.split(f"[{_SPACES}]+", bare)))
            self.rest.append(end)

    def handle_comment(self, data: str) -> None:
        self._stay(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._stay(f"<!{decl}>")

    def unknown_decl(self, data: str) -> None:
        self._stay(f"<![{data}]>")

    def handle_pi(self, data: str) -> None:
        self._stay(f"<?{data}>")

    def _stay(self, part: str) -> None:
        self.finish_text()
        self.rest[-1] += part


def _is_left_alone(tag: str, attributes: dict[str, str | None]) -> bool:
    classes = (attributes.get("class") or "").split()
    return tag in _LEFT_ALONE or attributes.get("translate") == "no" or "notranslate" in classes
