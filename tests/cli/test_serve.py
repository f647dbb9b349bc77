"""`seq2seq serve`: its options, what it says, and how it refuses to begin."""

import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.model_folder import TrainedModel, load_model, save_model
from seq2seq.tokenizer import Tokenizer, TokenizerConfig
from tests.conftest import MakeModel
from tests.server.live import serve_by_command


@pytest.fixture(scope="module")
def model_of_two(
    sentences: list[str], make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A model that translates into German and French."""
    controls = [">>de<<", ">>fr<<"]
    tokenizer = Tokenizer.train(sentences, TokenizerConfig(vocab_size=60), controls=controls)
    transformer = make_model(vocab_size=tokenizer.vocab_size, d_model=16).float()
    folder = tmp_path_factory.mktemp("serve") / "several"
    save_model(folder, TrainedModel(transformer, tokenizer, "en", "target"))
    return folder


def test_a_port_in_use_is_refused(model: Path, seq2seq: Callable) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = seq2seq("serve", "--model", model, "--port", str(taken.getsockname()[1]))
    assert result.code == 1
    assert "Address already in use" in result.err


def test_without_the_extra_it_says_what_to_install(model: Path) -> None:
    code = "import sys; sys.modules['starlette'] = None; from seq2seq.cli.main import main"
    call = f"sys.exit(main(['serve', '--model', {str(model)!r}]))"
    done = subprocess.run([sys.executable, "-c", f"{code}; {call}"], capture_output=True, text=True)
    assert done.returncode == 1
    start = "seq2seq: the server needs starlette: pip install "
    assert done.stderr.startswith(start)
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["serve"]
    assert done.stderr[len(start) :].split() == [name.partition(">")[0] for name in extra]


def test_languages_keys_and_the_page_are_options(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# of friends\none\n\n two # Zoë\n#three\n")
    words = ("--model", str(model), "--languages", "en-de", "--languages", "fr-pt-BR")
    access = ("--api-key-file", str(keys), "--no-page")
    with serve_by_command(model, *words, *access) as (_, served, _):
        sources = [row["code"] for row in served.ask("GET", "/languages").json]
        assert sources == ["en", "fr", "de", "pt-BR"]
        assert served.translate("a").status == 403
        assert served.translate("a", api_key="# of friends").status == 403
        assert served.translate("a", api_key="two").status == 200
        assert (
            'key_requests_total{name="Zoë"} 1.0' in served.ask("GET", "/metrics").content.decode()
        )
        assert served.translate("a", api_key="two", source="fr", target="pt-BR").status == 200
        assert served.ask("GET", "/").status == 404
        keys.write_text("four\n")  # counts at once
        assert served.translate("a", api_key="two").status == 403
        keys.unlink()  # can't be read, so nothing changes
        assert served.translate("a", api_key="four").status == 200


@pytest.mark.parametrize("code", ["e\x1b[2J\nn", "en\n", "<script>"])
def test_what_is_no_code_of_a_language_is_not_served(
    code: str, model: Path, tmp_path: Path, seq2seq: Callable
) -> None:
    save_model(tmp_path / "model", replace(load_model(model), source_language=code))
    result = seq2seq("serve", "--model", tmp_path / "model", "--port", "0")
    assert result.code == 1
    assert f"{code!r} is not a language code" in result.err


def test_a_host_that_is_allowed_is_answered_beside_this_machines_own_names(model: Path) -> None:
    words = ("--host", "0.0.0.0", "--allow-host", "mine.example")
    with serve_by_command(model, *words) as (_, served, _):
        # A health check on the same machine knows no other name.
        for host, status in (("127.0.0.1", 200), ("mine.example", 200), ("other.example", 400)):
            assert served.ask("GET", "/health", headers={"host": host}).status == status


def test_a_model_of_several_target_languages_is_served_for_each(model_of_two: Path) -> None:
    text = "a man sees the long road home."
    with serve_by_command(model_of_two, "--host", "0.0.0.0") as (_, served, log):
        assert "anyone who can reach this address can use the server" in log.read_text()
        assert served.ask("GET", "/health", headers={"host": "any.example"}).status == 200
        rows = {row["code"]: row["targets"] for row in served.ask("GET", "/languages").json}
        assert rows == {"en": ["de", "fr"], "de": [], "fr": []}
        found = [served.translate(text, target=to).json["translatedText"] for to in ("de", "fr")]
        assert served.translate(text, target="nl").status == 400
        fields = {"source": "a man", "target": "home", "target_language": "fr"}
        maps = served.post("/attention", **fields).json
        assert maps["columns"][0] == ">>fr<<"
    expected = [
        Translator.load(model_of_two, TranslationOptions(to=to, device="cpu")).translate([text])
        for to in ("de", "fr")
    ]
    assert found == [translation.text for (translation,) in expected]
    assert found[0] != found[1]
