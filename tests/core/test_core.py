"""The files directly in the package train and translate without any other, as its README shows."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.search import SearchConfig

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "seq2seq"
IMPORTED = "\nimport sys\nprint([name for name in sys.modules if name.startswith('seq2seq.')])"


def test_the_core_alone_translates_as_the_guests_do(tmp_path: Path) -> None:
    """`test_forms.py` compares their training."""
    text = (PACKAGE / "README.md").read_text()
    (code,) = re.findall(r"alone train and translate.*?```python\n(.*?)```", text, re.S)
    assert "100)" in code
    for language in ("en", "de"):
        lines = (CHECKOUT / "data" / "everyday" / f"train.{language}").read_text().splitlines()
        (tmp_path / f"train.{language}").write_text("\n".join(lines[:2000]) + "\n")
    command = [sys.executable, "-c", code.replace("100)", "20)") + IMPORTED]
    printed = subprocess.check_output(command, cwd=tmp_path, text=True).splitlines()
    translations, imported = map(ast.literal_eval, printed[-2:])
    assert "seq2seq.trainer" in imported
    for name in imported:
        assert (PACKAGE / f"{name.removeprefix('seq2seq.')}.py").exists(), name
    options = TranslationOptions(device="cpu", search=SearchConfig(beam_size=4))
    translator = Translator.load(tmp_path / "model", options)
    sources = (tmp_path / "train.en").read_text().splitlines()[:3]
    assert [each.text for each in translator.translate(sources)] == translations
