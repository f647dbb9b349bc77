"""The loss of a validation against a loop over single sentences."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seq2seq.data.encoded import EncodedCorpus, EncodedCorpusWriter
from seq2seq.data.tokenizer import START_ID
from seq2seq.device import Compute
from seq2seq.model import Transformer
from seq2seq.run.validation import Validation, cross_entropy

V = 30


@pytest.fixture
def corpus(tmp_path: Path) -> EncodedCorpus:
    """Pairs of very unequal lengths, so that there is padding and sentences weigh unequally."""
    chance = torch.Generator().manual_seed(1)
    sources, targets = (
        [torch.randint(4, V, (n,), generator=chance).tolist() for n in lengths]
        for lengths in ((1, 9, 4, 4, 17, 2, 300), (2, 12, 4, 1, 40, 1, 250))
    )
    with EncodedCorpusWriter(tmp_path / "valid.arrow", V) as writer:
        writer.write(sources, targets)
    return EncodedCorpus(tmp_path / "valid.arrow")


@pytest.fixture
def model(make_model: Callable[..., Transformer]) -> Transformer:
    return make_model(vocab_size=V)


def test_the_loss_is_the_mean_over_all_target_tokens(
    model: Transformer, corpus: EncodedCorpus
) -> None:
    total, tokens = 0.0, 0
    for i in range(len(corpus)):
        target = corpus.target(i).tolist()
        with torch.no_grad():
            logits = model(
                torch.tensor([corpus.source(i).tolist()]),
                torch.tensor([[START_ID, *target[:-1]]]),
            )[0]
        for position, token in enumerate(target):
            total -= math.log(logits[position].softmax(dim=0)[token].item())
            tokens += 1
    loss = cross_entropy(model, corpus, Compute())
    assert loss == pytest.approx(total / tokens, rel=1e-6)
    found = Validation(loss, 7.0)
    assert found.metrics()["valid/perplexity"] == pytest.approx(math.exp(total / tokens), rel=1e-6)


def test_a_pair_longer_than_a_batch_is_a_batch_of_its_own(
    model: Transformer, tmp_path: Path
) -> None:
    with EncodedCorpusWriter(tmp_path / "long.arrow", V) as writer:
        writer.write([[5] * 2100, [6]], [[7] * 3, [8]])
    assert math.isfinite(cross_entropy(model, EncodedCorpus(tmp_path / "long.arrow"), Compute()))
