"""One training in its folder: what its seed decides, what it validates, what it keeps."""

import copy
import itertools
import json
import logging
import math
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from sacrebleu import CHRF
from torch import Tensor
from torch.testing import assert_close

from seq2seq.cli.main import main
from seq2seq.cli.training import start_training, write_report
from seq2seq.config import TrainingConfig
from seq2seq.data.corpus import SplitConfig
from seq2seq.data.noise import NoiseConfig
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.device import Compute
from seq2seq.errors import UsageError, UserError
from seq2seq.machine.processes import OneProcess, Processes
from seq2seq.model_folder import checkpoints, class_name
from seq2seq.run.config import Config, cost_on_cpu
from seq2seq.run.records import FileRecorder, describe_validation, read_metrics
from seq2seq.run.start import describe, make_trainer
from seq2seq.run.training import Parts, TrainingRun, run_training
from seq2seq.run.validation import Guessing
from seq2seq.text import SentencePair
from seq2seq.trainer import Progress
from seq2seq.transformer import Transformer
from seq2seq.update import Updater
from tests.core.test_model_class import Tied
from tests.toy import reversing, script_validation, train, validation, weights


def opened(config: Config, folder: Path, **choices: Any) -> TrainingRun:
    return TrainingRun(replace(config, **choices), folder, OneProcess())


def assert_mean_of(averaged: Path, folders: list[Path]) -> None:
    of_each = [weights(folder) for folder in folders]
    mean = {name: sum(w[name].double() for w in of_each) / len(of_each) for name in of_each[0]}
    assert_close(weights(averaged), mean, rtol=1e-6, atol=1e-7, check_dtype=False)


def improving_bleu(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Let each validation be better than the one before, after an act with its number."""
    numbers = itertools.count(1)

    def validate(_: TrainingRun, model: Transformer) -> dict[str, float]:
        number = next(numbers)
        act(number)
        return validation(float(number))

    script_validation(monkeypatch, validate)


def log(run: Path) -> str:
    return (run / "train.log").read_text()


@pytest.mark.parametrize(
    ("limits", "said"),
    [({"max_steps": 2}, 1), ({"max_steps": 60, "patience": 1}, 1), ({"max_steps": 3}, 0)],
)
def test_a_run_that_ends_while_dropout_rises_says_so_once(
    toy: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, int],
    said: int,
) -> None:
    script_validation(monkeypatch, lambda run, model: validation(5.0))
    train(toy, tmp_path, dropout_warmup_steps=3, **limits)
    assert log(tmp_path).count("dropout reaches 0.67 of its rate in the 2 updates") == said


def test_a_validation_takes_a_tenth_of_the_minutes_at_most(
    toy: Config, sentences: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq.cli.training.write_report", write_report)
    long = reversing(tmp_path, "long", sentences * 9)
    config = replace(toy, data=replace(toy.data, valid_sets={"long": long}))
    train(config, tmp_path / "run", max_minutes=1e-9, max_steps=None)
    assert "of 900 lines were translated in 1e-10 minutes, a tenth of" in log(tmp_path / "run")
    (record,) = (r for r in read_metrics(tmp_path / "run" / "metrics.jsonl") if "valid/bleu" in r)
    assert record["valid/long/bleu"] == 0
    assert record["valid/long/loss"] > 0
    assert "report.html" not in log(tmp_path / "run")  # which translates again


def test_a_diverged_training_warns_once_and_ends_in_an_error_without_a_next_command(
    toy: Config, tmp_path: Path, warned: list[str]
) -> None:
    with pytest.raises(UserError, match=r"worse than guessing, 4\.094") as error:  # log(60)
        train(toy, tmp_path, learning_rate_scale=300.0, max_steps=6)
    assert sum("worse than guessing" in warning for warning in warned) == 2  # at first, at the end
    assert "and start with a new run_dir" in str(error.value)
    assert (tmp_path / "finished.json").exists()
    assert "next:" not in log(tmp_path)
    with pytest.raises(
        UserError, match="worse than guessing"
    ):  # nothing to train, and still no model
        train(toy, tmp_path, learning_rate_scale=300.0, max_steps=6, resume=True)


def test_a_sweeper_is_given_the_figure_of_a_diverged_training(toy: Config, tmp_path: Path) -> None:
    training = replace(toy.training, learning_rate_scale=300.0, max_steps=6, select_by="loss")
    config, world = replace(toy, training=training), OneProcess()
    assert run_training(config, tmp_path / "run", "", world, resume_hint="resume=auto") > np.log(60)


def test_an_honest_training_that_has_hardly_begun_has_not_diverged(
    toy: Config, tmp_path: Path, warned: list[str]
) -> None:
    # The loss of new weights is above that of equally probable tokens.
    train(toy, tmp_path, learning_rate_scale=1e-9, warmup_steps=1, max_steps=1)
    loss = next(
        r["valid/loss"] for r in read_metrics(tmp_path / "metrics.jsonl") if "valid/loss" in r
    )
    assert loss > np.log(60)
    assert not any("diverged" in line for line in warned)


def test_a_model_that_has_learned_its_training_text_alone_has_not_diverged() -> None:
    guessing = Guessing(uniform=4.0, by_frequency=3.0)
    diverged = {
        losses: (failure := guessing.failure(*losses)) is not None and failure.is_divergence
        for losses in ((9.0, 0.1), (9.0, 9.0), (math.nan, 9.0), (4.5, 9.0))
    }
    assert [*diverged.values()] == [False, True, True, False]


def test_a_model_that_knows_no_more_than_frequencies_is_no_success(
    toy: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="seq2seq")
    run = opened(toy, tmp_path / "opened")
    counts = np.zeros(60)
    for i in range(len(run.data.train)):
        np.add.at(counts, run.data.train.target(i), 1)
    shares = counts[counts > 0] / counts.sum()
    entropy = -(shares * np.log2(shares)).sum() * np.log(2)
    for loss, said in ((entropy + 1e-3, 0), (entropy - 1e-3, 1)):
        found = validation(0.0) | {"valid/loss": loss}
        script_validation(monkeypatch, lambda run, model, found=found: found)
        folder = train(toy, tmp_path / str(said), max_steps=1)
        assert log(folder).count("next: seq2seq translate") == said
        assert log(folder).count("no better than guessing by the frequency") == 1 - said


def test_more_processes_than_a_run_has_micro_batches_are_refused(
    toy: Config, tmp_path: Path
) -> None:
    run = opened(toy, tmp_path)
    with pytest.raises(UsageError, match="has 1 micro-batch, which 2 processes can't share"):
        make_trainer(toy, run.data, None, Compute(), Processes(rank=0, size=2), Updater, 1)


def test_a_huge_perplexity_is_written_with_an_exponent() -> None:
    metrics = validation(0.0) | {"valid/perplexity": 1e304}
    assert "perplexity 1.0e+304, BLEU" in describe_validation(metrics)
    assert "perplexity 2.72, BLEU" in describe_validation(validation(0.0))


def test_chrf_is_that_of_sacrebleu(toy: Config, tmp_path: Path) -> None:
    train(toy, tmp_path, select_by="chrf", max_steps=1)
    record = list(read_metrics(tmp_path / "metrics.jsonl"))[-1]
    pairs = opened(toy, tmp_path).data.valid_sets["valid"].pairs
    translator = Translator.load(tmp_path / "best", TranslationOptions(search=toy.search))
    outputs = [t.text for t in translator.translate([pair.source for pair in pairs])]
    chrf = CHRF().corpus_score(outputs, [[pair.target for pair in pairs]]).score
    assert record["valid/chrf"] == chrf


def test_a_resumed_run_changes_no_copy_by_hard_links(toy: Config, tmp_path: Path) -> None:
    run = train(toy, tmp_path / "run", max_steps=1)
    copy = Path(shutil.copytree(run, tmp_path / "copy", copy_function=os.link))
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    train(toy, run, resume=True, max_steps=2)
    assert log(run).startswith(log(copy))
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_run_by_relative_paths_is_reported_from_another_folder(
    toy: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(str(toy.cache)).parent
    names = [SplitConfig(source=f"{n}.source", target=f"{n}.target") for n in ("train", "valid")]
    config = replace(toy, data=replace(toy.data, train=names[0], valid=names[1]))
    monkeypatch.chdir(folder)
    run = train(config, tmp_path / "run", max_steps=1)
    (run / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(config)))
    monkeypatch.chdir(tmp_path)
    assert main(["report", "run", "-o", "page.html"]) == 0
    assert "because the training text" not in Path("page.html").read_text()


def test_kernels_are_deterministic_if_wanted(toy: Config, tmp_path: Path) -> None:
    try:
        opened(toy, tmp_path, deterministic=True)
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        opened(toy, tmp_path)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("of_mean", [3.1, 3.004])
def test_the_last_checkpoints_are_averaged_and_the_best_model_is_kept(
    toy: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_mean: float
) -> None:
    scores = iter((1.0, 3.0, 2.0, 2.5, of_mean))
    script_validation(monkeypatch, lambda run, model: validation(next(scores)))
    train(toy, tmp_path)
    folders = checkpoints(tmp_path)
    assert [folder.name for folder in folders] == [f"step_{step:08d}" for step in (1, 2, 3, 4)]
    assert_close(weights(tmp_path / "best"), weights(folders[1]), rtol=0, atol=0)
    if of_mean < 3.01:  # only as good as the best one
        assert not (tmp_path / "averaged").exists()
        return
    assert_mean_of(tmp_path / "averaged", folders[-2:])
    by_hand = tmp_path / "by_hand"
    words = ["average", "--model", str(tmp_path), "--last", "3", "-o", str(by_hand)]
    assert main(words) == 0
    assert_mean_of(by_hand, folders[-3:])


def test_the_running_mean_is_validated_and_kept_as_the_best_model_if_wanted(
    toy: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validated: list[dict[str, Tensor]] = []
    scores = iter((1.0, 2.0, 9.0, 3.0, 9.1))

    def validate(_: TrainingRun, model: Transformer) -> dict[str, float]:
        assert not model.training
        validated.append(copy.deepcopy(dict(model.state_dict())))
        return validation(next(scores))

    script_validation(monkeypatch, validate)
    train(toy, tmp_path, validate_mean=True)
    updates = [weights(folder) for folder in checkpoints(tmp_path)]
    for step, found in enumerate(validated[:4], start=1):
        # The integral of k^16 over the k-th update, of that over all of them.
        shares = [(k**17 - (k - 1) ** 17) / step**17 for k in range(1, step + 1)]
        for name, value in found.items():
            exact = sum(share * updates[k][name].double() for k, share in enumerate(shares))
            assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)
    assert_close(weights(tmp_path / "best"), validated[2], rtol=0, atol=0)
    assert_mean_of(tmp_path / "averaged", checkpoints(tmp_path)[-2:])


def test_a_running_mean_is_resumed_with_the_newest_buffers(toy: Config, tmp_path: Path) -> None:
    config = replace(toy, training=replace(toy.training, validate_mean=True))
    config, parts = replace(config, model_class=class_name(Tied)), Parts(model_class=Tied)
    run = TrainingRun(config, tmp_path, OneProcess(), parts)
    model, mean = run.trainer.model, run.trainer.updater.running_mean
    with torch.no_grad():
        model.scale.fill_(3.0)
        model.embedding.weight.zero_()
    mean.update(model, 0.5)
    run.save()
    resumed = TrainingRun(config, tmp_path, OneProcess(), parts, resume=True)
    resumed.restore()
    assert_close(resumed.candidate().state_dict(), mean.model.state_dict(), rtol=0, atol=0)


def test_a_resumed_run_has_neither_the_mean_nor_the_mark_of_its_earlier_end(
    toy: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"finished.json", "averaged"}
    present: list[set[str]] = []
    improving_bleu(
        monkeypatch,
        lambda _: present.append(names & {path.name for path in tmp_path.iterdir()}),
    )
    train(toy, tmp_path, max_steps=2)
    assert names <= {path.name for path in tmp_path.iterdir()}
    train(toy, tmp_path, resume=True)
    assert present == [set()] * 6
    assert [folder.name for folder in checkpoints(tmp_path)][-1] == "step_00000004"


def test_a_run_that_was_stopped_validates_if_a_lower_limit_ends_it(
    toy: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(recorder: FileRecorder, progress: Progress) -> None:
        if progress.step == 3:
            signal.raise_signal(signal.SIGTERM)

    validations: list[int] = []
    improving_bleu(monkeypatch, validations.append)
    with monkeypatch.context() as patch:
        patch.setattr(FileRecorder, "show_progress", interrupt)
        with pytest.raises(SystemExit):
            train(toy, tmp_path, max_steps=100, checkpoint_steps=50)
    assert not validations
    assert not (tmp_path / "best").exists()
    (stopped,) = checkpoints(tmp_path)
    train(toy, tmp_path, resume=True, max_steps=2, checkpoint_steps=50)
    assert validations == [1]
    assert checkpoints(tmp_path) == [stopped]
    assert_close(weights(tmp_path / "best"), weights(stopped), rtol=0, atol=0)
    assert json.loads((tmp_path / "finished.json").read_bytes())["step"] >= 3


def test_a_report_that_a_signal_has_prevented_is_written_when_the_run_is_resumed(
    toy: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    def start(*, resume: bool) -> None:
        config = replace(toy, resume=resume, training=replace(toy.training, max_steps=1))
        yaml = OmegaConf.to_yaml(OmegaConf.structured(config))
        start_training(config, tmp_path, yaml, OneProcess())

    monkeypatch.setattr("seq2seq.cli.training.write_report", write_report)
    written = [tmp_path / name for name in ("report.html", "scores.json", "best/README.md")]
    with monkeypatch.context() as patch:
        patch.setattr("seq2seq.cli.training.make_report", interrupt)
        with pytest.raises(SystemExit):
            start(resume=False)
    assert (tmp_path / "finished.json").exists()
    assert not any(path.exists() for path in written)
    start(resume=True)
    assert all(path.exists() for path in written)


def test_files_of_the_user_in_a_model_folder_are_kept(
    toy: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best, averaged = tmp_path / "best", tmp_path / "averaged"
    notes = best / "notes.txt"
    improving_bleu(monkeypatch, lambda number: number == 2 and notes.write_text("mine"))
    train(toy, tmp_path, max_steps=2)
    assert (tmp_path / "best_before" / "notes.txt").read_text() == "mine"
    (averaged / "notes.txt").write_text("mine, too")
    train(toy, tmp_path, resume=True)
    assert (tmp_path / "averaged_before" / "notes.txt").read_text() == "mine, too"
    for model in (best, averaged):
        assert weights(model)
        assert not (model / "notes.txt").exists()


def test_a_corrupt_checkpoint_is_not_averaged(
    toy: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damage(validation_number: int) -> None:
        if validation_number == 4:
            path = checkpoints(tmp_path)[2] / "model.safetensors"
            path.write_bytes(path.read_bytes()[:-1] + b"!")

    improving_bleu(monkeypatch, damage)
    train(toy, tmp_path, average_checkpoints=3)
    folders = checkpoints(tmp_path)
    assert_mean_of(tmp_path / "averaged", [*folders[:2], folders[3]])
    assert json.loads((tmp_path / "finished.json").read_bytes())["averaged"] == 3


def test_temporary_files_of_a_killed_training_are_not_in_the_way(
    toy: Config, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    (tmp_path / f".metrics.jsonl.{'0' * 16}.new").touch()
    train(toy, tmp_path, max_steps=1)


def test_a_run_whose_configuration_could_not_be_read_again_does_not_begin(
    toy: Config, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"config\.yaml: can't be written: .* 300,000 bytes"):
        run_training(toy, tmp_path / "run", "#" * 300_000, OneProcess())
    assert not (tmp_path / "run").exists()


def test_bleu_of_a_language_without_spaces_needs_a_tokenizer(
    toy: Config, tmp_path: Path, warned: list[str]
) -> None:
    run = opened(toy, tmp_path)
    chinese = "狗在雪地里跑。"
    for text, bleu_tokenizer in ((chinese, None), (chinese, "char"), ("a dog", None)):
        valid = replace(run.data.valid_sets["valid"], pairs=[SentencePair("a dog", text)])
        data = replace(run.data, valid_sets={"valid": valid})
        describe(run.trainer, replace(toy, bleu_tokenizer=bleu_tokenizer), data, 0.1)
    (warning,) = [line for line in warned if "bleu_tokenizer is not set" in line]
    assert warning.endswith("set bleu_tokenizer=zh")


def test_a_training_with_noise_subword_sampling_and_a_running_mean_is_resumed_bit_for_bit(
    toy: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_validation(monkeypatch, lambda run, model: validation(1.0))

    budget = replace(toy.training, micro_batch_tokens=400, checkpoint_steps=5)
    budget = replace(budget, source_tokens=800, target_tokens=800, validate_mean=True)

    def sampling(rate: float) -> Config:
        tokenizer = replace(toy.data.tokenizer, sampling=rate)
        noise = NoiseConfig(capitals=0.2, typos=0.3)
        data = replace(toy.data, tokenizer=tokenizer, noise=noise)
        return replace(toy, training=budget, data=data)

    train(sampling(0.2), tmp_path / "whole", max_steps=10)
    for steps in (5, 10):
        train(sampling(0.2), tmp_path / "parts", resume=steps > 5, max_steps=steps)
    whole, parts = (checkpoints(tmp_path / name)[-1] for name in ("whole", "parts"))
    for name in ("model.safetensors", "mean.safetensors"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes()
    run = opened(sampling(0.2), tmp_path / "parts")
    assert run.restore().progress.epoch > 1, "no epoch has ended, which proves nothing"
    batching = run.trainer.batching
    tokens = [batching.corpus.lengths(np.concatenate(batching.epoch(n)))[0].sum() for n in (0, 1)]
    assert len(set(tokens)) == 2, "the epochs are not encoded again"
    for rate in (0.0, 0.3):
        with pytest.raises(UserError, match="was trained with data"):
            opened(sampling(rate), tmp_path / "parts").restore()


def test_validation_text_is_never_sampled(toy: Config, tmp_path: Path) -> None:
    tokenizer = replace(toy.data.tokenizer, sampling=0.5)
    run = opened(toy, tmp_path, data=replace(toy.data, tokenizer=tokenizer))
    valid = run.data.valid_sets["valid"]
    sources = run.data.tokenizer.encode([pair.source for pair in valid.pairs])
    assert [valid.corpus.source(i)[:-1].tolist() for i in range(len(sources))] == sources


def test_what_a_step_costs_on_a_cpu_is_told_before_the_first() -> None:
    assert cost_on_cpu(TrainingConfig(patience=10), 43.2) == "a step takes about 43 s here"
    assert "100,000 steps 50 days; on a CPU, use" in cost_on_cpu(TrainingConfig(), 43.2)
    assert "days" not in cost_on_cpu(TrainingConfig(max_steps=1000), 43.2)
