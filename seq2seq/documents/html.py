"""HTML: the texts of a document, and the document with these texts translated.

Tags and comments stay as they stand, and so does what is not meant for readers, or marked as not to
be translated. Texts are translated with their white space as a browser shows it.

A translation can't add a tag: it is escaped, and tags, comments and raw text begin and end here
where they do in a browser (HTML standard, 13.2.5). Where that depends on what only a whole browser
knows, and one of its ways to read the document leads to another text, the rest stays as it stands.
"""

import re
from dataclasses import dataclass
from functools import partial
from html import escape, unescape

from seq2seq.documents.document import Languages, Mark, Slot, write_text
from seq2seq.documents.spans import Piece, in_place, tag_piece

_TAGS = (
    "a abbr b bdi bdo big cite del dfn em font i img ins label mark q s small span strike strong"
    " sub sup time tt u wbr"
)
_INLINE = frozenset(_TAGS.split())  # they do not end a sentence
_CODE = frozenset({"code", "kbd", "samp", "var"})  # words for a reader, not to be translated
# Whose content is a text up to the end tag, whatever is in it: `noscript` where scripts run.
_RAW = frozenset("script style textarea title xmp iframe noembed noframes noscript".split())  # noqa: SIM905
_LEFT_ALONE = _RAW - {"title", "noscript"} | _CODE | {"math", "plaintext", "pre"}
# svg and math, inside which nothing is raw text, and elements inside which it may be again.
_FOREIGN = frozenset(
    "svg math foreignobject desc title mi mo mn ms mtext annotation-xml".split()  # noqa: SIM905
)
_OUTER = ("svg", "math", "title")
_EMPTY = frozenset(
    "area base br col embed hr img input link meta source track wbr".split()  # noqa: SIM905
)
# Elements whose end tag may be left out: elements that may contain others of the same name, and
# the tags that end them where none of those is open (HTML standard, 13.1.2.4).
_BLOCKS = (
    "address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption"
    " figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr li main menu nav ol p pre search"
    " section summary table tbody td tfoot th thead tr ul"
)
_CELL_ENDS = "td th tr tbody tfoot thead /tr /tbody /tfoot /thead /table"
_OMITTED_ENDS = {
    "p": ("button object svg", f"{_BLOCKS} /{_BLOCKS.replace(' ', ' /')}"),
    "li": ("ul ol menu", "li /ul /ol /menu"),
    "dt": ("dl div", "dt dd /dl /div"),
    "dd": ("dl div", "dt dd /dl /div"),
    "rt": ("ruby", "rt rp /ruby"),
    "rp": ("ruby", "rt rp /ruby"),
    "option": ("", "option optgroup hr /optgroup /select /datalist"),
    "optgroup": ("", "optgroup hr /select"),
    "caption": ("table", f"{_CELL_ENDS} col colgroup"),
    "td": ("table", _CELL_ENDS),
    "th": ("table", _CELL_ENDS),
    "tr": ("table", "tr tbody tfoot thead /tbody /tfoot /thead /table"),
    "thead": ("table", "tbody tfoot /table"),
    "tbody": ("table", "tbody tfoot /table"),
    "tfoot": ("table", "tbody /table"),
}
_ICONS = re.compile(r"material-(?:icons|symbols)\b")
_SPACES = " \t\n\r\f"  # HTML's
_escape = partial(escape, quote=False)
# Python's `unescape` reads no more than 4,300 digits, and no character has more than seven.
_NUMBER = re.compile(r"&#0*([0-9]{1,8})[0-9]*;?")
_ATTRIBUTE = (
    rf"[^{_SPACES}/>][^{_SPACES}/>=]*"
    rf"(?:[{_SPACES}]*=[{_SPACES}]*(?:\"[^\"]*(?:\"|\Z)|'[^']*(?:'|\Z)|[^{_SPACES}\"'>][^{_SPACES}>]*)?)?"
)
_MARKUP = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"  # a comment
    r"|<(?:[!?]|/(?![a-zA-Z]))[^>]*(?:>|\Z)"  # read as a comment, too, or a doctype
    rf"|<(?P<slash>/?)(?P<name>[a-zA-Z][^{_SPACES}/>]*)"
    rf"(?P<attributes>(?:[{_SPACES}]+|/(?!>)|{_ATTRIBUTE})*)(?:(?P<end>/?>)|\Z)",
    re.DOTALL,
)


def read_html(content: str, _languages: Languages) -> list[Slot]:
    """Find the texts of a document, or of a part of one, however malformed."""
    return _Parser(content).slots


@dataclass
class _Switched:
    """An element that is left alone, or one in it that is translated."""

    name: str
    is_alone: bool
    depth: int = 0
    """The open elements whose end tags could be taken for its own, and itself."""

    def is_over(self, name: str, change: int) -> bool:
        """Count a start (+1) or end tag (-1), and tell whether it ends the element."""
        inner, _ = _OMITTED_ENDS.get(self.name, (self.name, ""))
        if name in inner.split() or (name == self.name and self.depth < 2):
            self.depth += change
        return not self.depth

    def ends_before(self, tag: str) -> bool:
        """Tell whether the end tag is left out before a tag."""
        _, ends = _OMITTED_ENDS.get(self.name, ("", ""))
        return self.depth == 1 and tag in ends.split()


class _Parser:
    def __init__(self, content: str) -> None:
        self.slots: list[Slot] = []
        self._content = content
        # Pieces that are divided by nothing but white space and tags in _INLINE.
        self._run: list[Piece] = []
        # The open elements that are left alone, and those in them that are translated, in turn.
        self._switched: list[_Switched] = []
        # Where the innermost one begins if it is left alone, and whether it may be a word in a
        # sentence.
        self._start, self._is_word, self._is_icon = 0, False, False
        # The open elements inside which raw text may not be raw; "?" is never closed.
        self._open: list[str] = []
        # The ends of texts that may be raw: no tag may begin before one and end after it.
        self._unsure: set[int] = set()
        self._found: dict[str, int] = {}
        self._parse()

    def _parse(self) -> None:
        content, end_before = self._content, 0
        while match := _MARKUP.search(content, end_before):
            self._add_text(end_before, match.start())
            end = self._end(match)
            self._unsure = {place for place in self._unsure if place > match.start()}
            if end is None or min(self._unsure, default=end) < end:
                end_before = len(content)
                break
            self._add_markup(match)
            # After a name, what is raw text for a browser; otherwise, the rest of a CDATA section.
            if match["name"]:
                self._add_text(match.end(), end)
            end_before = end
        self._add_text(end_before, len(content))
        self._finish_run()

    def _end(self, match: re.Match[str]) -> int | None:
        """Return where markup ends, with the raw text after it; None if that is not known.

        Which text is raw depends on whether scripts run, and on whether an element is of HTML or of
        svg or math. If it may be both, it is read as tags, and noted where raw text would end.
        """
        content, end = self._content, match.end()
        name = match["name"].lower() if match["end"] and not match["slash"] else ""
        if content.startswith("<![CDATA[", match.start()):
            close = self._find(r"(?<=\]\]>)", match.start() + len("<![CDATA["))
            if content.find("<", end, close) < 0:
                return max(end, close)
            return None if self._open else end
        if name == "plaintext" and not self._open:
            return len(content)
        if name not in _RAW:
            return end
        close = self._find(f"</{name}(?=[{_SPACES}/>])", end)
        commented = name == "script" and self._find("<!--", end) < close
        if commented and self._find("<script", end) < close:
            return None  # a script in a comment in a script
        if not self._open and name != "noscript":
            return close
        if close < len(content):
            self._unsure.add(close)
        return end

    def _find(self, pattern: str, start: int) -> int:
        """Return the index of the next match, or the length of the document."""
        if self._found.get(pattern, -1) < start:
            match = re.compile(pattern, re.IGNORECASE | re.ASCII).search(self._content, start)
            self._found[pattern] = match.start() if match else len(self._content)
        return self._found[pattern]

    def _add_markup(self, match: re.Match[str]) -> None:
        """Add a tag or a comment to the run or to the rest."""
        name = match["name"].lower() if match["end"] else ""
        is_end = bool(name and match["slash"])
        top = self._open[-1] if self._open else ""
        closes_itself = match["end"] == "/>" and bool(top or name in ("svg", "math"))
        begins = bool(name) and not is_end and not closes_itself and name not in _EMPTY
        self._end_omitted("/" * is_end + name)
        if begins and not self._alone and _is_left_alone(name, match["attributes"]):
            self._switched.append(_Switched(name, is_alone=True))
            self._start = match.start()
            self._is_word = name in _INLINE | _CODE | {"mat-icon"}
            self._is_icon = self._is_word and _is_icon(name, match["attributes"])
        elif begins and self._alone and self._is_translated(name, match["attributes"]):
            self._switched.append(_Switched(name, is_alone=False))
        is_comment = match[0].startswith("<!--") and match[0].endswith("-->")
        if is_comment and not self._alone:
            self._run.append(Piece(*match.span(), Mark(match[0]), "<!>"))
        elif is_comment and self._is_word:
            pass
        elif name in _INLINE and not self._alone:
            piece = tag_piece(*match.span(), match[0])
            self._run.append(piece._replace(tag=f"<{name}>"))
        elif not self._is_word or name not in _INLINE | _CODE | {"mat-icon"}:
            self._finish_run()
        if name and (begins or is_end):
            self._count(name, match.end(), 1 if begins else -1)
        # An element whose end a browser may read in another way stays open.
        if is_end:
            if name == top:
                self._open.pop()
            elif top and name in _FOREIGN:
                self._open.append("?")
        elif name == "frameset" or (top == "select" and name in _FOREIGN):
            self._open.append("?")
        elif (name == "select" and top != "select") or (
            begins and name in (_FOREIGN if top else _OUTER)
        ):
            self._open.append(name)

    def _is_translated(self, name: str, attributes: str) -> bool:
        """Tell whether an element inside one that is left alone is to be translated."""
        is_block = not self._is_word and name not in _LEFT_ALONE
        return is_block and _attributes(attributes).get("translate", "").lower() == "yes"

    @property
    def _alone(self) -> bool:
        return bool(self._switched) and self._switched[-1].is_alone

    def _count(self, name: str, end: int, change: int) -> None:
        """Leave the element that is left alone, or translated inside such a one, at its end."""
        if not self._switched or not self._switched[-1].is_over(name, change):
            return
        if not self._switched.pop().is_alone:
            self._finish_run()
        elif self._is_word:
            raw = self._content[self._start : end]
            mark = Mark(raw, "alone" if self._is_icon else "word")
            self._run.append(Piece(self._start, end, mark, "<!>" * self._is_icon))
        self._is_word = False

    def _end_omitted(self, tag: str) -> None:
        """Leave such elements whose end tag is left out before a tag."""
        while self._switched and self._switched[-1].ends_before(tag):
            self._switched.pop()
            self._finish_run()

    def _finish_run(self) -> None:
        """End the run: what follows belongs to another one."""
        self.slots += in_place(self._content, self._run, lambda text, *_: write_text(text, _escape))
        self._run, self._is_word = [], False

    def _add_text(self, start: int, end: int) -> None:
        """Add a text to the run, as it is shown, with the white space around it by itself."""
        raw = self._content[start:end]
        if not raw or self._alone:
            return
        first = start + len(raw) - len(raw.lstrip(_SPACES))
        last = max(first, start + len(raw.rstrip(_SPACES)))
        visible = unescape(_NUMBER.sub(r"&#\1;", self._content[first:last]))
        visible = re.sub(f"[{_SPACES}]+", " ", visible)
        for span, text in (((start, first), " "), ((first, last), visible), ((last, end), " ")):
            if span[0] < span[1]:
                self._run.append(Piece(*span, text))


def _attributes(attributes: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for attribute in re.findall(_ATTRIBUTE, attributes):
        key, _, value = attribute.partition("=")
        values.setdefault(key.strip(_SPACES).lower(), value.strip(_SPACES + "\"'"))
    return values


def _is_left_alone(name: str, attributes: str) -> bool:
    values = _attributes(attributes)
    is_marked = (
        values.get("translate", "").lower() == "no"
        or "notranslate" in values.get("class", "").split()
    )
    return name in _LEFT_ALONE or is_marked or _is_icon(name, attributes)


def _is_icon(name: str, attributes: str) -> bool:
    """Tell whether an element names a picture of a font: `<i class="material-icons">home</i>`."""
    classes = _attributes(attributes).get("class", "").split()
    return name == "mat-icon" or any(map(_ICONS.match, classes))
