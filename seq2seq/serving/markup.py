"""HTML: the texts of a document, and the document with others in their place.

Tags, comments and entities stay as they stand, and so does what is not meant for readers, or marked
as not to be translated. Texts are translated with their white space as a browser shows it.
"""

import re
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from itertools import islice

from seq2seq.serving.inline import INLINE, Mark, Run, make_run

_LEFT_ALONE = frozenset({"script", "style", "code", "pre", "textarea", "kbd", "samp", "var"})
_RAW = frozenset({"script", "style"})  # whose content has no entities
_EMPTY = frozenset(
    "area base br col embed hr img input link meta source track wbr".split()  # noqa: SIM905
)
_SPACES = " \t\n\r\f"  # HTML's


@dataclass(frozen=True)
class Document:
    """A document: its texts, and all that stays between them."""

    runs: list[Run]
    """The texts, those of a sentence together."""
    rest: list[str]
    """What stands before each run, and after the last."""

    @classmethod
    def of(cls, content: str) -> "Document":
        """Find the texts of a document, or of a part of one, however malformed."""
        parser = _Parser()
        parser.feed(content)
        parser.close()
        parser.handle_data(parser.rawdata)  # an element at the end that was never closed
        parser.finish_run()
        return cls(parser.runs, parser.rest)

    @property
    def lines(self) -> list[str]:
        """What is to be translated, without line ends."""
        return [line for run in self.runs for line in run.lines]

    def join(self, translated: list[str]) -> str:
        """Put translations in the place of the texts."""
        waiting = iter(translated)
        parts = [self.rest[0]]
        for run, rest in zip(self.runs, self.rest[1:], strict=True):
            parts += [run.join(list(islice(waiting, len(run.lines)))), rest]
        return "".join(parts)


class _Parser(HTMLParser):
    """Divides a document into runs and the rest."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.runs: list[Run] = []
        self.rest = [""]
        # The run so far: its texts, and what stands before each and after the last.
        self._texts: list[str] = []
        self._gaps: list[list[Mark]] = [[]]
        self._text = ""  # since the last tag; it may come in parts
        # The open elements inside the outermost one that is left alone, itself included.
        self._alone: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_alone = bool(self._alone) or _is_left_alone(tag, dict(attrs))
        raw = self.get_starttag_text() or ""
        self._add_mark(Mark(raw, "open", tag) if tag in INLINE and not is_alone else raw)
        if tag not in _EMPTY and is_alone:
            self._alone.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # A slash means nothing to a browser, except in svg and math.
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        raw = f"</{tag}>"
        self._add_mark(Mark(raw, "close", tag) if tag in INLINE and not self._alone else raw)
        if tag in self._alone:
            while self._alone.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_comment(self, data: str) -> None:
        self._add_mark(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._add_mark(f"<!{decl}>")

    def parse_html_declaration(self, i: int) -> int:
        if not self.rawdata.startswith("<![", i):
            return super().parse_html_declaration(i)
        # Python's versions differ here, and some raise an error.
        close = "]]>" if self.rawdata.startswith("<![CDATA[", i) else ">"
        found = self.rawdata.find(close, i)
        end = found + len(close) if found >= 0 else len(self.rawdata)
        self._add_mark(self.rawdata[i:end])
        return end

    def handle_pi(self, data: str) -> None:
        self._add_mark(f"<?{data}>")

    def finish_run(self) -> None:
        """End the run: what follows belongs to another one."""
        self._finish_text()
        if self._texts:
            self.runs.append(make_run(self._texts, self._gaps))
            self.rest.append("")
        else:
            self.rest[-1] += "".join(mark.raw for mark in self._gaps[0])
        self._texts, self._gaps = [], [[]]

    def _add_mark(self, mark: Mark | str) -> None:
        """Add a tag of INLINE to the run, or anything else to the rest."""
        if isinstance(mark, Mark):
            self._finish_text()
            self._gaps[-1].append(mark)
        else:
            self.finish_run()
            self.rest[-1] += mark

    def _finish_text(self) -> None:
        """Add the text since the last tag to the run."""
        text, self._text = self._text, ""
        bare = text.strip(_SPACES)
        if self._alone:
            self._add_space(text if self._alone[-1] in _RAW else escape(text, quote=False))
        elif not bare.strip():
            self._add_space(escape(text, quote=False))
        else:
            start, end = text.split(bare, 1)
            self._add_space(start)
            self._texts.append(" ".join(re.split(f"[{_SPACES}]+", bare)))
            self._gaps.append([])
            self._add_space(end)

    def _add_space(self, raw: str) -> None:
        """Add to the run what is not translated."""
        if raw:
            self._gaps[-1].append(Mark(raw, "space"))


def _is_left_alone(tag: str, attributes: dict[str, str | None]) -> bool:
    classes = (attributes.get("class") or "").split()
    return tag in _LEFT_ALONE or attributes.get("translate") == "no" or "notranslate" in classes
