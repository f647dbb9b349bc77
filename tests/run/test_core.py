"""The files directly in the package train and translate without any other, as its README shows."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.search import SearchConfig

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "seq2seq"
SMALLER = {"d_ff=512": "d_ff=512, dropout=0.0", "100)": "20)"}
FAST = {
    "import torch\n": "import torch\nfrom seq2seq.fast.training import FastForms\n",
    "seed=1)\nfor": "seed=1, forms=FastForms())\nfor",
}
IMPORTED = "\nimport sys\nprint([name for name in sys.modules if name.startswith('seq2seq.')])"


def example(changes: dict[str, str]) -> str:
    text = (PACKAGE / "README.md").read_text()
    (code,) = re.findall(r"alone train and translate.*?```python\n(.*?)```", text, re.S)
    for before, after in changes.items():
        assert code.count(before) == 1, before
        code = code.replace(before, after)
    return code + IMPORTED


def run(code: str, folder: Path) -> tuple[list[float], list[str], list[str]]:
    """Return the losses, the translations and the modules that were imported."""
    folder.mkdir()
    for language in ("en", "de"):
        lines = (CHECKOUT / "data" / "everyday" / f"train.{language}").read_text().splitlines()
        (folder / f"train.{language}").write_text("\n".join(lines[:2000]) + "\n")
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    printed = process.stdout.splitlines()
    losses = [float(line.split()[1]) for line in printed if re.match(r"\d+ \d", line)]
    return losses, *map(ast.literal_eval, printed[-2:])


@pytest.mark.integration
def test_the_core_alone_computes_what_the_guests_do(tmp_path: Path) -> None:
    losses, translations, imported = run(example(SMALLER), tmp_path / "plain")
    assert "seq2seq.trainer" in imported
    for name in imported:
        assert (PACKAGE / f"{name.removeprefix('seq2seq.')}.py").exists(), name

    fast_losses, _, _ = run(example(SMALLER | FAST), tmp_path / "fast")
    assert fast_losses == pytest.approx(losses, rel=1e-3)
    assert len(losses) == 20

    options = TranslationOptions(device="cpu", search=SearchConfig(beam_size=4))
    translator = Translator.load(tmp_path / "plain" / "model", options)
    sources = (tmp_path / "plain" / "train.en").read_text().splitlines()[:3]
    assert [each.text for each in translator.translate(sources)] == translations
