"""XLIFF: which targets are filled, and how; its dialects."""

import time
from typing import cast

import pytest
from lxml import etree

from seq2seq.decoding.alignment import Alignment
from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.documents.document import Document, Text
from seq2seq.documents.formats import read_file
from seq2seq.documents.translate import translate_file
from seq2seq.errors import UserError
from tests.documents.hostile import LANGUAGES, read, upper

ONE = "{urn:oasis:names:tc:xliff:document:1.2}"
TWO = "{urn:oasis:names:tc:xliff:document:2.0}"
REVIEW = 'state="needs-review-translation"'


def one(units: str, target: str = ' target-language="de"') -> Document:
    return read(
        "xliff",
        f'<xliff version="1.2" xmlns="{ONE[1:-1]}" xmlns:sdl="s"><file original="a"'
        f' source-language="en-US"{target}><body>{units}</body></file></xliff>',
    )


def two(units: str, target: str = ' trgLang="de"') -> Document:
    return read(
        "xliff",
        f'<xliff version="2.0" xmlns="{TWO[1:-1]}" srcLang="en"{target}><file id="f">{units}</file>'
        "</xliff>",
    )


def filled(document: Document) -> str:
    """The document with capitals, which is left as it is next time."""
    joined = upper(document)
    etree.fromstring(joined)
    assert not read("xliff", joined).texts
    return joined


def shape(text: Text) -> str:
    return " ".join(part if isinstance(part, str) else part.kind for part in text)


@pytest.mark.parametrize(
    ("attributes", "target", "new"),
    [
        ("", "", "<target>A CAT</target>"),
        ("", "<target/>", "<target>A CAT</target>"),
        ("", "<target> <x id='1'/> </target>", "<target>A CAT</target>"),
        ("", "<target state='new'>A cat</target>", f"<target {REVIEW}>A CAT"),
        (
            "",
            "<target state-qualifier='exact-match' state='needs-translation' a='1'>x</target>",
            f"<target {REVIEW} a='1'>A CAT",
        ),
        ("", "<target>A cat</target>", None),
        ("", "<target state='translated'/>", None),
        ("", "<target state='needs-adaptation'>x</target>", None),
        ("translate='no'", "", None),
        ("approved='yes'", "<target/>", None),
        ("sdl:locked='locked'", "<target/>", None),
    ],
)
def test_only_what_is_not_translated_is_filled(
    attributes: str, target: str, new: str | None
) -> None:
    other = "<alt-trans><source>B</source><target/></alt-trans>"
    unit = f"<trans-unit id='1' {attributes}><source>A cat</source>{target}{other}</trans-unit>"
    document = one(unit)
    assert document.texts == ([("A cat",)] if new else [])
    if new:
        assert filled(document) == document.content.replace(
            f"</source>{target}<alt", f"</source>{new.removesuffix('</target>')}</target><alt"
        )


@pytest.mark.parametrize(
    ("attributes", "state", "target", "new"),
    [
        ("", "", "", "<target>A CAT</target>"),
        ("", "", "<target></target>", "<target>A CAT</target>"),
        ("", 'state="initial" subState="a:b"', "<target>A cat</target>", 'state="translated"'),
        ("", 'state="initial"', "<target>Katze</target>", None),
        ("", 'state="final"', "", None),
        ("", "", "<target>A cat</target>", None),
        ('translate="no"', "", "", None),
    ],
)
def test_segments_of_xliff_2_are_filled(
    attributes: str, state: str, target: str, new: str | None
) -> None:
    document = two(
        f'<unit id="1" {attributes}><segment {state}><source>A cat</source>{target}</segment>'
        "<ignorable><source> </source></ignorable></unit>"
    )
    assert document.texts == ([("A cat",)] if new else [])
    if new:
        joined = filled(document)
        assert new in joined
        assert "subState" not in joined
        assert etree.fromstring(joined).findtext(f".//{TWO}target") == "A CAT"


def test_groups_lock_their_units_and_units_unlock_themselves() -> None:
    unit = '<trans-unit id="1"{}><source>{}</source></trans-unit>'
    locked = unit.format("", "a") + unit.format(' translate="yes"', "b")
    document = one(f'<group translate="no">{locked}</group>')
    assert document.texts == [("b",)]


def test_the_target_language_is_named_where_it_is_missing() -> None:
    unit = "<unit id='1'><segment><source>A cat</source></segment></unit>"
    assert 'trgLang="de"' in filled(two(unit, ""))
    unit = "<trans-unit id='1'><source>A cat</source></trans-unit>"
    assert 'target-language="de"' in filled(one(unit, ""))
    with pytest.raises(UserError, match="is from en-US to fr-FR, but the model"):
        one(unit, ' target-language="fr-FR"')
    other = f'</file><file target-language="fr">{unit}</file>'
    several = one(unit).content.replace("</file>", other)
    assert len(read("xliff", several).texts) == 1  # another language is left as it is


def test_inline_elements_are_marks() -> None:
    source = (
        "<g id='1'>a</g><x id='INTERPOLATION'/><x id='START_LINK'/>b<x id='CLOSE_LINK'/>"
        "<x id='TAG_IMG'/>"
        "<bpt id='2'>&lt;b></bpt>c<ept id='2'>&lt;/b></ept><bx id='3'/>d"
        "<ph id='4'>%s<sub>e</sub></ph><mrk mtype='protected'>Name</mrk>"
    )
    (text,) = one(f"<trans-unit id='1'><source>{source}</source></trans-unit>").texts
    assert shape(text) == "open a close word open b close alone open c close alone d alone word"
    source = (
        "<pc id='1'>a</pc><sc id='2'/>b<ec startRef='2'/><sm id='3'/>c<mrk translate='no'>d</mrk>"
        "<ph equiv='INTERPOLATION'/>"
    )
    (text,) = two(f"<unit id='1'><segment><source>{source}</source></segment></unit>").texts
    assert shape(text) == "open a close open b close alone c word word"


CUT = (
    "<trans-unit id='1'><source>One. Two.</source>\n  <seg-source> <g id='1'>"
    "<mrk mtype='seg' mid='1'>One.</mrk> <mrk mtype='seg' mid='2'>Two.</mrk></g></seg-source>{}"
    "</trans-unit>"
)


def test_a_target_is_made_of_segments() -> None:
    document = one(CUT.format(""))
    assert document.texts == [("One.",), ("Two.",)]
    made = (
        "\n  <target> <g id='1'><mrk mtype='seg' mid='1'>ONE.</mrk> "
        "<mrk mtype='seg' mid='2'>TWO.</mrk></g></target></trans-unit>"
    )
    assert made in filled(document)


def test_segments_of_trados_are_filled_unless_they_are_locked() -> None:
    target = (
        "<target><g id='1'><mrk mtype='seg' mid='1'/> <mrk mtype='seg' mid='2'>{}</mrk></g>"
        "</target><sdl:seg-defs><sdl:seg id='1'/><sdl:seg id='2' locked='{}'/></sdl:seg-defs>"
    )
    assert one(CUT.format(target.format("", "true"))).texts == [("One.",)]
    document = one(CUT.format(target.format("Zwei.", "false")))
    assert document.texts == [("One.",)]
    assert "<mrk mtype='seg' mid='1'>ONE.</mrk> <mrk mtype='seg' mid='2'>Zwei." in filled(document)


def test_the_state_of_a_target_of_segments_becomes_that_of_its_translation() -> None:
    target = "<target state='new'><mrk mtype='seg' mid='1' b='c'/><mrk mtype='seg' mid='2'/>"
    joined = filled(one(CUT.format(target + "</target>")))
    assert f"<target {REVIEW}><mrk mtype='seg' mid='1' b='c'>ONE." in joined


def test_cdata_and_white_space_around_a_text_stay() -> None:
    joined = filled(one("<trans-unit id='1'><source>\n <![CDATA[a <b]]> </source></trans-unit>"))
    assert "<target>\n <![CDATA[A <B]]> </target>" in joined


@pytest.mark.parametrize(
    ("attributes", "names"),
    [
        ("maxwidth='5' size-unit='char'", "(first: text 2, 'A cat')"),  # as long as the source
        ("maxwidth='9' size-unit='char'", "(first: text 2, 'A cat')"),
        ("maxwidth='10' size-unit='char'", ""),
        ("maxwidth='5'", ""),  # pixels
        ("maxwidth='٥' size-unit='char'", ""),
    ],
)
def test_a_target_that_is_longer_than_its_unit_allows_is_counted(
    attributes: str, names: str
) -> None:
    class Twice:
        """Writes each line twice."""

        def translate(self, lines: list[str], **_: object) -> list[Translation]:
            return [Translation([Candidate(2 * line, 0.0, [], False)]) for line in lines]

        def alignments(self, sources: list[str], targets: list[str]) -> list[Alignment]:
            return [Alignment(*pair) for pair in zip(sources, targets, strict=True)]

    unit = "<trans-unit id='1'><source>A <g id='1'>cat</g></source></trans-unit>"
    content = one(f"{unit}<group {attributes}>{unit}</group>").content.encode()
    file = read_file("a.xlf", content, LANGUAGES)
    warnings = str(translate_file(file, cast("Translator", Twice()))[1])
    assert ("texts longer than their document allows: 1" in warnings) == bool(names)
    assert names in warnings


def test_elements_in_a_long_tag_take_no_longer_than_others() -> None:
    long = "".join(f' a{i}=""' for i in range(10_000))
    begun = time.process_time()
    document = one("<trans-unit id='1'><source>A cat</source></trans-unit>" * 3000, long)
    assert time.process_time() - begun < 5
    assert len(document.texts) == 3000
