"""Several models against the mean of their probabilities, computed by hand."""

import itertools
import math
from collections.abc import Sequence

import pytest
import torch

from seq2seq.config import Positions
from seq2seq.decoder import IncrementalDecoder
from seq2seq.decoding.ensemble import Ensemble, TargetScore, mean_log_probabilities, score_targets
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.model_folder import TrainedModel
from seq2seq.search import SearchConfig, beam_search, length_penalty
from seq2seq.tokenizer import Tokenizer, TokenizerConfig
from seq2seq.transformer import Transformer
from tests.conftest import MakeModel, MakeTrained
from tests.core.test_beam_search import assert_same
from tests.decoding.translators import new_translator

VOCABULARY = 7
SOURCES = [[4, 5, 6, 3], [6, 3], [5, 5, 4, 3]]


@pytest.fixture
def models(make_model: MakeModel) -> list[Transformer]:
    """Of one vocabulary and of different sizes."""
    return [
        make_model(vocab_size=VOCABULARY, seed=1),
        make_model(vocab_size=VOCABULARY, seed=2, num_layers=1, d_model=12, num_heads=3),
        make_model(vocab_size=VOCABULARY, seed=3, d_ff=20),
    ]


@pytest.fixture
def trained(make_trained: MakeTrained) -> list[TrainedModel]:
    sizes = ({}, {"num_layers": 1, "d_model": 12}, {"d_ff": 20})
    return [make_trained(seed=seed, **size) for seed, size in enumerate(sizes)]


@pytest.fixture
def lines(sentences: list[str]) -> list[str]:
    """Of many lengths."""
    return [sentences[7 * i][: 3 * i + 4] for i in range(14)]


@torch.no_grad()
def log_probability(
    models: Sequence[Transformer], source: Sequence[int], output: Sequence[int]
) -> float:
    """Of an output with its end symbol, from the plain models, token by token."""
    total = 0.0
    for i, token in enumerate(output):
        inputs = torch.tensor([source]), torch.tensor([[2, *output[:i]]])
        probabilities = [model(*inputs)[0, -1].softmax(0)[token].item() for model in models]
        total += math.log(sum(probabilities) / len(models))
    return total


def test_beam_search_finds_the_best_outputs_by_the_mean_of_the_probabilities(
    models: list[Transformer],
) -> None:
    lengths = [3, 1, 2]
    width = max(map(len, SOURCES))
    source = torch.tensor([ids + [0] * (width - len(ids)) for ids in SOURCES])
    for together in (models[:1], models):
        ensemble = Ensemble([IncrementalDecoder(model) for model in together])
        found = beam_search(
            ensemble.step,
            ensemble.begin(source),
            torch.tensor(lengths),
            SearchConfig(beam_size=100, nbest=4),
            start_id=2,
            end_id=3,
            suppressed_ids=(0, 2),
        )
        for ids, longest, hypotheses in zip(SOURCES, lengths, found, strict=True):
            outputs = []
            for length in range(longest + 1):
                for output in itertools.product((1, 4, 5, 6), repeat=length):
                    total = log_probability(together, ids, (*output, 3))
                    outputs.append((output, total / length_penalty(length + 1, 0.6)))
            outputs.sort(key=lambda pair: -pair[1])
            assert_same(hypotheses, outputs[:4])


@pytest.mark.parametrize("chunk_elements", [25, 2**23])
def test_given_targets_are_scored_by_the_mean_of_the_probabilities(
    models: list[Transformer], chunk_elements: int
) -> None:
    pairs = list(zip(SOURCES, ([3], [4, 4, 6, 1, 3], [5, 3]), strict=True))
    for together in (models[:1], models):
        found = score_targets(together, pairs, chunk_elements=chunk_elements)
        assert [score.tokens for score in found] == [1, 5, 2]
        for pair, score in zip(pairs, found, strict=True):
            expected = log_probability(together, *pair)
            assert score.log_probability == pytest.approx(expected, abs=1e-9)
            assert score.perplexity == pytest.approx(math.exp(-expected / len(pair[1])))


def test_low_precision_takes_log_probabilities_in_float32(make_model: MakeModel) -> None:
    model = make_model(vocab_size=9).bfloat16()
    (score,) = score_targets([model], [([4, 5, 3], [6, 7, 3])])
    with torch.no_grad():
        logits = model(torch.tensor([[4, 5, 3]]), torch.tensor([[2, 6, 7]]))[0]
    gold = logits.float().log_softmax(-1).gather(1, torch.tensor([[6], [7], [3]]))
    assert score.log_probability == pytest.approx(float(gold.sum()), abs=1e-5)


def test_totals_and_perplexities() -> None:
    total = TargetScore.total([TargetScore(-3.0, 2), TargetScore(0.0, 0), TargetScore(-1.0, 2)])
    assert (total, total.perplexity) == (TargetScore(-4.0, 4), pytest.approx(math.e))
    assert TargetScore(0.0, 0).perplexity == 1
    assert math.isfinite(TargetScore(-1e6, 1).perplexity)


def test_small_probabilities_do_not_underflow() -> None:
    small = [torch.tensor([-2000.0, -1.0]), torch.tensor([-3000.0, -math.inf])]
    expected = torch.tensor([-2000.0, -1.0]) - math.log(2)
    torch.testing.assert_close(mean_log_probabilities(small), expected)
    assert mean_log_probabilities([small[1], small[1]])[1] == -math.inf


def test_the_text_depends_on_neither_batch_nor_workers_nor_the_order_of_models(
    trained: list[TrainedModel], lines: list[str]
) -> None:
    expected = new_translator(trained, batch_tokens=1).translate(lines)
    alone = new_translator(trained[:1]).translate(lines)
    assert sum(a.text != b.text for a, b in zip(alone, expected, strict=True)) > 5
    for order, choices in (((2, 1, 0), {"batch_tokens": 16, "workers": 3}), ((1, 0, 2), {})):
        found = new_translator([trained[i] for i in order], **choices).translate(lines)
        assert [one.text for one in found] == [one.text for one in expected]
        scores = [one.score for one in expected]
        assert [one.score for one in found] == pytest.approx(scores, abs=1e-5)


def test_the_shortest_table_of_positions_bounds_an_ensemble(
    trained: list[TrainedModel], make_trained: MakeTrained
) -> None:
    learned = make_trained(positions=Positions.learned, max_learned_positions=20)
    for together in ([learned, trained[0]], [trained[0], learned]):
        (translation,) = new_translator(together).translate(["the long road home " * 9])
        assert len(translation.parts) > 1
        assert all(len(part.candidates[0].pieces) < 20 for *_, part in translation.parts)


def test_one_model_that_predicts_nan_is_an_error(trained: list[TrainedModel]) -> None:
    with torch.no_grad():
        trained[1].model.embedding.weight.fill_(math.nan)
    one, all_three = new_translator(trained[1]), new_translator(trained)
    for call in (one.attention, one.alignments, all_three.log_probabilities, all_three.alignments):
        with pytest.raises(UserError, match="NaN"):
            call(*("a man", "the sea") if call == one.attention else (["a man"], ["the sea"]))
    with pytest.raises(UserError, match="NaN"):
        all_three.translate(["a man"])


def test_models_that_can_not_translate_together_are_named(
    trained: list[TrainedModel], sentences: list[str]
) -> None:
    other = Tokenizer.train(sentences[:50], TokenizerConfig(vocab_size=60))
    model = trained[0].model
    with pytest.raises(UserError, match="model 2 has another tokenizer than model 1: "):
        Translator([trained[0], TrainedModel(model, other, "en", "de")])
    with pytest.raises(UserError, match="model 2 translates from de to en, model 1 from en"):
        Translator([trained[0], TrainedModel(model, trained[0].tokenizer, "de", "en")])


def test_attention_is_that_of_one_model(trained: list[TrainedModel]) -> None:
    assert new_translator(trained[:1]).attention("a man", "the sea").cross.ndim == 4
    with pytest.raises(UserError, match="an ensemble has no attention"):
        new_translator(trained).attention("a man", "the sea")
