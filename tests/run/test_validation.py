"""The loss of a validation; `test_finetuning.py` compares it with the translator's."""

import math
from collections.abc import Callable
from pathlib import Path

from seq2seq.data.encoded import EncodedCorpus, EncodedCorpusWriter
from seq2seq.device import Compute
from seq2seq.model import Transformer
from seq2seq.run.validation import batch_losses
from seq2seq.training.distributed import World

V = 30


def test_a_pair_longer_than_a_batch_is_a_batch_of_its_own(
    make_model: Callable[..., Transformer], tmp_path: Path
) -> None:
    with EncodedCorpusWriter(tmp_path / "long.arrow", V) as writer:
        writer.write([[5] * 2100, [6]], [[7] * 3, [8]])
    model = make_model(vocab_size=V)
    corpus = EncodedCorpus(tmp_path / "long.arrow")
    losses = batch_losses(model, corpus, Compute(), World())
    assert [tokens for _, tokens in losses] == [2, 4]
    assert all(math.isfinite(loss) for loss, _ in losses)
