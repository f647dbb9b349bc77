"""The page of `seq2seq export --to web`: its files, and its rules in Node beside the program's."""

import random
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from sentencepiece import SentencePieceNormalizer

from seq2seq.decoding.segments import LengthLimits, make_segments
from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.errors import UserError
from seq2seq.interop import web
from seq2seq.interop.javascript import regular_expression
from seq2seq.interop.web import LIBRARY, integrity, translator_settings, write_web
from seq2seq.model_folder import TrainedModel
from seq2seq.search import SearchConfig, beam_search
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID, UNKNOWN_ID, Tokenizer
from tests.interop.page import NODE, run_page

PAGE = Path(web.__file__).parent / "page"
LINES = Path(__file__).parents[1] / "decoding" / "sentences"

in_node = pytest.mark.skipif(NODE is None, reason="needs Node: apt-get install nodejs")
MakeTrained = Callable[..., TrainedModel]


# The folder


@pytest.fixture
def node_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files in place of the libraries, whose digests are those that are wanted."""
    folder, files = tmp_path / "node_modules", {}
    for name, file in LIBRARY.items():
        path = folder / file.package / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// {name}")
        files[name] = replace(file, integrity=integrity(path.read_bytes()))
    monkeypatch.setattr(web, "LIBRARY", files)
    return folder


def attributes(page: str, tag: str) -> dict[str, str]:
    (found,) = re.findall(rf"<{tag}[^>]*>", page)
    return dict(re.findall(r'([\w-]+)="([^"]*)"', found))


def test_with_a_copy_of_the_libraries_the_page_names_no_other_host(
    make_trained: MakeTrained, node_modules: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnx")
    write_web(tmp_path / "page", make_trained(), node_modules=node_modules)
    page = (tmp_path / "page" / "index.html").read_text()
    assert not re.search(r"https?:|src=\"//", page)
    assert "$" not in page
    runtime, tokenizers = (
        attributes(page, f'script id="{i}"') for i in ("onnxruntime", "tokenizers")
    )
    named = {runtime["src"]: runtime["integrity"], tokenizers["src"]: tokenizers["integrity"]}
    named[runtime["data-wasm"]] = runtime["data-wasm-integrity"]
    assert len(named) == 3
    for path, digest in named.items():
        assert integrity((tmp_path / "page" / path).read_bytes()) == digest


def test_without_a_copy_the_page_may_load_three_files_of_fixed_versions_with_their_digests(
    make_trained: MakeTrained, tmp_path: Path
) -> None:
    pytest.importorskip("onnx")
    write_web(tmp_path / "page", make_trained())
    assert not (tmp_path / "page" / "library").exists()
    page = (tmp_path / "page" / "index.html").read_text()
    addresses = set(re.findall(r"https://[^\s;\"]+", page))
    assert addresses == {file.url for file in LIBRARY.values()}
    assert all(re.search(r"@\d+\.\d+\.\d+/", address) for address in addresses)
    policy = attributes(page, "meta http-equiv")["content"]
    for file in LIBRARY.values():
        assert re.fullmatch("sha384-[A-Za-z0-9+/]{64}", file.integrity)
        assert file.integrity in page
        directive = "connect-src" if file.url.endswith(".wasm") else "script-src"
        assert re.search(rf"{directive} [^;]*{re.escape(file.url)}", policy)
    assert "default-src 'none'" in policy


def test_a_library_of_another_version_is_refused(
    make_trained: MakeTrained, node_modules: Path, tmp_path: Path
) -> None:
    file = LIBRARY["wasm"]
    (node_modules / file.package / file.path).write_text("another")
    with pytest.raises(UserError, match=rf"is not that of {file.package} {file.version}; .*npm"):
        write_web(tmp_path / "page", make_trained(), node_modules=node_modules)
    with pytest.raises(UserError, match=r"no such file; .*npm install"):
        write_web(tmp_path / "page", make_trained(), node_modules=tmp_path)
    assert not (tmp_path / "page").exists()


def test_the_page_is_small_and_asks_nobody_else() -> None:
    files = sorted(PAGE.iterdir())
    assert {file.suffix for file in files} == {".css", ".html", ".js", ".json"}
    assert sum(file.stat().st_size for file in files) < 40 * 1024
    for file in files:
        text = file.read_text().replace("http://localhost:8000", "")
        assert not re.search(r"https?:|//[a-z]|@import|url\(", text.replace("// ", "")), file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|eval\(|localStorage|cookie", text)
    page = (PAGE / "index.html").read_text()
    assert not re.search(r"<[^>]+\s(style|on\w+)\s*=|<style|<script(?![^>]*\ssrc=)", page)


# The rules


class Words(Tokenizer):
    """A tokenizer whose pieces are some words and letters."""

    def __init__(self, words: list[str], letters: str) -> None:
        self.words, self.letters, self.controls = words, letters, {}
        self.vocab_size = self.source_vocab_size = 2**22

    def encode_target(self, texts: list[str]) -> list[list[int]]:
        found = (re.findall("(?s)" + "|".join([*self.words, "."]), text) for text in texts)
        return [list(map(self._id, pieces)) for pieces in found]

    def _id(self, piece: str) -> int:
        if piece in self.words:
            return 4 + self.words.index(piece)
        return 4 + len(self.words) + ord(piece) if piece in self.letters else UNKNOWN_ID

    def source_pieces(self, token_ids: list[int]) -> list[str]:
        byte = self._id("☀")
        other = "a" if self.words else "1"
        return ["<0xE2>" if i == byte else other for i in token_ids]


PARTS = """
The dog no NO. 5 i.e. e.g. z.B. Dr. Mr. U.S. J. A. B) (a) [12] [00:12] - • 1. 2.3.1 3.14 IV. iv.
12:30 Uhr 5 kg 12,5 cm x 3 km/h -20 °C 50 % § 12 https://a.b/c?d www.x.de/ä me@x.org {name} %s
%1$d <b> </b> &amp; “So.” «Oui !» (Yes.) [1] ... … !? ? ! ; , : :-) 「行け！」 と言った。 犬。 １．
｡ ☃ ﬁ m² Å THE DOG'S NATO SNOW İSTANBUL ISI I'M ẞ ß ﬀ iPhone 7. Oktober usw. etc. 753 v. Chr. 1)
2) Q: A. The 한국어. नमस्ते। مرحبا؟ שלום. \u00ad \u200b \ufeff \x1c \x85 \u2028 \r \v » " ' ) ] } é
e\u0301 😀 🐕 ☀ ☀\ufe0f ⭐⭐ 👩🏽\u200d🔬 🏴\U000e0067\U000e007f 1\ufe0f\u20e3
#\u20e3 ♪ ▶ │ → ©\ufe0f ..."""
"""What the rules look at."""


def hostile_lines(count: int) -> list[str]:
    """Lines of parts that a rule looks at, in any order."""
    parts, draw = PARTS.replace("\n", " ").split(" "), random.Random(1)
    lines = []
    for _ in range(count):
        chosen = draw.choices(parts, k=draw.randint(1, 12))
        lines.append("".join(part + draw.choice(("", " ", " ", "\t")) for part in chosen))
    return lines


@in_node
@pytest.mark.parametrize("language", ["en", "de", "fr", "ja", "tr", "zxx"])
def test_the_page_divides_lines_as_the_program_does(
    make_trained: MakeTrained, language: str
) -> None:
    lines = [*hostile_lines(800), "3" + " – 6" * 40 + " months"]
    if (LINES / f"{language}.txt").exists():
        lines += (LINES / f"{language}.txt").read_text().splitlines()
    words = ["the", "dog", "Oktober", "snow", "istanbul", "ist"]
    letters = "".join(sorted({c for c in "".join(lines) if c.isalnum()} - set("☃ﬁÅİ²é")))
    if language == "zxx":  # no language: a vocabulary without letters
        words, letters = [], "0123456789"
    tokenizer = Words(words, letters + " .,!⭐→☀")
    trained = replace(make_trained(), tokenizer=tokenizer, source_language=language)
    limits = LengthLimits(source=30, target=60, extra=5)
    settings = translator_settings(trained, "int8")
    settings["model"] |= {
        "max_source_tokens": limits.source,
        "max_target_tokens": limits.target,
        "max_extra_tokens": limits.extra,
    }
    given = {"settings": settings, "words": words, "letters": tokenizer.letters, "lines": lines}
    found = run_page("segments", **given)
    for by_sentence, of_lines in zip((True, False), zip(*found, strict=True), strict=True):
        expected = make_segments(
            lines, tokenizer, limits=limits, by_sentence=by_sentence, language=language
        )
        for line, answer, segments in zip(lines, of_lines, expected, strict=True):
            divided = [
                [s.copied, s.source_ids, s.max_length, s.separator, s.capitals] for s in segments
            ]
            names = "copied", "ids", "limit", "separator", "isInCapitals"
            for segment in answer["segments"]:
                segment["ids"].append(END_ID)
            assert [[s[name] for name in names] for s in answer["segments"]] == divided, line
            candidates = [[Candidate(f"{i}", 0.0, [], False)] for i, _ in enumerate(segments)]
            assert answer["joined"] == Translation.from_segments(segments, candidates).text


@in_node
def test_the_page_joins_scripts_without_spaces_as_the_program_does() -> None:
    # Later versions of Unicode give some signs another width, so that Python's decides.
    letters = [c for c in map(chr, range(0x80, 0x33480)) if unicodedata.category(c)[0] not in "CZ"]
    lines = [([{"copied": "", "separator": ""}] * 2, ["a", letter]) for letter in letters]
    joined = run_page("join", lines=lines)

    def is_wide(letter: str) -> bool:
        is_hangul = re.search("HANGUL|KOREAN", unicodedata.name(letter, "")) is not None
        return unicodedata.east_asian_width(letter) in "WF" and not is_hangul

    for letter, line in zip(letters, joined, strict=True):
        assert line == ("a" if is_wide(letter) else "a ") + letter, f"U+{ord(letter):X}"


@in_node
def test_the_page_knows_the_programs_digits(make_trained: MakeTrained) -> None:
    settings = translator_settings(make_trained(), "int8")
    source, flags = settings["rules"]["digit"]
    # Unicode's newer characters may be unknown to one of the two.
    characters = [
        c for c in map(chr, range(0x20000)) if unicodedata.category(c) not in ("Cs", "Cn")
    ]
    (found,) = run_page("matches", patterns=[(source, f"g{flags}")], texts=characters)
    digits = [c for c, matches in zip(characters, found, strict=True) if matches]
    assert digits == list(filter(str.isdigit, characters))


@in_node
def test_the_page_normalizes_each_character_as_the_program_does() -> None:
    normalizer = SentencePieceNormalizer(rule_name="nmt_nfkc", escape_whitespaces=False,
        add_dummy_prefix=False, remove_extra_whitespaces=True)  # fmt: skip
    # The characters of Unicode 3.2 have kept their forms since.
    old = unicodedata.ucd_3_2_0
    kept = [c for c in map(chr, range(1, 0x2FA1E)) if old.category(c) not in ("Cn", "Cs", "Co")]
    kept.append("\u061c")
    found = run_page("normalize", texts=[f"a {c} b" for c in kept])
    different = [
        f"U+{ord(c):X}"
        for c, text in zip(kept, found, strict=True)
        if normalizer.normalize(f"a {c} b") != text
    ]
    assert different == []


class Prefixes:
    """The tokens of each live hypothesis, the start symbol included."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = [()]

    def reorder(self, parents: torch.Tensor) -> None:
        self.rows = [self.rows[i] for i in parents.tolist()]


@in_node
@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.6), (2, 2.5), (4, 0.6), (4, 2.5)])
def test_the_page_searches_as_the_program_does(beam: int, alpha: float) -> None:
    vocab_size, limit, generator = 6, 3, torch.Generator().manual_seed(beam)
    others = [i for i in range(vocab_size) if i not in (PADDING_ID, START_ID, END_ID)]
    prefixes = [ids for length in range(limit + 1) for ids in product(others, repeat=length)]
    nothing = torch.zeros(vocab_size)  # after what no output has

    def step(tokens: torch.Tensor, state: Prefixes) -> torch.Tensor:
        pairs = zip(state.rows, tokens.tolist(), strict=True)
        state.rows = [(*prefix, token) for prefix, token in pairs]
        return torch.stack([table.get(prefix[1:], nothing) for prefix in state.rows])

    tables, expected = [], []
    for _ in range(150):
        logits = torch.randn(len(prefixes), vocab_size, generator=generator)
        logits[:, END_ID] -= 1  # or most outputs are short
        table = dict(zip(prefixes, logits, strict=True))
        tables.append({",".join(map(str, ids)): row.tolist() for ids, row in table.items()})
        rules = {"start_id": START_ID, "end_id": END_ID, "suppressed_ids": (PADDING_ID, START_ID)}
        config = SearchConfig(beam_size=beam, alpha=alpha)
        expected += beam_search(step, Prefixes(), torch.tensor([limit]), config, **rules)[0]
    found = run_page("search", tables=tables, limit=limit, options={"beam": beam, "alpha": alpha})
    for output, best in zip(found, expected, strict=True):
        assert output["ids"] == best.token_ids
        assert output["score"] == pytest.approx(best.score, abs=1e-5)
    assert len({len(output["ids"]) for output in found}) > 2


@in_node
def test_a_pattern_finds_in_javascript_what_it_finds_in_python() -> None:
    patterns = [
        r"\s*(?P<a>[^\W\d_]+?)(?:\d|_|\Z)",
        r"(?i:ab[c-e][A-C]?)|(?-i:x)y",
        r"a*+(?>b|bc)c",
        r"(?:\.\s?)*+\.x|(?s:.)y",
        r"(?<![x\d])\w{2,3}\b(?=[]^-]|\W)",
        r"[^\w\s]{1,}+[-+.]?",
    ]
    texts = [
        *hostile_lines(300),
        "aab",
        "bc",
        "ABD abe AbCa",
        "..x",
        ". .x",
        "añ_ x9]",
        "a\ny\u2028y",
    ]
    written = [regular_expression(re.compile(pattern), "finditer") for pattern in patterns]
    found = run_page("matches", patterns=written, texts=texts)
    for pattern, of_texts in zip(patterns, found, strict=True):
        expected = [[match[0] for match in re.finditer(pattern, text)] for text in texts]
        assert any(map(any, expected))
        assert of_texts == expected, pattern


@pytest.mark.parametrize("pattern", [r"(a)?(?(1)b|c)", r"(?m)^a", r"a$", r"(?i)[Z-a]"])
def test_a_pattern_that_javascript_lacks_is_an_error(pattern: str) -> None:
    with pytest.raises(NotImplementedError):
        regular_expression(re.compile(pattern), "match")
