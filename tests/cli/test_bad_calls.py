"""Bad calls: one line on standard error that says what is wrong, and the right exit code."""

from collections.abc import Callable
from pathlib import Path

import pytest

from seq2seq.cli.main import main
from seq2seq.data.tokenizer import Tokenizer
from tests.models import save_untrained

# Words ({x} is a path of the fixture below), exit code, and what the line must say.
CALLS = [
    ("", 2, "COMMAND"),
    ("trian", 2, "no such command: trian; did you mean train?"),
    ("translat", 2, "did you mean translate?"),
    ("zzz", 2, "no such command: zzz"),
    ("translate", 2, "arguments are required: --model; seq2seq translate --help shows how"),
    ("translate --modle x", 2, "--model"),
    ("translate --model", 2, "--model: expected one argument"),
    ("translate --model {model} --bema 3", 2, "unrecognized arguments: --bema 3"),
    ("translate --model {model} --beam many", 2, "--beam: invalid int value: 'many'"),
    ("translate --model {model} --model {model} -i {text}", 1, "the same model is given twice"),
    ("translate --model {model} --model {nowhere} -i {text}", 1, "no such folder"),
    ("translate --model {model} --model", 2, "--model: expected one argument"),
    ("translate --model {model} -i {text} --beam 0", 2, "beam_size=0"),
    ("translate --model {model} -i {text} --workers 0", 2, "workers=0: must be at least 1"),
    ("translate --model {model} -i {text} --alpha nan", 2, "alpha=nan"),
    ("translate --model {model} -i {text} --nbest 5", 2, "nbest=5"),
    (
        "translate --model {model} -i {text} --batch-tokens 0",
        2,
        "batch_tokens=0: must be at least 1",
    ),
    ("translate --model {model} -i {text} --device quantum", 1, "device 'quantum'"),
    ("translate --model {model} -i {text} --device hpu", 1, "device 'hpu'"),
    ("translate --model {model} -i {text} --device cuda:99", 1, "device 'cuda:99'"),
    ("translate --model {model} -i {text} --device cpu:x", 1, "device 'cpu:x'"),
    ("translate --model {model} -i {text} --device meta", 1, "device 'meta'"),
    ("translate --model {model} -i {text} --precision fp8", 2, "precision 'fp8'"),
    ("translate --model {model} -i {nowhere}", 1, "no such file"),
    ("translate --model {model} -i {folder}", 1, "is a folder"),
    ("translate --model {model} -i {text} -o {folder}", 1, "is a folder"),
    ("translate --model {model} -i {text} -o new/", 1, "new/: names a folder"),
    ("translate --model {model} -i {text} -o {text}/x", 1, "can't be written"),
    ("translate --model {nowhere} -i {text}", 1, "no such folder"),
    ("translate --model {folder} -i {text}", 1, "no model in it"),
    ("translate --model {model} -i {text} --alpha 400", 2, "alpha=400.0: must be from 0 to 10"),
    ("translate --model {model} -i {text} --temperature 2", 2, "--temperature is for sampling"),
    ("translate --model {model} -i {text} --sample --beam 4", 2, "--beam is for beam search"),
    ("translate --model {model} -i {text} --sample --seed -1", 2, "seed=-1"),
    ("translate --model {model} -i {text} --nbest 2 --scores", 2, "remove --scores"),
    ("translate --model {model} -i {text} --prefix {nowhere}", 1, "no such file"),
    ("translate --model {model} -i {text} --prefix {two}", 1, "give one prefix per line"),
    ("score", 2, "-i or a model"),
    ("score -i {text}", 2, "-r or a test set"),
    ("score -i {text} -r {nowhere}", 1, "no such file"),
    ("score -i {text} -r {folder}", 1, "is a folder"),
    ("score -i {text} -r {two}", 1, "1"),
    ("score -i {text} -r {text} --beam 9", 2, "--beam needs --model"),
    ("score -i {text} -r {text} --samples 9", 2, "--samples needs --compare"),
    ("score -i {text} -r {text} --compare {two} --samples 0", 2, "--samples 0: must be at least 1"),
    ("score -i {text} -r {text} --compare {two} --seed -1", 2, "--seed -1: must be at least 1"),
    ("score -i {text} -r {text} --resampling dice", 2, "invalid choice: 'dice'"),
    ("score --model {folder} -s {text} -r {text}", 1, "no model in it"),
    ("score -i {text} -r {text} --per-line", 2, "unrecognized arguments: --per-line"),
    ("rescore --model {model} -s {text}", 2, "-i/--input"),
    ("rescore --model {model} -s {text} -i {text} -r {text}", 2, "unrecognized arguments: -r"),
    ("rescore --model {model} -s - -i -", 2, "standard input can't be both texts"),
    ("rescore --model {model} -s {text} -i {two}", 1, "the texts must be parallel"),
    ("score --model {model} --model {model} -s {text} -r {text}", 1, "given twice"),
    ("fidelity modle=base", 2, "did you mean model?"),
    ("fidelity model=bas", 2, "did you mean base?"),
    ("fidelity --model {nowhere}", 1, "no such folder"),
    ("fidelity --model {model} model=big", 2, "remove the overrides"),
    ("fidelity model.num_heads=7", 2, "does not divide into 7 heads"),
    ("table3", 2, "RUN"),
    ("table3 {nowhere}", 1, "no such folder"),
    ("table3 {folder}", 1, "config.yaml: no such file"),
    ("attention --model {model} -o x.svg", 2, "--source"),
    ("attention --model {model} --source one", 2, "-o/--output --json"),
    ("attention --model {model} --source one --json -o x.svg", 2, "not allowed"),
    (
        "attention --model {model} --source one -o x",
        2,
        "x: unknown picture format: choose .svg, .png or .pdf",
    ),
    ("attention --model {model} --source one --json --kind all", 2, "invalid choice: 'all'"),
    (
        "attention --model {model} --source one --json --layer last",
        2,
        "--layer: must be a number or all, not 'last'",
    ),
    ("attention --model {model} --source one --json --head -1", 2, "--head"),
    (
        "attention --model {model} --source one --json --layer 2",
        1,
        "--layer 2: must be from 1 to 1",
    ),
    ("attention --model {model} --source one --json --head 3", 1, "--head 3: must be from 1 to 2"),
    ("attention --model {model} --source one --target two -o {text}/x.svg", 1, "can't be written"),
    ("attention --model {model} --source one --target= --json", 1, "the target is blank"),
    ("attention --model {model} --source= --json", 1, "give --target"),
    ("attention --model {model} --source= --target one --json", 1, "the source is blank"),
    ("average", 2, "--model"),
    ("report {nowhere}", 1, "give the run_dir of a training"),
    ("tune --model {model} -s - -r -", 2, "standard input can't be both texts"),
    ("average --model {nowhere}", 1, "no checkpoints in it"),
    ("average --model {model} --last 0", 2, "--last 0"),
    ("train foo", 2, "missing EQUAL at"),
    ("train --foo", 2, "unrecognized arguments: --foo"),
    ("train --multirn seed=1,2", 2, "did you mean --multirun?"),
    ("train --cfg jobs", 2, "invalid choice: 'jobs'"),
    ("train --multirun --cfg job", 2, "Only one of --run, --multirun, --cfg"),
    ("train --resolve", 2, "can only be used in conjunction with --cfg"),
    ("train max_steps=3", 2, "did you mean training.max_steps?"),
    ("train model=smal", 2, "no such choice: model=smal; did you mean small?"),
    ("train model.num_heads=7", 2, "does not divide into 7 heads"),
    ("train ~data.train", 2, "~data.train: "),
    ("train data.train=news", 2, "data.train=news: "),
    ("train data.valid_sets=news", 2, "data.valid_sets=news: "),
    ("train modle=base", 2, "did you mean model?"),
    ("train +foo=1", 2, "no such key: foo"),
    ("train ++trainig.max_steps=1", 2, "did you mean training.max_steps?"),
    ("train ~foo", 2, "no such key: foo"),
    ("train model=", 2, "choose from: base, big, small, tiny"),
    ("train schedule=null", 2, "must be a string or a list. Got NoneType"),
    ("train model=tiny,,base", 2, "extraneous input ','\n"),
    ("train experiment=[a,b]", 2, "no such choice: experiment=b; choose from: finetune, paper/"),
    ("train experiment=../x", 2, "no such choice: experiment=../x; choose from: finetune, paper/"),
    ("train data=multi30", 2, "did you mean multi30k?"),
    ("train experiment=table3/B_dk17", 2, "did you mean table3/B_dk16?"),
    ("train model=base,small", 2, "--multirun"),
    ("train training.max_steps=many", 2, "training.max_steps=many: Value 'many'"),
    ("train training.max_steps=1.5", 2, "could not be converted to Integer"),
    ("train training=3", 2, "training=3"),
    ("train model.positions=elsewhere", 2, "expected one of [sinusoidal, concatenated, learned]"),
    ("train seed=null", 2, "not Optional"),
    ("train seed=-1", 2, "seed=-1"),
    ("train seed=99999999999999999999", 2, "below 2^63"),
    ("train a=[1", 2, "[1"),
    ("train run_dir=${{nothing}}", 2, "'nothing' not found"),
    ("train --config-name nothing", 2, "'nothing'"),
    ("train --config-dir {nowhere}", 2, "not found"),
    ("train --multirun seed=a,b", 2, "seed=a: Value 'a'"),
    ("train --multirun +experiment/table3=glob(zzz*)", 2, "no combination to run"),
    ("train training.learning_rate_scale=nan", 2, "training.learning_rate_scale=nan"),
    ("train training.max_minutes=inf", 2, "training.max_minutes=inf"),
    ("train model.dropout=nan", 2, "model.dropout=nan"),
    ("train device=quantum", 1, "device 'quantum'"),
    ("train model.num_layers=1001", 2, "model.num_layers=1001: too many layers"),
    ("train data.tokenizer.vocab_size=100000000000", 2, "must be at most 1,000,000"),
    ("train data.tokenizer.character_coverage=0.9", 2, "must be from 0.98 to 1"),
    ("train distributed_timeout=nan", 2, "distributed_timeout=nan"),
    ("train resume=true", 2, "needs run_dir"),
    ("train resume=true run_dir={nowhere}", 1, "no checkpoint to resume from"),
    ("train precision=fp32 run_dir={text}", 1, "in the way of a new run"),
    ("train precision=fp32 run_dir={text}/x data=files", 1, "can't be written"),
    ("train precision=fp32 run_dir={nowhere} cache={text}", 1, "can't be"),
    ("train precision=fp32 cache={folder} data=files data.train.pairs={nowhere}", 1, "nowhere"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bad_calls")
    (folder / "empty").mkdir()
    (folder / "text").write_text("one line\n")
    (folder / "two").write_text("one line\nanother\n")
    save_untrained(folder / "model", tokenizer)
    return {
        "folder": folder / "empty",
        "text": folder / "text",
        "two": folder / "two",
        "model": folder / "model",
        "nowhere": folder / "nowhere",
    }


@pytest.mark.parametrize(("call", "code", "message"), CALLS, ids=[call for call, *_ in CALLS])
def test_a_bad_call_gets_one_line(
    seq2seq: Callable,
    places: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = seq2seq(*(word.format(**places) for word in call.split()))
    assert (result.code, result.out) == (code, ""), result.err
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("seq2seq: ")
    assert message in result.err
    if "--multirun" not in call:  # of which Hydra keeps a record
        assert list(tmp_path.iterdir()) == []
    assert (places["text"].read_text(), places["nowhere"].exists()) == ("one line\n", False)


def test_debug_shows_a_traceback(places: dict[str, Path]) -> None:
    from seq2seq.errors import UserError

    with pytest.raises(UserError):
        main(["translate", "--model", str(places["nowhere"]), "--debug"])
    with pytest.raises(UserError):
        main(["train", "device=quantum", "--debug"])
