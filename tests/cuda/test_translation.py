"""Translation on the simulated GPU: the CPU's text, in few waits."""

from collections import Counter

import pytest
import torch

from seq2seq.decoding.options import SamplingConfig, TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.fast.decoder import TranslationKernels
from seq2seq.fast.graphs import Graphs
from seq2seq.model_folder import TrainedModel
from seq2seq.search import SearchConfig
from tests.conftest import MakeTrained
from tests.cuda.device import Journal

LINES = ["a man sees the sea.", "", "two small dogs paints an apple.", "nobody likes a red house."]


@pytest.fixture
def trained(make_trained: MakeTrained) -> TrainedModel:
    return make_trained(num_layers=1, d_model=16, d_ff=24)


def translator(trained: TrainedModel, device: str, search: object = None) -> Translator:
    search = search or SearchConfig(max_extra_tokens=4)
    return Translator(trained, TranslationOptions(device=device, precision="fp32", search=search))


@pytest.mark.parametrize(
    "search",
    [
        SearchConfig(max_extra_tokens=4, nbest=2),
        SamplingConfig(nbest=2, top_k=5, top_p=0.9, max_extra_tokens=4),
    ],
)
def test_translations_are_those_of_the_cpu(
    trained: TrainedModel, search: SearchConfig | SamplingConfig
) -> None:
    on_cpu, on_gpu = (translator(trained, device, search) for device in ("cpu", "cuda"))
    translators = [on_gpu]
    if isinstance(search, SearchConfig):
        translators.append(Translator(trained, on_gpu.options, TranslationKernels(static=False)))
    theirs = on_cpu.translate(LINES)
    ours = [found for one in translators for found in one.translate(LINES)]
    for found, expected in zip(ours, theirs * len(translators), strict=True):
        assert [c.text for c in found.candidates] == [c.text for c in expected.candidates]
        for one, other in zip(found.candidates, expected.candidates, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize("lines", [LINES[:1], LINES], ids=len)
def test_a_search_waits_at_its_ends_only(
    trained: TrainedModel, journal: Journal, lines: list[str]
) -> None:
    on_gpu = translator(trained, "cuda")
    on_gpu.translate(lines)
    journal.clear()
    on_gpu.translate(lines)
    start, end = 1, 2  # lengths; scores and tokens
    assert len(journal.waits) == start + end, Counter(journal.waits)
    # While the host waits to know which sentences are done, the GPU has the next step.
    assert journal.given_meanwhile
    assert all(journal.given_meanwhile[:-1])


def test_the_graphs_that_were_not_used_for_long_are_dropped() -> None:
    graphs, x = Graphs(torch.device("cuda"), most=2), torch.zeros(1, device="cuda")
    for key in (1, 2, 1, 3, 1, 2, 3, 1):
        for _ in "12":
            graphs.run(key, lambda: x.add_(1))
        assert len(graphs.replays) <= 2
    assert x.cpu().item() == 16
    assert list(graphs.replays) == [3, 1]
