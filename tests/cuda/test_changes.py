"""A change of the paper's file is obeyed on a GPU, too."""

from pathlib import Path

import pytest
from torch import Tensor

from seq2seq.transformer import DecoderLayer, FeedForward
from tests.changes import EDITS, SUBCLASSES, Change, assert_obeyed, name_of, smooth

USUAL = EDITS[0], EDITS[12], SUBCLASSES[1]
MORE = [change for change in EDITS + SUBCLASSES if change not in USUAL]


@pytest.mark.parametrize(
    "change",
    [*USUAL, *(pytest.param(change, marks=pytest.mark.slow) for change in MORE)],
    ids=lambda change: name_of(change),
)
def test_a_change_is_obeyed(
    change: Change, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert_obeyed(change, tmp_path, caplog, "cuda")


def halved(
    self: DecoderLayer, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor
) -> Tensor:
    x = self.self_attention_norm(x + self.self_attention(x, x, target_mask))
    x = self.cross_attention_norm(x + self.cross_attention(x, memory / 2, source_mask))
    return self.feed_forward_norm(x + self.feed_forward(x))


@pytest.mark.parametrize(
    "change",
    [Change(FeedForward, "forward", smooth), Change(DecoderLayer, "forward", halved)],
    ids=name_of,
)
def test_an_edit_is_obeyed_where_a_form_on_trial_would_not_do_it(
    change: Change,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEQ2SEQ_TRIALS", "relu_in_matmul,keys_and_values_at_once")
    assert_obeyed(change, tmp_path, caplog, "cuda")
