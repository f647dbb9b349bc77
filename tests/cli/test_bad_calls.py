"""Bad calls: one line on standard error that says what is wrong, and the right exit code."""

from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import pytest

from seq2seq.cli.arguments import COMMANDS

# Words ({x} is of the fixture below), exit code, and what the line must say.
CALLS = [
    ("trian", 2, "invalid choice: 'trian' (choose from"),
    ("translate", 2, "arguments are required: --model; seq2seq translate --help shows how"),
    ("serve", 2, "arguments are required: --model;"),
    ("average", 2, "arguments are required: --model;"),
    ("attention", 2, "arguments are required: --model, --source;"),
    ("rescore", 2, "arguments are required: --model, -s/--source, -i/--input;"),
    ("score -i {text}", 2, "arguments are required: -r/--reference;"),
    ("export", 2, "arguments are required: --model, --to, -o/--output;"),
    ("import {folder}", 2, "arguments are required: -o/--output;"),
    ("attention --model {model} --source one -o x", 2, "x: unknown picture format: choose"),
    ("translate --model {model} -i {text} --skip *.pdf", 2, "--skip is for the files of a folder"),
    ("translate --model {model} -i {text} --fuzzy", 2, "--fuzzy is for .po files: remove it"),
    ("translate --model {model} -i {model} --skip .", 2, "--skip '.': names nothing: write such"),
    ("translate --model {model} -i {text} --input {two}", 2, "argument -i/--input: is given twice"),
    ("average --model {model} --model {nowhere}", 2, "argument --model: is given twice; give it"),
    ("translate --model {model} -i {text} --beam 0", 2, "--beam 0: must be at least 1"),
    ("translate --model {model} --nbest 9 --beam 4", 2, "--nbest 9: must be at most --beam 4"),
    ("translate --model {model} -i {text} --to nl", 1, "the model translates into de only"),
    ("translate --model {model} -i {text} --batch-tokens 0", 2, "--batch-tokens 0: must be at"),
    ("translate --model {model} -i {text} --device cuda:99", 1, "device 'cuda:99'"),
    ("translate --model {model} -i {text} --precision fp8", 2, "precision 'fp8'"),
    ("translate --model {model} -i {text} --source-language e", 2, "--source-language e: must be"),
    ("translate --model {model} -i {nowhere}", 1, "no such file"),
    ("translate --model {model} -i {folder}", 2, "is a folder"),
    ("translate --model {model} -i {text} -o new/", 1, "new/: names a folder"),
    ("translate --model {model} -i {text} -o {text}/x", 1, "can't be written"),
    ("translate --model {nowhere} -i {text}", 1, "no folder of this name"),
    ("translate --model {model} -i {text} --nbest 2 --scores", 2, "remove --scores"),
    ("translate --model {model} -i {text} --alignments -", 2, "needs a file of its own"),
    ("translate --model {model} -i {film} --nbest 2", 2, "--nbest is for lines of text: remove it"),
    ("translate --model {model} -i {film} --alignments x", 2, "--alignments is for lines"),
    ("translate --model {model} -i {film} --format pdf", 2, "pdf: choose one of arb, "),
    ("translate --model {model} -i {film} -o x.vtt", 2, "is .srt, as the document: name it so"),
    ("translate --model {model} -i {text} --resume --alignments x -o y", 2, "remove --alignments"),
    ("translate --model {model} -i {text} --resume -o -", 2, "--resume continues a file or folder"),
    ("translate --model {model} -i {text} --resume -o /dev/null", 1, "needs a file as output"),
    ("translate --model {model} -i {film} --resume -o x.srt", 2, "or give the folder"),
    ("{serve} --model {model} --glossary {text}", 2, "give one --model"),
    ("{serve} --port 70000", 2, "--port 70000: must be from 0 to 65535"),
    ("{serve} --host no.such.host.invalid", 1, "--host no.such.host.invalid"),
    ("{serve} --char-limit 0", 2, "--char-limit: Expected `int` >= 1"),
    ("{serve} --languages ende", 2, "--languages ende: write SOURCE-TARGET"),
    ("{serve} --languages en-de,fr", 2, "--languages en-de,fr: the model has one target"),
    ("{serve} --model {model}", 1, "another model translates en -> de, too"),
    ("{serve} --api-key-file {blank}", 1, "no key in it"),
    ("{serve} --allow-origin https://friend.example/", 2, "https://friend.example/"),
    ("{serve} --allow-host *friend.example", 2, "the name alone"),
    ("score --model {model} -r {text}", 2, "give -s"),
    ("score -i {text} -r {text} --compare {text}", 2, "compared with itself"),
    ("score -i {text} -r {two} --paper --lowercase", 2, "cased"),
    ("score -i {text} -r {text} -s {two}", 2, "--source is for --model: add that, or remove it"),
    ("score -i {text} -r {text} --language fr", 2, "--language is for --paper"),
    ("rescore --model {model} -s - -i -", 2, "standard input can't be both texts"),
    ("rescore --model {model} -s {text} -i {two}", 1, "the texts must be parallel"),
    ("fidelity --model {model} model=big", 2, "remove the overrides"),
    ("fidelity model=[", 2, "model=[: can't be read; put quotation marks"),
    ("fidelity {folder}", 2, "to examine a run, write --model"),
    ("attention --model {model} --source one", 2, "-o/--output --json"),
    ("report --model {model}", 2, "unrecognized arguments: --model; seq2seq report --help"),
    ("report {nowhere}", 1, "give the run_dir of a run"),
    ("export --model {model} --to marian -o {folder}", 1, "already exists; choose another folder"),
    ("export --model {model} --to onnx -o new --library {folder}", 2, "--library is for --to web"),
    ("export --model {model} --to web -o new --library {folder}", 1, "no such file; in another"),
    ("average --model {nowhere}", 1, "no checkpoints in it"),
    ("average --model {model} --last 0", 2, "--last 0"),
    ("train foo", 2, "missing EQUAL at"),
    ("train hydra.run.dir=foo", 2, "hydra.run.dir=foo: the folder of a run is run_dir=FOLDER"),
    ("train data.tokenizer.symbols=[<NUM>]", 2, "no such key: data.tokenizer.symbols"),
    ("train --multirn seed=1,2", 2, "unrecognized arguments: --multirn; seq2seq train --help"),
    ("train model=smal", 2, "no such choice: model=smal; did you mean small?"),
    ("train model.num_heads=7", 2, "does not divide into 7 heads"),
    ("train hparams_search=optuna", 2, "searches by several runs: add --multirun"),
    ("train --multirun hydra/launcher=absent", 2, "not installed: pip install hydra-absent-l"),
    ("train --multirun hydra/launcher=submitit", 2, "did you mean submitit_slurm?"),
    ("train ~data.train", 2, "~data.train: "),
    ("train data.train=news", 2, "data.train.source, data.train.target, data.train.pairs"),
    ("train data=news.tsv", 2, "no such choice: data=news.tsv; choose one of everyday, files"),
    ("train model=base,small", 2, "--multirun"),
    ("train --multirun hydra.sweeper.max_batch_size=0 seed=1,2", 2, "AssertionError"),
    ("train training.select_by=ter", 2, "must be bleu, chrf or loss"),
    ("train run_dir=${{nothing}}", 2, "'nothing' not found"),
    ("train --config-dir {nowhere}", 2, "not found"),
    ("train --multirun +experiment/table3=glob(zzz*)", 2, "no combination to run"),
    ("train device=quantum", 1, "device 'quantum'"),
    ("train model.num_layers=1001", 2, "model.num_layers=1001: must be at least 1 and"),
    ("train resume=true", 2, "needs run_dir"),
    ("train resume=true run_dir={nowhere}", 1, "no checkpoint to resume from"),
    ("train precision=fp32 run_dir={text}", 1, "in the way of a new run"),
    ("train precision=fp32 run_dir={text}/x data=files", 1, "can't be written"),
    ("train precision=fp32 cache={text}", 1, "choose another folder with cache=FOLDER"),
    ("train precision=fp32 cache={folder} data=files data.train.pairs={nowhere}", 1, "nowhere"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_counts_twice_or_is_refused_the_second_time(command: str) -> None:
    parser = ArgumentParser()
    COMMANDS[command][1](parser)
    for item in (*parser._actions, *parser._mutually_exclusive_groups):
        item.required = False
    for action in parser._actions:
        if not action.option_strings or action.nargs == 0:
            continue
        first = str(action.choices[0]) if action.choices else "1"
        words = [action.option_strings[0], first, *[first] * (action.nargs == 2)]
        one = vars(parser.parse_args(words))[action.dest]
        try:
            two = vars(parser.parse_args([*words, *words]))[action.dest]
        except SystemExit:
            assert not isinstance(one, list)
        else:
            assert two == [*one, *one]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, model: Path) -> dict[str, Path | str]:
    folder = tmp_path_factory.mktemp("bad_calls")
    (folder / "folder").mkdir()
    film = "1\n00:00:01,000 --> 00:00:02,500\nNo.\n"
    files = {"text": "one line\n", "blank": "\n", "two": "one line\nanother\n", "film.srt": film}
    for name, content in files.items():
        (folder / name).write_text(content)
    places = {name: folder / name for name in ("folder", "text", "blank", "two", "nowhere")}
    serve = f"serve --engine native --model {model}"
    return {**places, "film": folder / "film.srt", "model": model, "serve": serve}


@pytest.mark.parametrize(("call", "code", "message"), CALLS, ids=[call for call, *_ in CALLS])
def test_a_bad_call_gets_one_line(
    seq2seq: Callable,
    places: dict[str, Path | str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = seq2seq(*call.format(**places).split())
    assert (result.code, result.out) == (code, ""), result.err
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("seq2seq: ")
    assert message in result.err
    if "--multirun" not in call:  # of which Hydra keeps a record
        assert list(tmp_path.iterdir()) == []
    assert (places["text"].read_text(), places["nowhere"].exists()) == ("one line\n", False)
