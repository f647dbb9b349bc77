"""The files directly in the package train and translate without any other, as its README shows."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from seq2seq.decoding.ensemble import TargetScore
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.search import SearchConfig

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "seq2seq"
IMPORTED = "\nimport sys\nprint([name for name in sys.modules if name.startswith('seq2seq.')])"


def tour() -> str:
    """Return the program of the tour."""
    text = (PACKAGE / "README.md").read_text()
    (code,) = re.findall(r"alone train and translate.*?```python\n(.*?)```", text, re.S)
    return code


def test_the_core_alone_translates_as_the_packages_do(tmp_path: Path) -> None:
    """`test_forms.py` compares their training."""
    code = tour()
    assert "2000)" in code
    corpus = tmp_path / "data" / "everyday"
    corpus.mkdir(parents=True)
    for name in ("train.en", "train.de"):
        lines = (CHECKOUT / "data" / "everyday" / name).read_text().splitlines()
        (corpus / name).write_text("\n".join(lines[:2000]) + "\n")
    (sources,) = re.findall(r"translate\((\[.*\])\)", code)
    command = [sys.executable, "-c", code.replace("2000)", "20)") + IMPORTED]
    printed = subprocess.check_output(command, cwd=tmp_path, text=True).splitlines()
    translations, imported = map(ast.literal_eval, printed[-2:])
    assert "seq2seq.trainer" in imported
    for name in imported:
        assert (PACKAGE / f"{name.removeprefix('seq2seq.')}.py").exists(), name
    options = TranslationOptions(device="cpu", search=SearchConfig(beam_size=4))
    translator = Translator.load(tmp_path / "runs" / "tour" / "model", options)
    outputs = translator.translate(ast.literal_eval(sources))
    assert [each.text for each in outputs] == translations


@pytest.mark.slow
def test_the_tour_as_it_stands_learns_to_translate(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(CHECKOUT / "data")
    subprocess.run([sys.executable, "-c", tour()], cwd=tmp_path, check=True)
    translator = Translator.load(tmp_path / "runs" / "tour" / "model")
    english, german = (
        (CHECKOUT / "data" / "everyday" / f"valid.{code}").read_text().splitlines()[:100]
        for code in ("en", "de")
    )

    def perplexity(targets: list[str]) -> float:
        return TargetScore.total(translator.log_probabilities(english, targets)).perplexity

    assert 2 * perplexity(german) < perplexity([*german[1:], german[0]])
