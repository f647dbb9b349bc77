"""Odd bytes, unequal files, very long lines and typed control symbols, in all commands."""

import gzip
import io
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import LayerNorm

from seq2seq.cli.main import main
from seq2seq.cli.text import read_leniently
from seq2seq.data.config import DataConfig, SplitConfig
from seq2seq.data.preparation import prepare
from seq2seq.data.tokenizer import (
    END_ID,
    PADDING_ID,
    START_ID,
    UNKNOWN_ID,
    Tokenizer,
    TokenizerConfig,
)
from seq2seq.errors import UserError
from seq2seq.storage.model_folder import load_model, save_model
from seq2seq.storage.trained_model import TrainedModel
from tests.models import save_untrained

CHECKOUT = Path(__file__).parents[2]
# Each ends a line to some reader; here the last two alone do.
SEPARATORS = ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r", "\r\n", "\n"]
MARKS = [">>de<<", "<bt>"]
TYPED = ["<s>", "</s>", "<pad>", "<unk>", "▁", "▁</s>", "<s", "s>", *MARKS]
INVALID = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xf5\x80\x80\x80", b"\xc0\x80"]
WORDS = ["a man", "the sea", " ", "house", "three old friends", "Ä"]
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Run = Callable[..., tuple[int, bytes, str]]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, sentences: list[str]) -> Path:
    """An untrained model, which may output any piece, bytes included."""
    config = TokenizerConfig(vocab_size=330, byte_fallback=True)
    tokenizer = Tokenizer.train(sentences, config)
    return save_untrained(tmp_path_factory.mktemp("model") / "untrained", tokenizer)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command here, with some bytes as its standard input: code, output file, stderr."""

    def run_here(*words: object, stdin: bytes = b"") -> tuple[int, bytes, str]:
        monkeypatch.setattr(
            sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False)
        )
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out.encode(), err

    return run_here


def lines_of(raw: bytes) -> list[bytes]:
    """The rule for lines, stated of the whole text at once."""
    lines = raw.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def is_text(line: bytes) -> bool:
    try:
        return "\0" not in line.decode()
    except UnicodeDecodeError:
        return False


def odd_bytes(chance: random.Random, *, sound: bool) -> bytes:
    """A text of a few lines of odd parts; if sound, it is valid UTF-8."""
    parts = [part.encode() for part in (*SEPARATORS, *TYPED, *WORDS, *WORDS)] + [BYTE_ORDER_MARK]
    if not sound:
        parts.append(chance.choice([*INVALID, b"\0", b"\0"]))
    first = chance.choice([b"", BYTE_ORDER_MARK])
    return first + b"".join(chance.choices(parts, k=chance.randint(1, 60))) + b"end\n"


def configure(folder: Path, source: Path, target: Path, valid: list[str]) -> DataConfig:
    for side in ("source", "target"):
        (folder / f"valid.{side}").write_text("".join(f"{line}\n" for line in valid))
    return DataConfig(
        train=SplitConfig(source=str(source), target=str(target)),
        valid=SplitConfig(source=str(folder / "valid.source"), target=str(folder / "valid.target")),
        tokenizer=TokenizerConfig(vocab_size=90),
    )


def count_pairs(config: DataConfig, folder: Path) -> int:
    return prepare(config, folder / "cache", lambda message: None).counts["train"].read


def test_odd_bytes_are_the_same_lines_to_every_reader(
    tmp_path: Path, sentences: list[str], monkeypatch: pytest.MonkeyPatch, trial, trials
) -> None:
    """Leniently to `translate` and `score`; `train` names the first line that is not text."""
    base = "".join(f"{line}\n" for line in sentences).encode()
    plain, packed, target = (tmp_path / name for name in ("text", "text.gz", "text.target"))
    for seed in range(trials(20, 200)):
        raw = odd_bytes(random.Random(seed), sound=seed % 2 == 0)
        lines = lines_of(raw)
        bad = [number for number, line in enumerate(lines, start=1) if not is_text(line)]
        target.write_bytes(b"a man\n" * len(lines) + base)
        with trial("odd bytes"):
            for path, pack in {plain: bytes, packed: gzip.compress}.items():
                path.write_bytes(pack(raw + base))
                config = configure(tmp_path, path, target, sentences[:3])
                if bad:
                    with pytest.raises(UserError, match=re.escape(f"{path}:{bad[0]}: ")):
                        count_pairs(config, tmp_path)
                else:
                    assert count_pairs(config, tmp_path) == len(lines) + len(sentences)
            stdin = SimpleNamespace(buffer=io.BytesIO(raw + base))
            monkeypatch.setattr(sys, "stdin", stdin)
            readings = [read_leniently(str(path)) for path in (plain, packed, "-")]
            assert readings[0] == readings[1] == readings[2]
            assert len(readings[0]) == len(lines) + len(sentences)


def test_odd_bytes_in_the_commands(tmp_path: Path, model: Path, run: Run) -> None:
    raw = odd_bytes(random.Random(1), sound=True) + b"\xff\n\0\na man"
    lines = lines_of(raw)
    warning = "not valid UTF-8, or had NUL: 2;"
    packed, reference = tmp_path / "text.gz", tmp_path / "reference"
    packed.write_bytes(gzip.compress(raw))
    outputs = set()
    for path, stdin in ((packed, b""), ("-", raw)):
        code, out, err = run("translate", "--model", model, "--beam", "1", "-i", path, stdin=stdin)
        assert (code, out.count(b"\n")) == (0, len(lines)), err
        assert warning in err
        outputs.add(out)
    assert len(outputs) == 1

    reference.write_text("a man\n" * len(lines))
    code, _, err = run("score", "-i", packed, "-r", reference)
    assert code == 0, err
    assert warning in err


def always_saying(token_id: int, trained: TrainedModel) -> TrainedModel:
    """Change a model so that each token of its outputs is the same."""
    with torch.no_grad():
        norm = [module for module in trained.model.modules() if isinstance(module, LayerNorm)][-1]
        norm.weight.zero_()
        norm.bias.copy_(1000 * trained.model.embedding.weight[token_id])
    return trained


def test_a_model_that_outputs_line_ends_does_not_break_the_lines(
    tmp_path: Path, model: Path, run: Run, trial
) -> None:
    trained = load_model(model)
    newline = trained.tokenizer.encode(["\n"])[0][-1]
    assert trained.tokenizer.pieces([newline]) == ["<0x0A>"]
    save_model(tmp_path / "model", always_saying(newline, trained))
    with trial("a model that outputs line ends"):
        code, out, err = run("translate", "--model", tmp_path / "model", stdin=b"a man\n\nthe sea")
        assert (code, out.count(b"\n")) == (0, 3), err


def test_unequal_files_are_refused_or_counted(
    tmp_path: Path, sentences: list[str], trial, trials
) -> None:
    for seed in range(trials(30, 500)):
        chance = random.Random(seed)
        counts = chance.choices([0, 1, 1, 2, 3, 50], k=2)
        if chance.random() < 0.5:
            counts[1] = counts[0]
        filling = chance.choice([["", " ", "\t"], sentences, [*sentences, "", "\u3000"]])
        texts = [chance.choices(filling, k=count) for count in counts]
        source, target = tmp_path / "train.source", tmp_path / "train.target"
        for path, text in zip((source, target), texts, strict=True):
            path.write_text("".join(f"{line}\n" for line in text))
        config = configure(tmp_path, source, target, sentences[:3])
        with trial("unequal, blank and one-line files"):
            expected = refusal(source, target, *texts)
            if expected is None:
                config.tokenizer.vocab_size = 6
                with pytest.raises(UserError, match="of the training text alone need") as refused:
                    count_pairs(config, tmp_path)
                enough = re.findall(r"need (\d+) pieces", str(refused.value))[0]
                config.tokenizer.vocab_size = int(enough)
                assert count_pairs(config, tmp_path) == counts[0]
            else:
                with pytest.raises(UserError) as refused:
                    count_pairs(config, tmp_path)
                assert all(part in str(refused.value) for part in expected)


def refusal(source: Path, target: Path, sources: list[str], targets: list[str]) -> list[str] | None:
    """Return the expected error for a corpus that can't be trained on, else None."""
    if len(sources) != len(targets):
        first = min(len(sources), len(targets)) + 1
        return [
            f"{source} has {len(sources)} lines and {target} has {len(targets)} lines",
            f"line {first} is the first without a partner",
        ]
    if not any(one.strip() and other.strip() for one, other in zip(sources, targets, strict=True)):
        return [f"{source} and {target}: no pair has text on both sides"]
    return None


# Prints the peak of the memory after each step, in KiB.
PEAKS = """
import resource, sys
from pathlib import Path
from seq2seq.cli.main import main
from seq2seq.data.config import DataConfig, SplitConfig
from seq2seq.data.preparation import prepare
from seq2seq.data.tokenizer import TokenizerConfig

folder, model = map(Path, sys.argv[1:])

def print_peak():
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

for name in ("ordinary", "long"):
    text = str(folder / name)
    place = SplitConfig(source=text, target=text + ".target")
    config = DataConfig(train=place, valid=place, tokenizer=TokenizerConfig(vocab_size=90))
    counts = prepare(config, folder / "cache", lambda message: None).counts["train"]
    print_peak()
print(counts)
for name in ("ordinary", "long"):
    words = ["translate", "--model", str(model), "--beam", "1", "-i", str(folder / name)]
    assert main([*words, "-o", str(folder / f"{name}.out")]) == 0
    print_peak()
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    "unit",
    [
        "a man sees the sea. ",
        # Characters that are not in the vocabulary are one unknown token together.
        pytest.param("雪", marks=pytest.mark.slow),
    ],
    ids=["words", "unknown"],
)
def test_a_line_of_100_000_characters(
    tmp_path: Path, model: Path, sentences: list[str], unit: str, trial
) -> None:
    lines = [sentences[i % len(sentences)] for i in range(100)]
    for name, middle in {"ordinary": "a man", "long": (unit * 100_000)[:100_000]}.items():
        lines[50] = middle
        for side in ("", ".target"):
            (tmp_path / f"{name}{side}").write_text("".join(f"{line}\n" for line in lines))
    save_model(tmp_path / "model", always_saying(END_ID, load_model(model)))  # which is fast
    with trial("a line of 100,000 characters"):
        result = subprocess.run(
            [sys.executable, "-c", PEAKS, tmp_path, tmp_path / "model"],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        prepared, long_prepared, counts, translated, long_translated = result.stdout.splitlines()
        assert "100 pairs read" in counts
        assert ("99 kept; skipped: 1 too long" in counts) == (len(unit) > 1)
        assert int(long_prepared) - int(prepared) < 100 * 1024
        assert int(long_translated) - int(translated) < 300 * 1024
        assert (tmp_path / "long.out").read_bytes().count(b"\n") == 100


@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
@pytest.mark.parametrize("byte_fallback", [False, True], ids=["unknown", "bytes"])
def test_control_symbols_typed_are_ordinary_text(
    sentences: list[str], normalization: str, byte_fallback: bool, trial, trials
) -> None:
    # Even a tokenizer that was trained on them gives no control symbol for them.
    typed = [f"{sentence} {''.join(TYPED)}" for sentence in sentences]
    config = TokenizerConfig(
        vocab_size=150 + 256 * byte_fallback,
        byte_fallback=byte_fallback,
        normalization=normalization,
    )
    tokenizer = Tokenizer.train([*sentences, *typed], config, controls=MARKS)
    never = {PADDING_ID, START_ID, END_ID, *tokenizer.controls.values()}
    assert set(tokenizer.controls) == set(MARKS)
    for seed in range(trials(50, 1000)):
        chance = random.Random(seed)
        parts = [*TYPED, *SEPARATORS, *WORDS, "\ud800", "\ufeff", "\ufffd"]
        texts = ["".join(chance.choices(parts, k=chance.randint(1, 12))) for _ in range(20)]
        with trial("control symbols typed in the text"):
            ids = {token_id for sequence in tokenizer.encode(texts) for token_id in sequence}
            assert not ids & never
            assert byte_fallback is False or UNKNOWN_ID not in ids
