"""A run on several corpora: one model for two languages, and a resumed one to the bit."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from seq2seq.cli.training import write_report
from seq2seq.data.corpus import CorpusConfig, SplitConfig
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.machine.processes import OneProcess
from seq2seq.run.config import Config
from seq2seq.run.folder import RunFolder
from seq2seq.run.training import TrainingRun
from seq2seq.search import SearchConfig
from seq2seq.tokenizer import TokenizerConfig
from tests.toy import toy_config, train, two_files

# Two languages: each word has another one in either.
WORDS = {
    "one": ("eins", "un"),
    "two": ("zwei", "deux"),
    "six": ("sechs", "sis"),
    "ten": ("zehn", "dis"),
}


def spoken(line: str, language: int) -> str:
    return " ".join(WORDS[word][language] for word in line.split())


def speaks(text: str, language: int) -> bool:
    """Whether it has words of a language, and none of the other one."""
    spoken = [{pair[number] for pair in WORDS.values()} & set(text.split()) for number in (0, 1)]
    return bool(spoken[language]) and not spoken[1 - language]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A run on pairs in both languages, a third of them tagged."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [" ".join(words) for n in (1, 2, 3, 4) for words in product(WORDS, repeat=n)]
    config = toy_config(folder, ["a line"] * 30)
    places, valid = (
        {
            code: two_files(folder, name + code, some, [spoken(line, number) for line in some])
            for number, code in enumerate(("de", "fr"))
        }
        for name, some in (("", lines), ("valid_", lines[::10]))
    )
    data = replace(
        config.data,
        train=SplitConfig(),
        corpora={
            "de": CorpusConfig(**places["de"], target_language="de"),
            "fr": CorpusConfig(**places["fr"], target_language="fr"),
            "again": CorpusConfig(**places["de"], target_language="de", tag="<bt>", weight=0.3),
        },
        valid=SplitConfig(**valid["de"], target_language="de"),
        valid_sets={"french": SplitConfig(**valid["fr"], target_language="fr")},
        tokenizer=TokenizerConfig(vocab_size=58),
    )
    model = replace(config.model, d_model=64, d_ff=64, dropout=0.0)
    search = SearchConfig(beam_size=1, max_extra_tokens=10)
    return replace(config, data=data, model=model, search=search)


@pytest.fixture(scope="module")
def trained(both: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(
        both,
        tmp_path_factory.mktemp("trained") / "run",
        max_steps=500,
        warmup_steps=150,
        checkpoint_steps=500,
        average_checkpoints=1,
    )


LINES = ["one two six", "ten ten two", ""]


@pytest.fixture
def run(trained: Path, both: Config, tmp_path: Path) -> Path:
    """A copy of the run, with its configuration."""
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(both)))
    return tmp_path / "run"


@pytest.mark.parametrize(("code", "tag"), [("de", None), ("de", "<bt>"), ("fr", None)])
def test_the_target_language_is_chosen(trained: Path, code: str, tag: str | None) -> None:
    translator = Translator.load(trained, TranslationOptions(to=code, tag=tag))
    language = ("de", "fr").index(code)
    expected, other = ([spoken(line, n) for line in LINES[:2]] for n in (language, 1 - language))
    assert all(speaks(found.text, language) for found in translator.translate(LINES[:2]))
    right = translator.log_probabilities(LINES[:2], expected)
    wrong = translator.log_probabilities(LINES[:2], other)
    for one, two in zip(right, wrong, strict=True):
        assert 2 * one.perplexity < two.perplexity
    assert translator.log_probabilities([""], [""])[0].tokens == 0
    maps = translator.attention(LINES[0], expected[0])
    assert maps.source[: 2 if tag else 1] == [f">>{code}<<", *([tag] if tag else [])]


def test_page_and_card_name_every_target_language(run: Path) -> None:
    write_report(RunFolder(run), torch.device("cpu"))
    assert "to de, fr. Training ended" in (run / "report.html").read_text()
    card = (run / "best" / "README.md").read_text()
    assert "\nlanguage:\n- de\n- fr\n" in card
    assert " to de, fr: " in card
    assert "seq2seq translate --model FOLDER --to de < input > output" in card


def test_each_set_is_validated_in_its_language(trained: Path) -> None:
    last = json.loads((trained / "metrics.jsonl").read_text().splitlines()[-1])
    # The other language shares no word with the reference: it would score 0.
    assert min(last["valid/bleu"], last["valid/french/bleu"]) > 10


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"to": "nl"}, "no target language 'nl': the model knows de, fr"),
        ({}, r"several languages \(de, fr\): choose one with --to"),
        ({"to": "de", "tag": "<x>"}, "no tag '<x>': the model knows <bt>"),
    ],
)
def test_an_unknown_mark_is_refused_by_what_the_model_knows(
    trained: Path, choices: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Translator.load(trained, TranslationOptions(**choices))


def test_the_commands_take_the_marks(
    trained: Path, tmp_path: Path, seq2seq: Callable, seq2seq_json: Callable
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("one two six\n")
    target.write_text("un deux sis\n")
    model = ("--model", trained)
    score = ("score", *model, "-s", source, "-r", target)
    found = []
    for number, language in enumerate(("de", "fr")):
        assert speaks(seq2seq("translate", *model, "--to", language, "-i", source).out, number)
        # chrF, as three words have no 4-gram, so their BLEU is 0.
        found.append(seq2seq_json(*score, "--to", language)["scores"][1]["value"])
    assert 2 * found[0] < found[1]
    rescore = ("rescore", *model, "-s", source, "-i", target)
    for words in (score, rescore, ("attention", *model, "--source", "one", "--json")):
        result = seq2seq(*words)
        assert (result.code, result.err.count("choose one with --to")) == (1, 1)


def test_a_resumed_training_mixes_its_corpora_as_before(both: Config, tmp_path: Path) -> None:
    limits = {"max_steps": 1, "average_checkpoints": 1}
    train(both, tmp_path, **limits)
    again = replace(both.data.corpora["again"], weight=0.5)
    data = replace(both.data, corpora={**both.data.corpora, "again": again})
    with pytest.raises(UserError, match=r"trained with weights='again 0\.3, de 1\.0, fr 1\.0'"):
        train(replace(both, data=data), tmp_path, resume=True, **limits)


def test_a_run_keeps_the_languages_of_its_initial_model(
    both: Config, trained: Path, tmp_path: Path
) -> None:
    own = replace(both, init_from=str(trained), cache=str(tmp_path / "cache"))
    train(own, tmp_path / "run", max_steps=1)
    place = SplitConfig(source=both.data.valid.source, target=both.data.valid.target)
    unmarked = replace(both.data, train=place, valid=place, corpora={}, valid_sets={})
    with pytest.raises(UserError, match=r"data\.train: .* several languages \(de, fr\)"):
        TrainingRun(replace(own, data=unmarked), tmp_path, OneProcess())
    dutch = replace(place, target_language="nl")
    data = replace(unmarked, train=dutch, valid=dutch)
    with pytest.raises(UserError, match=r"data\.train: no target language 'nl': .* de, fr"):
        TrainingRun(replace(own, data=data), tmp_path, OneProcess())
