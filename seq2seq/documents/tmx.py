"""TMX: translation memories, of which the units get the variant in the target language."""

from seq2seq.documents.document import Document, Languages, Slot, same_language
from seq2seq.documents.xml import Element, Role, Span, escape, opened, parse, read_span
from seq2seq.errors import UserError


def read_tmx(content: str, languages: Languages) -> Document:
    """Read a TMX file; units without the source language, or with a translation, stay as they are.

    Of several countries' variants the first counts, unless one has just the code that is asked for.
    """
    root = parse(content)
    if root.local != "tmx":
        raise UserError(f"not a TMX file: its first element is {root.name:.50}")
    slots = []
    for unit in (x for body in root.find_all("body") for x in body.find_all("tu")):
        source = _variant(unit, languages.source)
        target = _variant(unit, languages.target)
        if source is None or source is target:
            continue
        span = _read(source)
        if span and target is None:
            slots.append(_new_variant(source, span, languages))
        elif span and target is not None and not (empty := _read(target)):
            seg = empty.element
            slots.append(span.slot(seg.start, seg.end, opened(seg.tag), f"</{seg.name}>"))
    return Document(content, slots)


def _variant(unit: Element, language: str) -> Element | None:
    """Return the variant of a unit that is in a language, if it has a segment."""
    variants = [
        x
        for x in unit.find_all("tuv")
        if x.find("seg") and _language(x) and same_language(_language(x), language)
    ]
    exact = (x for x in variants if _language(x).lower() == language.lower())
    return next(exact, variants[0] if variants else None)


def _language(variant: Element) -> str:
    return variant.get("xml:lang") or variant.get("lang")


def _read(variant: Element) -> Span:
    segment = variant.find("seg")
    assert segment is not None
    return read_span(segment, _role)


def _new_variant(source: Element, span: Span, languages: Languages) -> Slot:
    attribute = "xml:lang" if source.get("xml:lang") else "lang"
    prefix = source.name.removesuffix(source.local)
    language = escape(languages.target, quotes=True)
    head = f'{source.indentation()}<{prefix}tuv {attribute}="{language}"><{prefix}seg>'
    return span.slot(source.end, source.end, head, f"</{prefix}seg></{prefix}tuv>")


def _role(element: Element) -> Role:
    if element.local in ("bpt", "ept"):
        return ("open" if element.local == "bpt" else "close"), element.get("i")
    return "around" if element.local == "hi" else "alone"
