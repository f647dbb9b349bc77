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
    config = TokenizerConfig(vocab_size=330, byte_fallback=True, normalization="identity")
    tokenizer = Tokenizer.train(sentences, config)
    return save_untrained(tmp_path_factory.mktemp("model") / "untrained", tokenizer)


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
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


def overrides(config: DataConfig, folder: Path) -> list[str]:
    places = {"train": config.train, "valid": config.valid}
    return [
        "data=files",
        *(f"data.{split}.source={place.source}" for split, place in places.items()),
        *(f"data.{split}.target={place.target}" for split, place in places.items()),
        f"data.tokenizer.vocab_size={config.tokenizer.vocab_size}",
        f"cache={folder / 'cache'}",
        f"run_dir={folder / 'run'}",
        "model=tiny",
        "schedule=demo",
        "device=cpu",
    ]


def test_invalid_bytes_are_the_same_lines_to_every_command(
    tmp_path: Path, model: Path, sentences: list[str], run: Run, trial, trials
) -> None:
    for seed in range(trials(20, 200)):
        chance = random.Random(seed)
        sound = seed % 2 == 0
        raw = odd_bytes(chance, sound=sound)
        lines = lines_of(raw)
        bad = [number for number, line in enumerate(lines, start=1) if not is_text(line)]
        plain, packed = tmp_path / "text", tmp_path / "text.gz"
        plain.write_bytes(raw)
        packed.write_bytes(gzip.compress(raw))
        inputs = {plain: b"", packed: b"", "-": raw}
        with trial("odd bytes"):
            translations = set()
            for path, stdin in inputs.items():
                code, out, err = run(
                    "translate", "--model", model, "--beam", "1", "-i", path, stdin=stdin
                )
                assert code == 0
                assert out.count(b"\n") == len(lines)
                assert (f"not valid UTF-8, or had NUL: {len(bad)};" in err) == bool(bad), err
                translations.add(out)
            assert len(translations) == 1

            reference = tmp_path / "reference"
            reference.write_text("a man\n" * len(lines))
            scores = set()
            for path, stdin in inputs.items():
                code, out, err = run("score", "-i", path, "-r", reference, stdin=stdin)
                assert code == 0, err
                assert (f"not valid UTF-8, or had NUL: {len(bad)};" in err) == bool(bad), err
                scores.add(out)
            assert len(scores) == 1
            reference.write_text("a man\n" * (len(lines) + 1))
            code, _, err = run("score", "-i", "-", "-r", reference, stdin=raw)
            assert code == 1
            assert f" {len(lines)} " in err.replace(";", " ").replace(",", " "), err

            train_on_odd_bytes(tmp_path, raw, bad, sentences, run)


def test_a_model_that_outputs_line_ends_does_not_break_the_lines(
    tmp_path: Path, model: Path, run: Run, trial
) -> None:
    trained = load_model(model)
    newline = trained.tokenizer.encode(["\n"])[0][-1]
    assert trained.tokenizer.pieces([newline]) == ["<0x0A>"]
    with torch.no_grad():
        norm = [module for module in trained.model.modules() if isinstance(module, LayerNorm)][-1]
        norm.weight.zero_()
        norm.bias.copy_(1000 * trained.model.embedding.weight[newline])
    save_model(tmp_path / "model", trained)
    with trial("a model that outputs line ends"):
        code, out, err = run("translate", "--model", tmp_path / "model", stdin=b"a man\n\nthe sea")
        assert (code, out.count(b"\n")) == (0, 3), err


def train_on_odd_bytes(
    folder: Path, raw: bytes, bad: list[int], sentences: list[str], run: Run
) -> None:
    """The first bad line is named; without one, each line is a side of a pair."""
    count = len(lines_of(raw)) + len(sentences)
    base = "".join(f"{line}\n" for line in sentences).encode()
    for name, pack in {"train.source": bytes, "train.source.gz": gzip.compress}.items():
        source, target = folder / name, folder / "train.target"
        source.write_bytes(pack(raw + base))
        target.write_bytes(b"a man\n" * (count - len(sentences)) + base)
        config = configure(folder, source, target, sentences[:3])
        if bad:
            code, _, err = run("train", *overrides(config, folder))
            assert code == 1
            assert f"{source}:{bad[0]}: " in err
            assert len(err.splitlines()) <= 2, err
            assert not (folder / "run").exists()
        else:
            prepared = prepare(config, folder / "cache", lambda message: None)
            assert prepared.counts["train"].read == count


def test_unequal_files_are_refused_or_counted(
    tmp_path: Path, model: Path, run: Run, sentences: list[str], trial, trials
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
                with_enough_text(config, counts[0], tmp_path)
            else:
                code, _, err = run("train", *overrides(config, tmp_path))
                assert code == 1
                assert all(part in err for part in expected), err
                assert "Traceback" not in err
                assert not (tmp_path / "run").exists()
            code, out, err = run("translate", "--model", model, "--beam", "1", "-i", source)
            assert (code, out.count(b"\n")) == (0, counts[0]), err


def refusal(source: Path, target: Path, sources: list[str], targets: list[str]) -> list[str] | None:
    """Return the expected error for a corpus that can't be trained on, else None."""
    if len(sources) != len(targets):
        first = min(len(sources), len(targets)) + 1
        return [
            f"{source} has {len(sources)} lines and {target} has {len(targets)} lines",
            f"line {first} is the first without a partner",
        ]
    if not sources:
        return [f"{source} and {target}: is empty"]
    pairs = list(zip(sources, targets, strict=True))
    if not any(one.strip() and other.strip() for one, other in pairs):
        blank = sum(not one.strip() for one, _ in pairs)
        return [f"of {len(pairs)}, {blank} have a blank source and {len(pairs) - blank} more"]
    return None


def with_enough_text(config: DataConfig, count: int, folder: Path) -> None:
    """Each line is counted, if the text is enough for a vocabulary."""
    config.tokenizer.vocab_size = 6
    with pytest.raises(UserError, match="of the training text alone need") as refused:
        prepare(config, folder / "cache", lambda message: None)
    config.tokenizer.vocab_size = int(re.findall(r"need (\d+) pieces", str(refused.value))[0])
    prepared = prepare(config, folder / "cache", lambda message: None)
    assert prepared.counts["train"].read == count


PEAK_AFTER = """
import resource, sys
sys.argv = ["seq2seq", *sys.argv[1:]]
{work}
print("peak KiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""
TRANSLATE = "from seq2seq.cli.main import main; assert main() == 0"
PREPARE = """
from pathlib import Path
from seq2seq.data.config import DataConfig, SplitConfig
from seq2seq.data.preparation import prepare
from seq2seq.data.tokenizer import TokenizerConfig
place = SplitConfig(source=sys.argv[1], target=sys.argv[2])
config = DataConfig(train=place, valid=place, tokenizer=TokenizerConfig(vocab_size=90))
print(prepare(config, Path(sys.argv[3]), lambda message: None).counts["train"])
"""


def peak(work: str, *words: object) -> tuple[float, str]:
    """Peak memory in MiB, and the output, of work in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", PEAK_AFTER.format(work=work), *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return int(result.stderr.split("peak KiB")[1]) / 1024, result.stdout


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
    ordinary = [sentences[i % len(sentences)] for i in range(1000)]
    long = [*ordinary]
    long[500] = (unit * 100_000)[:100_000]
    paths = []
    for name, text in (("ordinary", ordinary), ("long", long)):
        for side in ("source", "target"):
            path = tmp_path / f"{name}.{side}"
            path.write_text("".join(f"{line}\n" for line in text))
        paths.append(tmp_path / name)
    with trial("a line of 100,000 characters"):
        (without, _), (peak_with, output) = (
            peak(PREPARE, f"{path}.source", f"{path}.target", f"{path}.cache") for path in paths
        )
        assert "1,000 pairs read" in output
        assert ("999 kept; left out: 1 too long" in output) == (len(unit) > 1)
        assert peak_with < without + 100
        (without, _), (peak_with, output) = (
            peak(TRANSLATE, "translate", "--model", model, "--beam", "1", "-i", f"{path}.source")
            for path in paths
        )
        assert output.count("\n") == 1000
        assert peak_with < without + 300


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
