"""The loss of a validation; `test_finetuning.py` compares it with the translator's."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seq2seq.data.corpus import SplitConfig
from seq2seq.device import Compute
from seq2seq.encoded_corpus import EncodedCorpus, encode_ids, new_corpus
from seq2seq.machine.processes import OneProcess, Processes
from seq2seq.run.config import Config
from seq2seq.run.training import TrainingRun
from seq2seq.run.validation import cross_entropy
from seq2seq.transformer import Transformer
from tests.toy import two_files

V = 30


def test_processes_find_together_what_one_finds(toy: Config, tmp_path: Path) -> None:
    data = replace(toy.data, valid_sets={"more": toy.data.train})
    run = TrainingRun(replace(toy, data=data), tmp_path, OneProcess())
    alone, *shares = (
        run.validate_share(run.trainer.model, Processes(rank=rank, size=size))
        for rank, size in ((0, 1), (0, 3), (1, 3), (2, 3))
    )
    outputs = [""] * len(run.data.valid_sets["valid"].pairs)
    for rank, share in enumerate(shares):
        outputs[rank::3] = share[0].outputs
    assert outputs == alone[0].outputs
    assert len(set(outputs)) > 1
    metrics = run.summarize([alone])
    assert run.summarize(shares) == metrics
    assert metrics["valid/loss"] != metrics["valid/more/loss"]
    assert not run.cut_off
    shares[1][0] = shares[1][0]._replace(outputs=None)  # its time was over
    assert run.summarize(shares) == metrics | {
        "valid/bleu": 0.0,
        "valid/mean/bleu": metrics["valid/more/bleu"] / 2,
    }
    assert run.cut_off


def test_a_pair_without_text_on_a_side_does_not_count_in_a_validation(
    toy: Config, tmp_path: Path
) -> None:
    metrics = []
    for number, more in enumerate(([], [("", "a b"), ("a b", " "), ("", "")])):
        texts = [
            Path(str(path)).read_text() for path in (toy.data.valid.source, toy.data.valid.target)
        ]
        sides = [text.splitlines() + [pair[i] for pair in more] for i, text in enumerate(texts)]
        valid = SplitConfig(**two_files(tmp_path, f"valid{number}", *sides))
        run = TrainingRun(replace(toy, data=replace(toy.data, valid=valid)), tmp_path, OneProcess())
        share = run.validate_share(run.trainer.model, OneProcess())
        metrics.append(run.summarize([share]))
        assert len(share[0].outputs) == 10
    assert metrics[0] == metrics[1]


def test_a_pair_longer_than_a_batch_is_a_batch_of_its_own(
    make_model: Callable[..., Transformer], tmp_path: Path
) -> None:
    with new_corpus(tmp_path / "long.ids") as write:
        write(encode_ids([[5] * 2100, [6]], [[7] * 3, [8]], V))
    model = make_model(vocab_size=V)
    corpus = EncodedCorpus(tmp_path / "long.ids")
    assert math.isfinite(cross_entropy(model, corpus, Compute()))
