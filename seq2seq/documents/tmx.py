"""TMX: translation memories, of which the units get the variant in the target language."""

from collections.abc import Iterator

from seq2seq.documents.document import Languages, Slot, language_of, same_language
from seq2seq.documents.xml import Element, ElementText, Role, escape, opened, read_element_text


def read_tmx(root: Element, languages: Languages) -> Iterator[Slot]:
    """Read a TMX file; units without the source language, or with a translation, stay as they are.

    Of several countries' variants the first counts.
    """
    header = root.find("header")
    memory_source = header.get("srclang") if header else ""
    for body in root.find_all("body"):
        for unit in body.find_all("tu"):
            source, target = _variants(unit, languages, unit.get("srclang") or memory_source)
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


def _variants(
    unit: Element, languages: Languages, unit_source: str
) -> tuple[Element | None, Element | None]:
    """Return the variants of a unit that are in the two languages, if they have a segment.

    If the unit's own source has a code of another length than the model's, such as `eng`, the only
    other variant that may be in the target language is.
    """
    variants: dict[str, Element] = {}
    for variant in unit.find_all("tuv"):
        code = variant.get("xml:lang") or variant.get("lang")
        if code and variant.find("seg"):
            variants.setdefault(language_of(code), variant)
    source, target = (variants.get(language_of(x)) for x in (languages.source, languages.target))
    if source is None and same_language(unit_source, languages.source):
        source = variants.pop(language_of(unit_source), None)
        others = [x for code, x in variants.items() if same_language(code, languages.target)]
        if target is None and len(others) == 1:
            target = others[0]
    return source, target


def _read(variant: Element) -> ElementText:
    segment = variant.find("seg")
    assert segment is not None
    return read_element_text(segment, _role)


def _role(element: Element) -> Role:
    if element.local in ("bpt", "ept"):
        return ("open" if element.local == "bpt" else "close"), element.get("i")
    return "around" if element.local == "hi" else "alone"
