"""XML as it stands in a file: where its elements and texts are, and texts with tags in them."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import unescape
from typing import Literal
from xml.parsers import expat

from seq2seq.documents.document import Mark, MarkKind, Slot, Text, join_strings, write_text
from seq2seq.errors import UserError

# Beyond these, as libxml2 has them, a file is refused: no document needs more.
_MAX_DEPTH = 256
_MAX_TAG = 10_000_000  # characters of a tag, a comment or an instruction
_MAX_ELEMENTS = 10_000_000

SPACE = " \t\r\n"
_TOKEN = re.compile(
    r"<!--.*?-->|(?P<cdata><!\[CDATA\[(?P<inner>.*?)\]\]>)|<\?.*?\?>"
    r"|<!DOCTYPE(?:[^\[<>\"']++|\"[^\"]*+\"|'[^']*+'"
    r"|\[(?:[^\]<\"']++|\"[^\"]*+\"|'[^']*+'|<!--.*?-->|<\?.*?\?>|<(?!!--|\?))*+\])*+>"
    r"|</(?P<close>[^\s<>]++)[^>]*+>"
    r"|<(?P<open>[^\s</>!?]++)(?:[^\"'<>]++|\"[^\"]*+\"|'[^']*+')*+>"
    r"|(?P<text>[^<]++)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"\s([^\s=]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
# All that XML 1.0 can't contain, even as a reference.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFERENCE = re.compile(r"&(#[0-9]+|#x[0-9a-fA-F]+|lt|gt|amp|quot|apos);")
_LINE_END = r"(?:(?<![ \t])[ \t]+)?+\r?\n[ \t\r\n]*"
_OWN_ENTITY = r"&(?!lt;|gt;|amp;|quot;|apos;)[\w.:-]+;"

Role = Literal["around", "alone", "word"] | tuple[Literal["open", "close"], object]
"""The role of an element in a text: tags around a part of it, one mark together with its content,
or one of two marks that belong together by the object beside it."""


@dataclass(eq=False, slots=True)
class Element:
    """An element, by its places in the content: `<name>` starts, is `inside`, and closes."""

    content: str = field(repr=False)
    name: str
    start: int
    inside: int
    parent: "Element | None" = field(repr=False)
    close: int
    end: int
    children: list["Element"] = field(default_factory=list, repr=False)
    _attributes: dict[str, str] | None = field(default=None, repr=False)

    @property
    def local(self) -> str:
        """The name without its prefix."""
        return self.name.rpartition(":")[2]

    @property
    def tag(self) -> str:
        """The start tag."""
        return self.content[self.start : self.inside]

    @property
    def raw(self) -> str:
        """All of it, as it stands in the file."""
        return self.content[self.start : self.end]

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes by their names with prefixes."""
        if self._attributes is None:  # once: the elements in this one ask for them, too
            self._attributes = {}
            for name, double_quoted, quoted in _ATTRIBUTE.findall(self.tag):
                self._attributes[name] = dereference(double_quoted or quoted)
        return self._attributes

    def get(self, name: str) -> str:
        """Return an attribute, "" without one."""
        return self.attributes.get(name, "")

    def find(self, local: str) -> "Element | None":
        """Return the first child of this name that has the prefix of its parent."""
        return next(iter(self.find_all(local)), None)

    def find_all(self, local: str) -> list["Element"]:
        """Return the children of this name that have the prefix of their parent."""
        name = self.name.removesuffix(self.local) + local
        return [child for child in self.children if child.name == name]

    def walk(self, name: str = "") -> Iterator["Element"]:
        """Yield it and all elements in it, or those of a name, as their start tags follow."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            if name in ("", element.name):
                yield element
            waiting.extend(reversed(element.children))

    def inherited(self, name: str) -> str:
        """Return an attribute of it or of the nearest element around it that has one."""
        value = self.get(name)
        return value if value or self.parent is None else self.parent.inherited(name)

    def with_attributes(self, **values: str | None) -> str:
        """Return the start tag with attributes set, or, with None, taken out."""
        tag = self.tag
        for name, value in values.items():
            new = "" if value is None else f' {name}="{escape(value, quotes=True)}"'
            end = len(tag) - (2 if tag.endswith("/>") else 1)
            start = len(tag[:end].rstrip(SPACE))
            for attribute in _ATTRIBUTE.finditer(tag):
                if attribute[1] == name:
                    start, end = attribute.span()
            tag = tag[:start] + new + tag[end:]
        return tag

    def indentation(self) -> str:
        """Return the white space before it."""
        before = self.content[max(0, self.start - 200) : self.start]
        return before[len(before.rstrip(SPACE)) :]


def dereference(raw: str) -> str:
    """Return characters in place of the references that all XML has."""
    return _REFERENCE.sub(lambda match: unescape(match[0]), raw)


def escape(text: str, *, quotes: bool = False) -> str:
    """Write a text as XML has it, without the characters that XML can't contain."""
    text = _FORBIDDEN.sub("", text).replace("&", "&amp;").replace("<", "&lt;")
    text = text.replace(">", "&gt;").replace("\r", "&#13;")
    return text.replace('"', "&quot;").replace("'", "&apos;") if quotes else text


def parse(content: str) -> Element:
    """Return the root of a well-formed document, or refuse it.

    Entities that the document declares are never expanded, and nothing outside it is read.
    """
    root: Element | None = None
    inner: list[Element] = []  # the elements that are open, the innermost last
    count = end = 0
    for token in _tokens(content, 0, len(content)):
        start, end = token.span()
        name = token["open"]
        if end - start > _MAX_TAG and token.lastgroup not in ("text", "cdata"):
            raise _refusal(content, start, f"a tag of more than {_MAX_TAG:,} characters")
        if name:
            count += 1
            if count > _MAX_ELEMENTS:
                raise _refusal(content, start, f"more than {_MAX_ELEMENTS:,} elements")
            if len(inner) == _MAX_DEPTH:
                raise _refusal(content, start, f"more than {_MAX_DEPTH} elements in one another")
            element = Element(content, name, start, end, inner[-1] if inner else None, end, end)
            if inner:
                inner[-1].children.append(element)
            root = root or element
            if content[end - 2] != "/":
                inner.append(element)
        elif token["close"] and inner:
            element = inner.pop()
            element.close, element.end = start, end
    # A tag without end is read no further than it takes to see that: the parser would read it
    # again for each piece.
    _check(content if end == len(content) else content[: end + 1000])
    if end != len(content):
        raise _refusal(content, end, "not well-formed: a tag without an end")
    assert root is not None
    return root


def _tokens(content: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """Yield tags, comments, texts and so on, as far as there is nothing between them."""
    while match := _TOKEN.match(content, start, end):
        yield match
        start = match.end()


def _check(content: str) -> None:
    """Let expat, which neither expands entities here nor opens files, say what is wrong."""
    parser = expat.ParserCreate("utf-8")

    def keep_entities(*_doctype: object) -> None:
        parser.DefaultHandler = lambda _data: None  # entities are not expanded if there is one

    parser.StartDoctypeDeclHandler = keep_entities
    try:
        parser.Parse(content.encode(errors="surrogatepass"), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise UserError(f"line {error.lineno}: not well-formed XML: {reason}") from None


def _refusal(content: str, place: int, what: str) -> UserError:
    line = content.count("\n", 0, place) + 1
    return UserError(f"line {line}: {what}: the file is left as it is")


def read_string(element: Element) -> str:
    """Return the characters of an element, without what tags there may be."""
    tokens = _tokens(element.content, element.inside, element.close)
    return "".join(dereference(x["text"]) if x["text"] else x["inner"] or "" for x in tokens)


@dataclass(frozen=True)
class ElementText:
    """The text of an element, without the white space around it."""

    element: Element
    start: int
    end: int
    text: Text

    @property
    def raw(self) -> str:
        """The text as it stands in the file."""
        return self.element.content[self.start : self.end]

    def __bool__(self) -> bool:
        """Whether there are words in it."""
        return any(isinstance(item, str) and re.search(r"[^\W\d_]", item) for item in self.text)

    @cached_property
    def cdata(self) -> bool:
        """Whether it is just one CDATA section, as it then stays."""
        match = _TOKEN.fullmatch(self.element.content, self.start, self.end)
        return bool(match and match["cdata"])

    def write(self, text: Text) -> str:
        """Write a translation as this is written."""
        if text == self.text:
            return self.raw
        if self.cdata:
            inside = _FORBIDDEN.sub("", write_text(text))
            return f"<![CDATA[{inside.replace(']]>', ']]]]><![CDATA[>')}]]>"
        written = write_text(text, escape)
        return written.replace("&#13;\n", "\r\n")  # the end of a line

    def slot(self, start: int, end: int, before: str, after: str) -> Slot:
        """Write a translation from `start` to `end`, between two tags.

        The white space around the text is written, too.
        """
        content = self.element.content
        before += content[self.element.inside : self.start]
        after = content[self.end : self.element.close] + after
        return Slot(self.text, start, end, lambda text: before + self.write(text) + after)


def opened(tag: str) -> str:
    """Return the start tag of an element that may have been closed in it."""
    return f"{tag.removesuffix('/>').rstrip(SPACE)}>" if tag.endswith("/>") else tag


def read_element_text(
    element: Element,
    role: Callable[[Element], Role],
    *,
    line_ends: bool = False,
) -> ElementText:
    """Read the content of an element as a text.

    Comments, instructions, entities of the document's own and ends of lines become marks; with
    `line_ends`, these are in the text.
    """
    content = element.content
    inside = content[element.inside : element.close]
    start = element.inside + len(inside) - len(inside.lstrip(SPACE))
    end = max(start, element.inside + len(inside.rstrip(SPACE)))
    items: list[tuple[str | Mark, Role]] = []

    def read(children: Sequence[Element], start: int, end: int) -> None:
        for child in children:
            strings(start, child.start)
            what = role(child)
            if what == "around" and child.inside < child.close:
                items.append((Mark(child.tag), ("open", None)))
                read(child.children, child.inside, child.close)
                items.append((Mark(content[child.close : child.end]), ("close", None)))
            else:
                kind: MarkKind = "word" if what == "word" else "alone"
                items.append((Mark(child.raw, kind), "alone" if what == "around" else what))
            start = child.end
        strings(start, end)

    def strings(start: int, end: int) -> None:
        for token in _tokens(content, start, end):
            text = token["text"] or token["inner"]
            if text is None:
                items.append((Mark(token[0]), "alone"))
                continue
            divided = _LINE_END if token["cdata"] else f"{_LINE_END}|{_OWN_ENTITY}"
            for i, piece in enumerate(re.split(f"({divided})", text)):
                if i % 2 and piece[0] == "&":
                    items.append((Mark(piece, "word"), "word"))
                elif i % 2 and not line_ends:
                    items.append((Mark(piece), "alone"))
                else:
                    items.append((piece if token["cdata"] else dereference(piece), "alone"))

    read(element.children, start, end)
    return ElementText(element, start, end, join_strings(pair(items)))


def pair(items: Sequence[tuple[str | Mark, Role]]) -> Text:
    """Make marks that belong together an opening and a closing one, if they are nested.

    The key None stands for tags of one element, which always are.
    """
    kinds: dict[int, Literal["open", "close"]] = {}
    levels: list[dict[object, int]] = [{}]  # those open in each element, by their keys
    for i, (_, role) in enumerate(items):
        if isinstance(role, str):
            continue
        kind, key = role
        if key is None:
            kinds[i] = kind
            levels.append({}) if kind == "open" else levels.pop()
        elif kind == "open":
            levels[-1].pop(key, None)
            levels[-1][key] = i
        elif key in levels[-1]:
            while key in levels[-1]:
                last = levels[-1].popitem()[1]
            kinds |= {last: "open", i: "close"}
    paired = [item for item, _ in items]
    for i, kind in kinds.items():
        if isinstance(mark := paired[i], Mark):
            paired[i] = Mark(mark.raw, kind)
    return tuple(paired)
