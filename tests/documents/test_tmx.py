"""TMX: units get the variant in the target language."""

import pytest
from lxml import etree

from seq2seq.documents.document import Mark
from tests.documents.hostile import read

CONTENT = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
  <tu>
    <tuv xml:lang="EN"><seg>The <bpt i="1">&lt;b></bpt>big<ept i="1">&lt;/b></ept> cat</seg></tuv>
    <tuv xml:lang="en-GB"><seg>The big cat, too</seg></tuv>
    <tuv xml:lang="fr"><seg>Le chat</seg></tuv>
  </tu>
  <tu><tuv lang="en"><seg>Old</seg></tuv></tu>
  <tu><tuv xml:lang="en"><seg>Empty</seg></tuv><tuv xml:lang="de-AT"><seg/></tuv></tu>
  <tu><tuv xml:lang="en"><seg>Done</seg></tuv><tuv xml:lang="de-DE"><seg>Fertig</seg></tuv></tu>
  <tu><tuv xml:lang="fr"><seg>Seul</seg></tuv></tu>
</body></tmx>"""


def test_only_units_without_a_translation_get_one() -> None:
    document = read("tmx", CONTENT)
    opened = Mark('<bpt i="1">&lt;b></bpt>', "open"), Mark('<ept i="1">&lt;/b></ept>', "close")
    assert document.texts == [("The ", opened[0], "big", opened[1], " cat"), ("Old",), ("Empty",)]
    joined = document.join([("Die ", *opened, "<Katze>"), ("Alt",), ("Leer",)])
    units = etree.fromstring(joined).findall("body/tu")
    variants = [[(x.get(L) or x.get("lang"), x.find("seg")) for x in unit] for unit in units]
    texts = [[(code, "".join(seg.xpath("text()"))) for code, seg in x] for x in variants]
    assert texts[0][1] == ("de", "Die <Katze>")
    assert texts[1] == [("en", "Old"), ("de", "Alt")]
    assert texts[2] == [("en", "Empty"), ("de-AT", "Leer")]
    assert texts[3:] == [[("en", "Done"), ("de-DE", "Fertig")], [("fr", "Seul")]]
    assert not read("tmx", joined).texts
    assert '\n    <tuv xml:lang="de"><seg>Die' in joined


@pytest.mark.parametrize(
    ("variants", "written"),
    [
        ("eng:One", "eng:One de:Eins"),
        ("deu: eng:One", "deu:Eins eng:One"),
        ("deu:Eins eng:", None),
        ("eng:One deu:Alt", None),
        ("eng:One fra: deu:", "eng:One de:Eins fra: deu:"),  # which one is German is not known
        ("en:One fil:Isa", "en:One de:Eins fil:Isa"),
        ("en:One fil:", "en:One de:Eins fil:"),
    ],
)
def test_a_code_of_three_letters_is_no_other_variant_s_language(
    variants: str, written: str | None
) -> None:
    pairs = [pair.split(":") for pair in variants.split()]
    unit = "".join(f'<tuv xml:lang="{code}"><seg>{x}</seg></tuv>' for code, x in pairs)
    source = "eng" if "eng:" in variants else "en"
    document = read("tmx", f'<tmx><header srclang="{source}"/><body><tu>{unit}</tu></body></tmx>')
    joined = document.join([("Eins",) for _ in document.texts])
    found = [f"{x.get(L)}:{x.findtext('seg') or ''}" for x in etree.fromstring(joined).iter("tuv")]
    assert found == (written or variants).split()


L = "{http://www.w3.org/XML/1998/namespace}lang"
