"""Translation on the simulated GPU waits rarely; `test_cuda.py` compares it with the CPU's."""

import weakref
from collections import Counter

import pytest
import torch

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.fast.graphs import Graphs
from seq2seq.model_folder import TrainedModel
from seq2seq.search import SearchConfig
from seq2seq.tokenizer import Tokenizer
from tests.conftest import MakeModel, MakeTrained
from tests.cuda.device import Journal, inside

LINES = ["a man sees the sea.", "", "two small dogs paints an apple.", "nobody likes a red house."]


@pytest.fixture
def trained(make_trained: MakeTrained) -> TrainedModel:
    return make_trained(num_layers=1, d_model=16, d_ff=24)


@pytest.mark.parametrize("lines", [LINES[:1], LINES], ids=len)
def test_a_search_waits_at_its_ends_only(
    trained: TrainedModel, journal: Journal, lines: list[str]
) -> None:
    search = SearchConfig(max_extra_tokens=4)
    options = TranslationOptions(device="cuda", precision="fp32", search=search)
    on_gpu = Translator(trained, options)
    on_gpu.translate(lines)
    journal.clear()
    on_gpu.translate(lines)
    start, end = 1, 2  # lengths; scores and tokens
    assert len(journal.waits) == start + end, Counter(journal.waits)
    # While the host waits to know which sentences are done, the GPU has the next step.
    assert journal.given_meanwhile
    assert all(journal.given_meanwhile[:-1])


def test_translations_stay_what_they_were_after_longer_ones(trained: TrainedModel) -> None:
    """The memory of graphs that were recorded has moved to make room."""
    search = SearchConfig(max_extra_tokens=4)
    on_gpu, on_cpu = (
        Translator(trained, TranslationOptions(device=device, precision="fp32", search=search))
        for device in ("cuda", "cpu")
    )
    for lines in (*[LINES[:1], LINES[3:]] * 2, [" ".join(LINES * 3)], LINES[:1], LINES[3:]):
        found, expected = (each.translate(lines) for each in (on_gpu, on_cpu))
        assert [each.text for each in found] == [each.text for each in expected]
        scores = [each.score for each in expected]
        assert [each.score for each in found] == pytest.approx(scores, abs=1e-4)


def test_alignments_and_attention_are_those_of_the_cpu(trained: TrainedModel) -> None:
    links, weights = [], []
    for device in ("cuda", "cpu"):
        translator = Translator(trained, TranslationOptions(device=device, precision="fp32"))
        links.append([each.pieces for each in translator.alignments(LINES, LINES[::-1])])
        weights.append(translator.attention(LINES[0], LINES[3]).cross.cpu())
    assert links[0] == links[1]
    torch.testing.assert_close(*weights)


def test_a_longer_sentence_leaves_the_graphs_of_shorter_ones_their_positions(
    make_model: MakeModel, tokenizer: Tokenizer, sentences: list[str]
) -> None:
    model = make_model(vocab_size=tokenizer.vocab_size, num_layers=1, d_model=16, d_ff=24).float()
    search = SearchConfig(max_extra_tokens=4)
    options = TranslationOptions(device="cuda", precision="fp32", search=search)
    translator = Translator(TrainedModel(model, tokenizer, "en", "de"), options)
    for _ in range(3):  # the graphs are recorded and started
        expected = [found.score for found in translator.translate(LINES)]
    positions = translator.engine.decoder.model.positions
    first = next(module.table for module in positions.modules() if hasattr(module, "table"))
    # Memory that nobody holds is used for something else.
    weakref.finalize(first, inside(first).fill_, torch.nan)
    del first
    translator.log_probabilities([" ".join(sentences)[:1500]], LINES[:1])
    assert [found.score for found in translator.translate(LINES)] == expected


def test_the_graphs_that_were_not_used_for_long_are_dropped() -> None:
    graphs, x = Graphs(torch.device("cuda"), most=2), torch.zeros(1, device="cuda")
    for key in (1, 2, 1, 3, 1, 2, 3, 1):
        for _ in "12":
            graphs.run(key, lambda: x.add_(1))
        assert len(graphs.replays) <= 2
    assert x.cpu().item() == 16
    assert list(graphs.replays) == [3, 1]
