"""Models that are sized without being made: no memory, no random numbers, no compiler."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seq2seq.config import Positions, Start, TransformerConfig
from seq2seq.errors import UserError
from seq2seq.model_folder import meta_transformer, new_transformer
from tests.models import ALL_MODERN, MODERN

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 4}
CHOICES: list[dict[str, Any]] = [
    {},
    {"attention_bias": True, "start": Start.zero},
    {"positions": Positions.learned, "num_decoder_layers": 3, "output_bias": True},
    {"shared_embedding": False, "tied_output": False},
    *MODERN,
    ALL_MODERN | {"num_decoder_layers": 3},
]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_it_has_the_tensors_of_the_model_that_is_made(choices: dict[str, Any]) -> None:
    config = TransformerConfig(**SIZES, **choices)
    made = new_transformer(config, 50).state_dict()
    empty = meta_transformer(config, 50).state_dict()
    assert empty.keys() == made.keys()
    for name, value in empty.items():
        assert (value.shape, value.device.type) == (made[name].shape, "meta")


def test_the_sides_may_have_vocabularies_of_other_sizes() -> None:
    config = TransformerConfig(**SIZES, shared_embedding=False)
    made = new_transformer(config, 50, 30)
    assert made.embedding.weight.shape == (30, 16)
    assert made.target_embedding.weight.shape == made.output_matrix.shape == (50, 16)


@pytest.mark.integration
def test_commands_work_where_the_folder_of_pytorch_s_compiler_is_taken(tmp_path: Path) -> None:
    code = """
import getpass, os, sys, tempfile
from pathlib import Path
place = Path(tempfile.gettempdir(), "torchinductor_" + getpass.getuser())
place.write_text("another user's")
from seq2seq.config import TransformerConfig
from seq2seq.model_folder import meta_transformer
meta_transformer(TransformerConfig(), 50)
assert "torch._dynamo" not in sys.modules
from seq2seq.cli.main import main
assert main(["fidelity", "model=tiny", "model.num_layers=1"]) == 0
"""
    environment = {"TMPDIR": str(tmp_path), "PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run(
        [sys.executable, "-c", code], check=True, env=environment, stdout=subprocess.DEVNULL
    )
    assert [path.name[:14] for path in tmp_path.iterdir()] == ["torchinductor_"]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        pytest.param(
            {"num_layers": 20, "d_ff": 10**9},
            "too large for this machine's memory",
            id="the memory",
            marks=pytest.mark.posix,  # Windows doesn't tell how much there is
        ),
        pytest.param({"d_model": 8 * 10**12}, "no matrix can be this large", id="a matrix"),
        pytest.param({"d_k": 10**400}, "no matrix can be this large", id="a number"),
    ],
)
def test_a_model_that_is_too_large_is_refused_before_it_is_made(
    sizes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        new_transformer(TransformerConfig(**sizes), 50)
