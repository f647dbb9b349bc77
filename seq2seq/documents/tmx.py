"""TMX: translation memories, of which the units get the variant in the target language."""

from collections.abc import Iterator

from seq2seq.documents.document import Languages, Slot, same_language
from seq2seq.documents.xml import Element, ElementText, Role, escape, opened, read_element_text


def read_tmx(root: Element, languages: Languages) -> Iterator[Slot]:
    """Read a TMX file; units without the source language, or with a translation, stay as they are.

    Of several countries' variants the first counts.
    """
    for body in root.find_all("body"):
        for unit in body.find_all("tu"):
            source = _variant(unit, languages.source)
            target = _variant(unit, languages.target)
            if source is None or source is target or not (span := _read(source)):
                continue
            if target is None:
                attribute = "xml:lang" if source.get("xml:lang") else "lang"
                prefix = source.name.removesuffix(source.local)
                language = escape(languages.target, quotes=True)
                head = f'{source.indentation()}<{prefix}tuv {attribute}="{language}"><{prefix}seg>'
                yield span.slot(source.end, source.end, head, f"</{prefix}seg></{prefix}tuv>")
            elif not (empty := _read(target)):
                seg = empty.element
                yield span.slot(seg.start, seg.end, opened(seg.tag), f"</{seg.name}>")


def _variant(unit: Element, language: str) -> Element | None:
    """Return the variant of a unit that is in a language, if it has a segment."""
    for variant in unit.find_all("tuv"):
        code = variant.get("xml:lang") or variant.get("lang")
        if code and variant.find("seg") and same_language(code, language):
            return variant
    return None


def _read(variant: Element) -> ElementText:
    segment = variant.find("seg")
    assert segment is not None
    return read_element_text(segment, _role)


def _role(element: Element) -> Role:
    if element.local in ("bpt", "ept"):
        return ("open" if element.local == "bpt" else "close"), element.get("i")
    return "around" if element.local == "hi" else "alone"
