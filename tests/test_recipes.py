"""The recipes of conf/RECIPES.md, run as they stand, with smaller models and few steps."""

import json
import os
import re
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from pyarrow import parquet, table

from seq2seq.cli.main import main
from seq2seq.decoding.translator import Translator
from seq2seq.model_folder import find_model, load_model
from seq2seq.tokenizer import Tokenizer
from tests.models import save_untrained
from tests.toy import TINY_MODEL

RECIPES = Path(__file__).resolve().parents[1] / "conf" / "RECIPES.md"
TRAINING = ["training.source_tokens=200", "training.target_tokens=200", "training.max_steps=2"]
TRAINING += ["training.count_longer_side=true"]
TRAINING += ["training.warmup_steps=4", "training.checkpoint_minutes=null", "cache=cache"]
TRAINING += ["device=cpu", "precision=fp32", "search.beam_size=1", "search.max_extra_tokens=3"]
MODEL = [*TINY_MODEL, "data.tokenizer.vocab_size=60"]


def commands(title: str) -> list[list[str]]:
    """The commands below a heading, as lists of words."""
    text = RECIPES.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```\n(.*?)```", text, re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    found = [shlex.split(line) for line in lines]
    assert all(words[0] == "seq2seq" for words in found)
    return [words[1:] for words in found]


def run(words: list[str], *more: str) -> None:
    if words[0] == "train":
        inherited = any(word.startswith("init_from=") for word in words)
        words = [*words, *TRAINING, *([] if inherited else MODEL), *more]
    else:
        words = [*words, "--device", "cpu"]
    assert main(words) == 0, words


def train(name: str, *more: str) -> None:
    """Train a model that a recipe begins with."""
    words = ["data.train.source=train.en", "data.train.target=train.de"]
    words += ["data.valid.source=valid.en", "data.valid.target=valid.de"]
    run(["train", "data=files", *words, f"run_dir=runs/{name}"], *more)


@pytest.fixture(autouse=True)
def folder(
    tmp_path: Path, sentences: list[str], monkeypatch: pytest.MonkeyPatch, no_report: None
) -> None:
    """A working folder with the files that the recipes name, and runs without reports."""
    monkeypatch.chdir(tmp_path)
    parts = {"train": (10, 60), "train_fr": (20, 90), "own": (60, 80), "own_valid": (80, 86)}
    parts |= {"mono": (86, 100), "valid": (0, 6), "valid_fr": (6, 10), "test": (60, 65)}
    texts = {"en": sentences, "de": [line[::-1] for line in sentences]}
    texts["fr"] = [line.upper() for line in sentences]
    for (name, part), (language, text) in product(parts.items(), texts.items()):
        Path(f"{name}.{language}").write_text("\n".join([*text[slice(*part)], ""]))


def lines(name: str) -> list[str]:
    return Path(name).read_text().splitlines()


def bleus(run_dir: str) -> set[str]:
    """The names of the BLEUs that a training has recorded."""
    records = [json.loads(line) for line in lines(f"{run_dir}/metrics.jsonl")]
    return {name for record in records for name in record if name.endswith("bleu")}


def test_a_domain_is_learned_with_the_general_text_mixed_in() -> None:
    train("general")
    for words in commands("Fine-tune without forgetting"):
        run(words)
    assert bleus("runs/own") == {"valid/bleu", "valid/general/bleu", "valid/mean/bleu"}
    general, own = (load_model(find_model(Path("runs", n))).tokenizer for n in ("general", "own"))
    assert own.files() == general.files()
    assert len(lines("test.out.de")) == len(lines("test.en"))


def test_back_translations_are_sampled_and_tagged() -> None:
    for words in commands("Back-translation"):
        run(words)
    assert len(lines("mono.back.en")) == len(lines("mono.de"))
    tokenizer = load_model(find_model(Path("runs/with_back"))).tokenizer
    assert list(tokenizer.controls) == ["<bt>"]
    assert len(lines("test.out.de")) == len(lines("test.en"))


def test_one_model_has_several_target_languages() -> None:
    for words in commands("Several target languages"):
        run(words)
    tokenizer = load_model(find_model(Path("runs/many"))).tokenizer
    assert set(tokenizer.controls) == {">>de<<", ">>fr<<"}
    assert bleus("runs/many") == {"valid/bleu", "valid/fr/bleu", "valid/mean/bleu"}
    assert len(lines("test.out.de")) == len(lines("test.out.fr")) == len(lines("test.en"))


def test_a_student_learns_from_its_teacher() -> None:
    # Until its outputs are no longer blank.
    train("teacher", "training.max_steps=150", "training.warmup_steps=50", "model.dropout=0")
    for words in commands("Distillation"):
        run(words)
    assert len(lines("train.distilled.de")) == len(lines("train.en"))
    assert len(lines("test.out.de")) == len(lines("test.en"))


def test_seeds_translate_together_and_pieces_are_sampled() -> None:
    for words in commands("Ensembles and subword sampling"):
        run(words)
    assert len(lines("test.out.de")) == len(lines("test.en"))
    assert "sampling: 0.1" in Path("runs/sampled/config.yaml").read_text()


def test_documents_keep_all_but_their_texts() -> None:
    files = {
        "film.en.srt": "1\n00:00:01,000 --> 00:00:02,000\n<i>A man.</i>\n",
        "site/a.html": "<p>A <b>man</b>.<img src=b.svg>",
        "site/b.svg": "<svg/>",
        "empty.po": 'msgid "A %s"\nmsgstr ""\n',
        "strings.xml": "<resources><string name='a'>A %s</string></resources>",
    }
    Path("site").mkdir()
    for name, content in files.items():
        Path(name).write_text(content)
    train("general")
    for words in commands("Subtitles, a website, a program"):
        run(words)
    assert "00:00:01,000 --> 00:00:02,000\n<i>" in Path("film.de.srt").read_text()
    assert Path("site.de/b.svg").read_text() == files["site/b.svg"]
    assert Path("site.de/a.html").read_text().count("<b>") == 1
    for name in ("de.po", "strings.de.xml"):
        assert "%s" in Path(name).read_text()


@pytest.mark.slow
def test_a_class_of_ray_data_translates_a_table(tokenizer: Tokenizer, sentences: list[str]) -> None:
    pytest.importorskip("ray", reason="pip install 'ray[data]'")
    (code,) = re.findall(r"```python\n(import ray\n.*?)```", RECIPES.read_text("utf-8"), re.S)
    model = save_untrained(Path("runs/captions"), tokenizer)
    parquet.write_table(table({"number": range(100), "en": sentences}), "big.parquet")
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    environment["RAY_OVERRIDE_RESOURCES"] = '{"CPU": 4}'
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    rows = parquet.read_table("translated").sort_by("number").to_pydict()
    assert rows["en"] == sentences
    assert rows["de"] == [each.text for each in Translator.load(model).translate(sentences)]
