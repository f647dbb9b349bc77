"""One search for several length penalties against a search for each of them."""

import pytest
import torch

from seq2seq.decoding.engines import BeamsByLength
from seq2seq.decoding.options import SweepConfig
from seq2seq.search import beam_search
from tests.decoding.table import END, START, Prefixes, Table, search

ALPHAS = (0.6, 0.0, 2.5, 1.0)


@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_each_alpha_finds_what_a_search_of_its_own_finds(seed: int, beam: int) -> None:
    table = Table(seed, vocab_size=5, sharpness=1.0, end=-1.0)
    limits, prefixes = [9, 1, 12, 5, 7], [(), (), (3, 2), (4,), ()]
    swept = beam_search(
        table.step,
        Prefixes(range(len(limits))),
        torch.tensor(limits),
        SweepConfig(beam_size=beam, alphas=ALPHAS),
        BeamsByLength,
        start_id=START,
        end_id=END,
        prefixes=prefixes,
    )
    for index, alpha in enumerate(ALPHAS):
        alone = search(table, limits, prefixes=prefixes, beam_size=beam, alpha=alpha)
        for found, (wanted,) in zip(swept, alone, strict=True):
            assert found[index].token_ids == wanted.token_ids
            assert found[index].score == pytest.approx(wanted.score)
            assert found[index].truncated == wanted.truncated
