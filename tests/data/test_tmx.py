"""Translation memories: what is read of them, and what is refused."""

import gzip
from pathlib import Path

import pytest

from seq2seq.data.corpus import DataConfig, Split, SplitConfig
from seq2seq.data.pairs import read_tmx
from seq2seq.errors import UserError


def unit(**texts: str) -> str:
    sides = (f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in texts.items())
    return f"<tu>{''.join(sides)}</tu>\n"


def memory(*units: str, head: str = "") -> str:
    return f'{head}<tmx version="1.4">\n<header/>\n<body>\n{"".join(units)}</body></tmx>'


def read(folder: Path, content: str | bytes, name: str = "memory.tmx") -> list[tuple[str, str]]:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    place = SplitConfig(pairs=str(path))
    config = DataConfig(train=place, source_language="en", target_language="de")
    return list(Split(config, "train").pairs())


def test_units_become_pairs_in_order(tmp_path: Path) -> None:
    units = [unit(en=f"dog {i}", fr="chien", de=f"Hund {i}") for i in range(5000)]
    expected = [(f"dog {i}", f"Hund {i}") for i in range(5000)]
    assert read(tmp_path, memory(*units)) == expected
    assert read(tmp_path, gzip.compress(memory(*units).encode()), "memory.TMX.gz") == expected


def test_a_side_that_is_missing_is_blank_and_the_first_of_two_counts(tmp_path: Path) -> None:
    twice = '<tu><tuv lang="en"><seg>a</seg></tuv><tuv lang="EN"><seg>b</seg></tuv></tu>'
    found = read(tmp_path, memory(unit(en="x", de="y"), unit(en="x"), unit(fr="z"), twice))
    assert found == [("x", "y"), ("x", ""), ("", ""), ("a", "")]


def test_a_language_also_stands_for_its_regions(tmp_path: Path) -> None:
    regional = '<tu><tuv xml:lang="en-GB"><seg>colour</seg></tuv>'
    plain = '<tuv xml:lang="EN"><seg>color</seg></tuv><tuv xml:lang="de-AT"><seg>f</seg></tuv></tu>'
    assert read(tmp_path, memory(regional + plain)) == [("color", "f")]
    assert read(tmp_path, memory(regional + plain.replace("EN", "nl"))) == [("colour", "f")]


def test_a_code_may_be_written_with_an_underscore(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    path.write_text(memory(unit(en_US="color", pt_BR="cor")))
    for wanted in ("en", "en_us", "en-US"):
        assert list(read_tmx(str(path), (wanted, "pt-BR"))) == [("color", "cor")]
    # One side's dialect is not the other side.
    path.write_text(memory(unit(pt_BR="ônibus"), unit(pt_BR="trem", pt_PT="comboio")))
    assert list(read_tmx(str(path), ("pt", "pt-BR"))) == [("", "ônibus"), ("comboio", "trem")]
    assert list(read_tmx(str(path), ("pt-BR", "pt"))) == [("ônibus", ""), ("trem", "comboio")]


def test_formatting_codes_are_skipped_and_a_text_is_one_line(tmp_path: Path) -> None:
    text = "A <bpt i='1'>&lt;b&gt;<sub>x</sub></bpt>small<ept i='1'>&lt;/b&gt;</ept>\n <hi>dog</hi>"
    other = "A <!-- no -->small<?no?> <![CDATA[<dog>]]>"
    units = memory(unit(en=text, de="&amp; &#228;"), unit(en=other, de="x"))
    assert read(tmp_path, units) == [("A small dog", "& ä"), ("A small <dog>", "x")]


def test_other_encodings_and_a_plain_doctype_are_read(tmp_path: Path) -> None:
    head = '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    content = memory(unit(en="ä", de="ö"), head=head).encode("utf-16")
    assert read(tmp_path, content) == [("ä", "ö")]


BOMB = "<!DOCTYPE tmx [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]>"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (memory(unit(en="&b;", de="x"), head=BOMB), "definitions in the DOCTYPE"),
        (memory(head="<!DOCTYPE tmx [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>"), "definitions in"),
        (memory(unit(en="&b;", de="x"), head="<!DOCTYPE tmx SYSTEM 'x.dtd'>"), "entity &b;: only"),
        (memory(unit(en="&b;", de="x")), ":4: .*Entity 'b' not defined"),
        ("<html></html>", "first element of the file is 'html', not tmx"),
        ("", ":1: .*no element found"),
        (memory(unit(en="x", de="y"))[:-9], ":5: "),
        (memory("<tu><tuv><seg>x</seg></tuv></tu>"), "unit 1: .* a tuv without xml:lang"),
        (memory(unit(fr="x", nl="y")), "in it: fr, nl; set data.source_language"),
        ("<tmx>" + "<a>" * 300, "depth"),
        (f"<tmx a='{'x' * 3_000_000}'/>", "unit 1: .* more than 1,048,576 bytes"),
        (memory(unit(en="x" * 2_000_000)), "more than 1,048,576 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_translation_memory_is_refused(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(UserError, match=f"^{tmp_path / 'memory.tmx'}.*{message}"):
        read(tmp_path, content)


def test_a_pair_of_a_memory_is_named_by_its_unit() -> None:
    config = DataConfig(train=SplitConfig(pairs="memory.tmx.gz"))
    assert Split(config, "train").locate(1234) == "memory.tmx.gz, unit 1,234"
