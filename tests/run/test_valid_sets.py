"""Several validation sets: each with its own metrics, and one of them selects the best model."""

import filecmp
from dataclasses import replace
from pathlib import Path

import pytest

from seq2seq.cli.fidelity import compose_config
from seq2seq.errors import UsageError, UserError
from seq2seq.model_folder import checkpoints
from seq2seq.run.checkpoint import read_progress
from seq2seq.run.config import Config
from seq2seq.run.records import read_metrics
from tests.toy import reversing, script_validation, train, validation


@pytest.fixture(scope="module")
def several(toy: Config, sentences: list[str]) -> Config:
    """The same training, which is also validated on `news`."""
    assert toy.cache is not None
    news = reversing(Path(toy.cache).parent, "news", sentences[10:20])
    return replace(toy, data=replace(toy.data, valid_sets={"news": news}))


def validations(folder: Path) -> list[dict[str, float]]:
    records = read_metrics(folder / "metrics.jsonl")
    return [record for record in records if "valid/loss" in record]


def test_each_set_has_the_metrics_that_it_has_as_the_main_set(
    toy: Config, several: Config, tmp_path: Path
) -> None:
    data = replace(toy.data, valid=several.data.valid_sets["news"])
    limits = {"max_steps": 2, "average_checkpoints": 1}
    train(several, tmp_path / "both", **limits)
    train(toy, tmp_path / "plain", **limits)
    train(replace(toy, data=data), tmp_path / "news", **limits)
    both, main, news = (validations(tmp_path / name) for name in ("both", "plain", "news"))
    assert len(both) == 2
    for record, of_main, of_news in zip(both, main, news, strict=True):
        for name in ("loss", "perplexity", "bleu"):
            assert record[f"valid/{name}"] == of_main[f"valid/{name}"]
            assert record[f"valid/news/{name}"] == of_news[f"valid/{name}"]
        mean = (of_main["valid/bleu"] + of_news["valid/bleu"]) / 2
        assert record["valid/mean/bleu"] == pytest.approx(mean)
    models = [tmp_path / name / "best" / "model.safetensors" for name in ("both", "plain")]
    assert filecmp.cmp(*models, shallow=False)


@pytest.mark.parametrize(("select", "best"), [("valid", 2), ("news", 3), ("mean", 4)])
def test_the_chosen_set_selects_the_best_model(
    several: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: str, best: int
) -> None:
    """The last validation is that of the mean of the checkpoints."""
    of_both_sets = ((1, 1), (9, 0), (0, 9), (6, 6), (0, 0))
    metrics = iter([validation(main, news=news) for main, news in of_both_sets])
    script_validation(monkeypatch, lambda run, model: next(metrics))
    train(several, tmp_path, select=select)
    *_, newest = folders = checkpoints(tmp_path)
    assert read_progress(newest)["progress"]["best_step"] == best
    weights = [folder / "model.safetensors" for folder in (tmp_path / "best", folders[best - 1])]
    assert filecmp.cmp(*weights, shallow=False)


def test_a_set_can_be_added_to_a_training_that_is_resumed(
    toy: Config, several: Config, tmp_path: Path
) -> None:
    train(toy, tmp_path, max_steps=1)
    train(several, tmp_path, resume=True, max_steps=2)
    added = ["valid/news/bleu" in record for record in validations(tmp_path)]
    assert added == [False, True]


def test_a_resumed_training_selects_as_it_did_before(
    several: Config, sentences: list[str], tmp_path: Path
) -> None:
    train(several, tmp_path, select="news", max_steps=1)
    with pytest.raises(UserError, match="trained with select='news', now 'valid'"):
        train(several, tmp_path, resume=True, max_steps=2)
    other = reversing(tmp_path, "other", sentences[5:15])
    changed = replace(several, data=replace(several.data, valid_sets={"news": other}))
    with pytest.raises(UserError, match=r"trained with valid_sets='news [0-9a-f]{16}', now"):
        train(changed, tmp_path, resume=True, select="news", max_steps=2)
    train(several, tmp_path, resume=True, select="news", max_steps=2)
    assert len(validations(tmp_path)) == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.valid_sets.news.sorce=a", "did you mean data.valid_sets.news.source"),
        ("data.valid_sets.mean.source=a", "other than train, valid, mean"),
        ("training.select=news", "no such validation set; choose valid, or add"),
    ],
)
def test_a_wrong_override_is_refused(override: str, message: str) -> None:
    with pytest.raises((UsageError, UserError), match=message) as error:
        compose_config([override])
    assert "\n" not in str(error.value)
