"""Odd bytes, very long lines and typed control symbols, in all commands."""

import gzip
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import LayerNorm

from seq2seq.model_folder import TrainedModel, load_model, save_model
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID, UNKNOWN_ID, Tokenizer, TokenizerConfig
from tests.data.test_lines import SEPARATORS, rule
from tests.models import save_untrained

CHECKOUT = Path(__file__).parents[2]
MARKS = [">>de<<", "<bt>"]
TYPED = ["<s>", "</s>", "<pad>", "<unk>", "▁", "▁</s>", "<s", "s>", *MARKS]
WORDS = ["a man", "the sea", " ", "house", "three old friends", "Ä"]
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, sentences: list[str]) -> Path:
    """An untrained model, which may output any piece, bytes included."""
    config = TokenizerConfig(vocab_size=330, byte_fallback=True)
    tokenizer = Tokenizer.train(sentences, config)
    return save_untrained(tmp_path_factory.mktemp("model") / "untrained", tokenizer)


def test_odd_bytes_in_the_commands(tmp_path: Path, model: Path, seq2seq: Callable) -> None:
    parts = [part.encode() for part in (*SEPARATORS, *TYPED, *WORDS, *WORDS)] + [BYTE_ORDER_MARK]
    odd = random.Random(1).choices(parts, k=60)
    raw = b"".join([BYTE_ORDER_MARK, *odd, b"end\n\xff\n\0\na man"])
    lines = rule(raw)
    damaged = 1 + lines.index(b"\xff")
    warning = f"not valid UTF-8, or had NUL: 2 (the first: line {damaged});"
    packed, reference = tmp_path / "text.gz", tmp_path / "reference"
    packed.write_bytes(gzip.compress(raw))
    outputs = set()
    for path, stdin in ((packed, b""), ("-", raw)):
        words = ("translate", "--model", model, "--beam", "1", "-i", path)
        code, out, err = seq2seq(*words, stdin=stdin)
        assert (code, out.count("\n")) == (0, len(lines)), err
        assert warning in err
        outputs.add(out)
    assert len(outputs) == 1

    reference.write_text("a man\n" * len(lines))
    code, _, err = seq2seq("score", "-i", packed, "-r", reference)
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
    tmp_path: Path, model: Path, seq2seq: Callable, trial
) -> None:
    trained = load_model(model)
    newline = trained.tokenizer.encode(["\n"])[0][-1]
    assert trained.tokenizer.pieces([newline]) == ["<0x0A>"]
    save_model(tmp_path / "model", always_saying(newline, trained))
    with trial("a model that outputs line ends"):
        words = ("translate", "--model", tmp_path / "model")
        code, out, err = seq2seq(*words, stdin=b"a man\n\nthe sea")
        assert (code, out.count("\n")) == (0, 3), err


# Prints the peak of the memory after each step, in KiB.
PEAKS = """
import resource, sys
from pathlib import Path
from seq2seq.cli.main import main
from seq2seq.data.corpus import DataConfig, SplitConfig
from seq2seq.data.preparation import prepare
from seq2seq.tokenizer import TokenizerConfig

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


@pytest.mark.posix
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
