"""XLIFF 1.0 to 2.1, and what Trados makes of it: the targets of units that aren't translated yet.

A unit is left as it is if it is not to be translated or approved, if its state says that it is
done, or if it has a target with words in it; a target that its state calls new, or in need of a
translation, is replaced. So is a copy of the source that XLIFF 2 calls initial.
"""

import re
from collections.abc import Sequence

from seq2seq.documents.document import (
    Document,
    Filled,
    Languages,
    Slot,
    Text,
    check_languages,
    same_language,
)
from seq2seq.documents.xml import Element, Role, Span, opened, parse, read_span
from seq2seq.errors import UserError

_DONE = {"translated", "signed-off", "final", "reviewed"}
_UNTRANSLATED = {"new", "needs-translation"}
_ANGULAR = re.compile(r"(START|CLOSE)_(.*?)(?:_\d+)?")


def read_xliff(content: str, languages: Languages) -> Document:
    """Read an XLIFF file; what it has in other languages than those given stays as it is."""
    root = parse(content)
    if root.local != "xliff":
        raise UserError(f"not an XLIFF file: its first element is {root.name:.50}")
    slots: list[Slot] = []
    groups: list[range] = []
    two = root.get("version").startswith("2")
    source, target = ("srcLang", "trgLang") if two else ("source-language", "target-language")
    holders = [root] if two else root.find_all("file")
    suited = [
        holder
        for holder in holders
        if same_language(holder.get(source), languages.source)
        and same_language(holder.get(target), languages.target)
    ]
    if not suited and holders:
        check_languages(holders[0].get(source), holders[0].get(target), languages)
    for holder in suited:
        before = len(slots)
        if not holder.get(target):
            slots.append(_name_target(holder, target, languages.target))
        for element in holder.walk():
            if two and element.local == "segment":
                slots += _read_segment(element)
            elif not two and element.local == "trans-unit":
                unit = _read_unit(element)
                # Those of a new target: the first takes its place, the others go behind it.
                if len(unit) > 1 and unit[0].end == unit[1].start == unit[1].end:
                    groups.append(range(len(slots), len(slots) + len(unit)))
                slots += unit
        if all(not slot.text for slot in slots[before:]):
            del slots[before:]
    return Filled(content, slots, groups)


def _name_target(holder: Element, attribute: str, language: str) -> Slot:
    tag = holder.with_attributes(**{attribute: language})
    return Slot((), holder.start, holder.inside, lambda _: tag)


def _read_segment(segment: Element) -> list[Slot]:
    """Read a segment of XLIFF 2."""
    source, target = segment.find("source"), segment.find("target")
    state = segment.get("state")
    if source is None or segment.inherited("translate") == "no" or state in _DONE:
        return []
    span = _read(source)
    now = _read(target) if target is not None else None
    if not span or (now and (state != "initial" or now.text != span.text)):
        return []
    slot = _fill(span, source, target)
    if state == "initial":  # a new state takes the old one's details with it
        tag = segment.with_attributes(state="translated", subState=None)
        between = segment.content[segment.inside : slot.start]
        write = slot.write
        return [Slot(span.text, segment.start, slot.end, lambda text: tag + between + write(text))]
    return [slot]


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
        segments_there = _segments(target)
        return _fill_segments(unit, segments, segments_there) if segments_there else []
    if not segments:
        span = _read(source)
        return [_fill(span, cut or source, target)] if span else []
    assert cut is not None
    if target is not None and not _read(target) and set(_segments(target)) >= set(segments):
        filled = _fill_segments(unit, segments, _segments(target))
        tag = _renewed(target)
        renewed = Slot((), target.start, target.inside, lambda _: tag)
        return [renewed, *filled] if state and filled else filled
    spans = [span for segment in segments.values() if (span := _read(segment))]
    return _create_segments(unit, cut, target, spans)


def _segments(element: Element) -> dict[str, Element]:
    marks = (x for x in element.walk() if x.local == "mrk" and x.get("mtype") == "seg")
    return {segment.get("mid"): segment for segment in marks}


def _fill_segments(
    unit: Element, sources: dict[str, Element], targets: dict[str, Element]
) -> list[Slot]:
    """Fill the segments of a target that are empty and not locked."""
    locked = {
        segment.get("id")
        for child in unit.children
        if child.local == "seg-defs"
        for segment in child.children
        if segment.get("locked") == "true"
    }
    return [
        _fill(span, sources[name], target)
        for name, target in targets.items()
        if name in sources and name not in locked and not _read(target)
        if (span := _read(sources[name]))
    ]


def _create_segments(
    unit: Element, cut: Element, target: Element | None, spans: Sequence[Span]
) -> list[Slot]:
    """Write a target with the tags and segments of the source; each segment writes a part of it."""
    content = unit.content
    start, end, before, after = _around(cut, cut, target)
    slots = []
    for i, span in enumerate(spans):
        head = before + content[cut.inside : span.start] if i == 0 else ""
        done = spans[i + 1].start if i + 1 < len(spans) else cut.close
        tail = content[span.end : done] + (after if i + 1 == len(spans) else "")

        def write(text: Text, span: Span = span, head: str = head, tail: str = tail) -> str:
            return head + span.write(text) + tail

        slots.append(Slot(span.text, start if i == 0 else end, end, write))
    return slots


def _fill(span: Span, last: Element, target: Element | None) -> Slot:
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
    changes: dict[str, str | None] = {}
    if target.get("state"):
        changes["state"] = "needs-review-translation"
    if target.get("state-qualifier"):
        changes["state-qualifier"] = "mt-suggestion"
    return target.with_attributes(**changes)


def _read(element: Element) -> Span:
    return read_span(element, _role)


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
