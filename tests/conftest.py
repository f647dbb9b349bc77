"""Fixtures of several test files: a tiny tokenizer, tiny random models, and the command."""

import io
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, settings

from seq2seq import system
from seq2seq.cli.main import main
from seq2seq.config import TransformerConfig
from seq2seq.model_folder import TrainedModel, new_transformer
from seq2seq.tokenizer import Tokenizer, TokenizerConfig
from seq2seq.transformer import Transformer
from tests.models import perturb

# On a busy machine an example may take long; that is no fault of the code's. The same examples each
# time, so that a failure can be seen again.
settings.register_profile(
    "steady",
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("steady")

MakeModel = Callable[..., Transformer]
MakeTrained = Callable[..., TrainedModel]


class Result(NamedTuple):
    code: int
    out: str
    err: str


# Tests that start processes, whole commands or trainings; scripts/test.sh --fast leaves them out.
INTEGRATION = (
    "cli",
    "cuda",
    "data/test_corpora.py",
    "data/test_everyday.py",
    "data/test_preparation.py",
    "decoding/test_ctranslate2_engine.py",
    "fast/test_search.py",
    "faults",
    "interop",
    "machine/test_distributed.py",
    "report",
    "run",
    "scripts",
    "server/page",
    "server/test_app.py",
    "server/test_clients.py",
    "server/test_faults.py",
    "server/test_files.py",
    "server/test_guard.py",
    "test_experiments.py",
    "test_readme.py",
    "test_recipes.py",
    "test_systems.py",
    "test_wheel.py",
)


def pytest_configure() -> None:
    """Take signals that nohup and background jobs ignore: the commands under test inherit that."""
    for number in system.signals("SIGHUP", "SIGINT"):
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-faults", action="store_true", help="inject every fault as often as it takes"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    folders = [tests / name for name in INTEGRATION]
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in folders):
            item.add_marker(pytest.mark.integration)
        if not system.POSIX_FILES and item.get_closest_marker("posix"):
            item.add_marker(pytest.mark.skip(reason="needs a POSIX system"))
    # The files with long ones first, so that no process waits for another one at the end.
    long = {item.path for item in items if item.get_closest_marker("integration")}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start


@pytest.fixture(autouse=True, scope="session")
def compiler_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what PyTorch's compiler writes, in this process and its children, out of the package."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """A thread that is still busy must not log to the standard error of a test that is over."""
    yield
    for name in ("seq2seq", "hydra_plugins"):
        logging.getLogger(name).handlers.clear()


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings in this process end without their report, a third of the time of short ones."""
    monkeypatch.setattr("seq2seq.cli.training.write_report", lambda *_, **__: None)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is warned about, whatever commands that ran before have made of the logger."""
    logger, found = logging.getLogger("seq2seq"), []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    monkeypatch.setattr(logger, "disabled", False)
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


@pytest.fixture
def first_files(monkeypatch: pytest.MonkeyPatch) -> dict[Path, list[str]]:
    """The names of the files that each folder has when it gets its own."""
    found, rename = dict[Path, list[str]](), Path.rename

    def record(self: Path, target: Path) -> Path:
        if self.is_dir():
            found[target] = [path.name for path in self.iterdir()]
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", record)
    return found


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    who = ("a man", "the woman", "two small dogs", "a child", "nobody")
    does = ("sees", "likes", "carries", "paints")
    what = ("the sea", "a red house", "three old friends", "an apple", "the long road home")
    return [f"{a} {b} {c}." for a in who for b in does for c in what]


@pytest.fixture(scope="session")
def tokenizer(sentences: list[str]) -> Tokenizer:
    return Tokenizer.train(sentences, TokenizerConfig(vocab_size=60))


@pytest.fixture(scope="session")
def make_model() -> MakeModel:
    """Tiny float64 models whose biases and norms, too, are random, or they would prove nothing."""

    def make(*, vocab_size: int = 11, seed: int = 1, **choices: object) -> Transformer:
        sizes = {"num_layers": 2, "d_model": 8, "d_ff": 12, "num_heads": 2, "dropout": 0.0}
        config = TransformerConfig(**(sizes | choices))  # type: ignore[arg-type]
        torch.manual_seed(seed)
        model = new_transformer(config, vocab_size).double().eval()
        perturb(model)
        return model

    return make


@pytest.fixture(scope="session")
def make_trained(make_model: MakeModel, tokenizer: Tokenizer) -> MakeTrained:
    """Such models in float32, with their tokenizer."""

    def make(**choices: object) -> TrainedModel:
        model = make_model(vocab_size=tokenizer.vocab_size, **choices).float()
        return TrainedModel(model, tokenizer, "en", "de")

    return make


@pytest.fixture
def seq2seq(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Run the command in this process, with some bytes as its standard input, if given."""

    def run(*words: str | Path, stdin: bytes | None = None) -> Result:
        if stdin is not None:
            piped = SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False)
            monkeypatch.setattr(sys, "stdin", piped)
        capfd.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as left:
            code = int(left.code or 0)
        return Result(code, *capfd.readouterr())

    return run


@pytest.fixture
def seq2seq_json(seq2seq: Callable[..., Result]) -> Callable[..., Any]:
    """Run the command, and read the JSON that it prints."""

    def run(*words: str | Path) -> Any:
        result = seq2seq(*words, "--json")
        assert result.code == 0, result.err
        return json.loads(result.out)

    return run
