"""The wheel in a fresh environment, outside the checkout."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.toy import data_words, reversing

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new virtual environment with the wheel in it.

    The libraries are those of the running environment, by a path file, so that nothing is
    downloaded; the editable install is not seen, because path files there are not read from here.
    """
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
    subprocess.run([*build, CHECKOUT], check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    packages = next((folder / "env").glob("lib/python*/site-packages"))
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    wheel = next(folder.glob("*.whl"))
    install = [sys.executable, "-m", "pip", "--quiet", "--python", folder / "env", "install"]
    subprocess.run([*install, "--no-deps", "--no-index", "--ignore-installed", wheel], check=True)
    return folder / "env" / "bin"


def test_it_holds_configuration_and_corpus(environment: Path, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import seq2seq, seq2seq.cli.hydra as r;"
        "assert 'env' in Path(seq2seq.__file__).parts, seq2seq.__file__;"
        "assert (r.resource_folder('conf') / 'train.yaml').is_file();"
        "assert (r.resource_folder('data') / 'everyday' / 'train.en').is_file();"
        "found = [p.name for p in r.resource_folder('data').rglob('*') if p.is_dir()];"
        "assert found == ['everyday'], found"
    )
    subprocess.run([environment / "python", "-c", code], check=True, cwd=tmp_path)


def test_it_holds_the_page_that_is_exported(environment: Path, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import seq2seq;"
        "page = Path(seq2seq.__file__).parent / 'interop' / 'page';"
        "print(*sorted(p.name for p in page.iterdir()))"
    )
    found = subprocess.check_output([environment / "python", "-c", code], cwd=tmp_path, text=True)
    page = CHECKOUT / "seq2seq" / "interop" / "page"
    assert found.split() == sorted(file.name for file in page.iterdir())


def test_it_trains_and_translates(environment: Path, tmp_path: Path, sentences: list[str]) -> None:
    train = [environment / "seq2seq", "train", "model=tiny", "schedule=demo", "run_dir=run"]
    small = ["cache=cache", "training.max_steps=2", "model.num_layers=1", "search.beam_size=1"]
    small += ["search.max_extra_tokens=2", *data_words(tmp_path), "data.tokenizer.vocab_size=60"]
    small += [f"training.{name}_tokens=100" for name in ("source", "target", "micro_batch")]
    for split in ("train", "valid"):
        reversing(tmp_path, split, sentences)
    options = {"check": True, "cwd": tmp_path, "capture_output": True}
    subprocess.run([*train, *small], **options)
    translate = [environment / "seq2seq", "translate", "--model", "run", "--beam", "1"]
    result = subprocess.run(translate, input=b"The dog sleeps.\n\n", **options)
    assert result.stdout.count(b"\n") == 2
