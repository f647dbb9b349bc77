"""XLIFF 1.0 to 2.1, and what Trados makes of it: the targets of units that aren't translated yet.

A unit is left as it is if it is not to be translated or approved, if its state says that it is
done, or if it has a target with words in it; a target that its state calls new, or in need of a
translation, is replaced. So is a copy of the source that XLIFF 2 calls initial.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise

from seq2seq.documents.document import Languages, Slot, check_languages, suits
from seq2seq.documents.xml import Element, ElementText, Role, opened, read_element_text

_DONE = {"translated", "signed-off", "final", "reviewed"}
_UNTRANSLATED = {"new", "needs-translation"}
_ANGULAR = re.compile(r"(START|CLOSE)_(.*?)(?:_\d+)?")


def read_xliff(root: Element, languages: Languages) -> Iterator[Slot]:
    """Read an XLIFF file; what it has in other languages than those given stays as it is."""
    two = root.get("version").startswith("2")
    source, target = ("srcLang", "trgLang") if two else ("source-language", "target-language")
    unit_name, read_unit = ("segment", _read_segment) if two else ("trans-unit", _read_unit)
    holders = [root] if two else root.find_all("file")
    suited = [x for x in holders if suits(x.get(source), x.get(target), languages)]
    if holders and not suited:
        check_languages(holders[0].get(source), holders[0].get(target), languages)
    for holder in suited:
        units = (element for element in holder.walk() if element.local == unit_name)
        slots = list(chain.from_iterable(map(read_unit, units)))
        if slots and not holder.get(target):
            yield _new_tag(holder, holder.with_attributes(**{target: languages.target}))
        yield from slots


def _new_tag(element: Element, tag: str) -> Slot:
    """Write another start tag, where a target is filled."""
    return Slot((), element.start, element.inside, lambda _: tag)


def _read_segment(segment: Element) -> Iterator[Slot]:
    """Read a segment of XLIFF 2."""
    source, target = segment.find("source"), segment.find("target")
    state = segment.get("state")
    if source is None or segment.inherited("translate") == "no" or state in _DONE:
        return
    span = _read(source)
    now = _read(target) if target is not None else None
    if not span or (now and (state != "initial" or now.text != span.text)):
        return
    start, end, before, after = _around(source, source, target)
    if state == "initial":  # a new state takes the old one's details with it
        tag = segment.with_attributes(state="translated", subState=None)
        before = tag + segment.content[segment.inside : start] + before
        start = segment.start
    yield span.slot(start, end, before, after)


def _read_unit(unit: Element) -> list[Slot]:
    """Read a unit of XLIFF 1, or each of its segments if it has been cut into segments."""
    source, target = unit.find("source"), unit.find("target")
    state = target.get("state") if target else ""
    if source is None or unit.inherited("translate") == "no" or state in _DONE:
        return []
    locks = (value for name, value in unit.attributes.items() if name.endswith(":locked"))
    if unit.get("approved") == "yes" or any(value != "false" for value in locks):
        return []
    cut = unit.find("seg-source")
    segments = _segments(cut) if cut else {}
    if target is not None and _read(target) and state not in _UNTRANSLATED:
        return _fill_segments(unit, segments, target)
    if cut is None or not segments:
        span = _read(source)
        if not span:
            return []
        slot = _fill(span, cut or source, target)
        return [replace(slot, max_characters=_max_characters(unit))]
    if target is not None and not _read(target) and set(_segments(target)) >= set(segments):
        filled = _fill_segments(unit, segments, target)
        return [_new_tag(target, _renewed(target)), *filled] if state and filled else filled
    return _create_segments(cut, target, list(filter(None, map(_read, segments.values()))))


def _max_characters(unit: Element) -> int | None:
    """Return the most characters of a unit's target, if it gives its width in characters."""
    width = unit.inherited("maxwidth")
    in_characters = unit.inherited("size-unit") in ("char", "glyph")
    return int(width) if in_characters and re.fullmatch(r"[0-9]{1,9}", width) else None


def _segments(element: Element) -> dict[str, Element]:
    marks = (x for x in element.walk() if x.local == "mrk" and x.get("mtype") == "seg")
    return {segment.get("mid"): segment for segment in marks}


def _fill_segments(unit: Element, sources: dict[str, Element], target: Element) -> list[Slot]:
    """Fill the segments of a target that are empty and not locked."""
    definitions = chain.from_iterable(x.children for x in unit.children if x.local == "seg-defs")
    locked = {segment.get("id") for segment in definitions if segment.get("locked") == "true"}
    slots = []
    for name, segment in _segments(target).items():
        is_empty = name in sources and name not in locked and not _read(segment)
        if is_empty and (span := _read(sources[name])):
            slots.append(_fill(span, sources[name], segment))
    return slots


def _create_segments(
    cut: Element, target: Element | None, spans: Sequence[ElementText]
) -> list[Slot]:
    """Write a target with the tags and segments of the source; each segment writes a part of it."""
    start, end, before, after = _around(cut, cut, target)
    slots = []
    place = cut.inside  # up to here, the source has been written
    for span, following in pairwise([*spans, None]):
        assert span is not None
        done = following.element.inside if following else cut.close
        head = before + cut.content[place : span.element.inside]
        tail = cut.content[span.element.close : done] + ("" if following else after)
        slots.append(span.slot(start, end, head, tail))
        start, before, place = end, "", done
    return slots


def _fill(span: ElementText, last: Element, target: Element | None) -> Slot:
    """Write a target in place of one that is there, or after the `last` element."""
    return span.slot(*_around(span.element, last, target))


def _around(source: Element, last: Element, target: Element | None) -> tuple[int, int, str, str]:
    """Return where a target goes, and its tags."""
    if target is not None:
        return target.start, target.end, opened(_renewed(target)), f"</{target.name}>"
    name = source.name.removesuffix(source.local) + "target"
    space = f' xml:space="{source.get("xml:space")}"' if source.get("xml:space") else ""
    return last.end, last.end, f"{last.indentation()}<{name}{space}>", f"</{name}>"


def _renewed(target: Element) -> str:
    """Return the start tag of a target of XLIFF 1 for a translation by machine."""
    if not target.get("state"):
        return target.tag
    return target.with_attributes(**{"state": "needs-review-translation", "state-qualifier": None})


def _read(element: Element) -> ElementText:
    return read_element_text(element, _role)


def _role(element: Element) -> Role:
    """Say what the inline elements of XLIFF 1 and 2 are."""
    name, get = element.local, element.get
    if name in ("g", "pc", "mrk"):
        is_fixed = get("translate") == "no" or get("mtype") == "protected"
        return "word" if is_fixed else "around"
    if name in ("bpt", "ept"):
        return ("open" if name == "bpt" else "close"), ("bpt", get("rid") or get("id") or get("i"))
    if name in ("bx", "ex"):
        return ("open" if name == "bx" else "close"), ("bx", get("rid") or get("id"))
    if name in ("sc", "sm"):
        return "open", (name[1], get("id"))
    if name in ("ec", "em"):
        return "close", ("c" if name == "ec" else "m", get("startRef") or get("id"))
    if name == "x" and (tag := _ANGULAR.fullmatch(get("id"))):
        return ("open" if tag[1] == "START" else "close"), tag[2]
    # Angular's values, such as INTERPOLATION and ICU, stand for words; others for tags.
    value = get("id") if name == "x" else get("equiv") if name == "ph" else ""
    is_tag = re.match("LINE_BREAK|HORIZONTAL_RULE|TAG_", value)
    return "word" if value.isupper() and not is_tag else "alone"
