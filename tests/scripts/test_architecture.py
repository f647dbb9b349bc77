"""The picture of the model: as the script draws it, with the names of the code."""

import re
import runpy
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PICTURE = CHECKOUT / "data" / "pictures" / "architecture.svg"


def test_the_picture_is_the_one_that_the_script_draws() -> None:
    script = runpy.run_path(str(CHECKOUT / "scripts" / "architecture.py"))
    assert PICTURE.read_text() == script["draw"]()
    assert PICTURE.stat().st_size < 60_000


def test_its_names_are_those_of_the_code() -> None:
    code = (CHECKOUT / "seq2seq" / "transformer.py").read_text()
    texts = re.findall(r'class="(?:code|small)[ a-z]*">([^<]+)<', PICTURE.read_text())
    names = {name for text in texts for name in re.findall(r"[A-Z][a-z]+[A-Z]\w*|[a-z]+_\w+", text)}
    assert {"MultiHeadAttention", "cross_attention", "causal_mask"} <= names
    assert {name for name in names if name not in code} == set()
