"""The settings that a checkpoint remembers: which keys have changed since then."""

import re
from dataclasses import replace
from pathlib import Path

from omegaconf import OmegaConf

from seq2seq.config import Config
from seq2seq.data.config import CorpusConfig, DataConfig, SplitConfig
from seq2seq.run.folder import changes_of_data, micro_batch_hint
from seq2seq.training.config import TrainingConfig


def test_as_many_micro_batches_are_reached_on_other_numbers_of_processes() -> None:
    paper = TrainingConfig()
    assert [paper.micro_batches_on(n) for n in (1, 8)] == [7, 8]
    (tokens,) = re.findall(r"training\.micro_batch_tokens=(\d+)", micro_batch_hint(paper, 8, 1))
    assert replace(paper, micro_batch_tokens=int(tokens)).micro_batches_on(1) == 8
    assert "must divide 7, and 8 does not" in micro_batch_hint(paper, 7, 8)
    assert micro_batch_hint(paper, "seven", 8) == ""


def test_the_keys_of_data_that_changed_are_named(tmp_path: Path) -> None:
    back = CorpusConfig(source="a", target="b", tag="<bt>")
    before = DataConfig(corpora={"back": back})
    path = tmp_path / "config.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.structured(Config(data=before))))
    other_tag = {"back": replace(back, tag="<x>")}
    more = replace(before, corpora=other_tag, train=SplitConfig(pairs="c.tsv"))
    found = changes_of_data(tmp_path, more)
    assert found == "; changed: data.train.pairs, data.corpora.back.tag"
    assert "but the text has changed" in changes_of_data(tmp_path, before)
