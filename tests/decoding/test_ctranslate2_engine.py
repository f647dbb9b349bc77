"""CTranslate2 as the engine, against the native search."""

import importlib.util
import math
import sys
from collections.abc import Callable

import pytest
import torch

from seq2seq.decoding.options import SamplingConfig, TranslationOptions
from seq2seq.decoding.translation import Candidate
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.model_folder import TrainedModel
from seq2seq.search import length_penalty
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID, Tokenizer, TokenizerConfig
from seq2seq.transformer import Transformer
from tests.conftest import MakeTrained
from tests.decoding.translators import new_translator

pytestmark = [
    pytest.mark.skipif(not importlib.util.find_spec("ctranslate2"), reason="needs ctranslate2"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the library's own
]


@pytest.fixture(scope="module")
def trained(make_trained: MakeTrained) -> TrainedModel:
    """A random model in which `</s>` is more probable, so that some outputs end."""
    trained = make_trained(seed=3)
    end = trained.model.embedding.weight[END_ID]
    with torch.no_grad():
        last = trained.model.decoder.layers[-1].feed_forward_norm
        last.bias.add_(5 * end / end.square().sum())
    return trained


def both(trained: TrainedModel, **choices: object) -> tuple[Translator, ...]:
    engines = ("native", "ctranslate2")
    return tuple(new_translator(trained, engine=engine, **choices) for engine in engines)


@pytest.mark.parametrize("choices", [{}, {"max_extra_tokens": 1, "batch_tokens": 1000}])
def test_greedy_translations_are_those_of_native(
    trained: TrainedModel, sentences: list[str], choices: dict[str, int]
) -> None:
    """In one batch, too, where the output of a short line must not be as long as of a long one."""
    lines = ["", "a", *sentences[::9], "   ", "a child. " * 6, "☃"]
    expected, found = (one.translate(lines) for one in both(trained, beam_size=1, **choices))
    assert any(one.candidates[0].truncated for one in expected if one.candidates)
    for one, other in zip(expected, found, strict=True):
        assert [c._replace(score=0.0) for c in one.candidates] == [
            c._replace(score=0.0) for c in other.candidates
        ]


def score_by_model(trained: TrainedModel, line: str, candidate: Candidate) -> float:
    """The log-probability of a candidate without `</s>` if it was cut off, by the plain model.

    As in CTranslate2, what is suppressed has no probability, rather than one that is lost.
    """
    tokenizer = trained.tokenizer
    ids = {piece: i for i, piece in enumerate(tokenizer.pieces(list(range(60))))}
    target = [*(ids[piece] for piece in candidate.pieces), END_ID]
    source = torch.tensor([[*tokenizer.encode([line])[0], END_ID]])
    with torch.no_grad():
        logits = trained.model(source, torch.tensor([[START_ID, *target[:-1]]]))[0]
    logits[:, [PADDING_ID, START_ID]] = -math.inf
    chosen = logits.log_softmax(-1)[range(len(target)), target]
    return float(chosen[: len(candidate.pieces) + (not candidate.truncated)].sum())


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_candidates_are_no_longer_than_allowed_and_have_the_score_of_the_model_the_best_first(
    trained: TrainedModel, sentences: list[str], alpha: float
) -> None:
    _, theirs = both(trained, nbest=3, alpha=alpha, max_extra_tokens=9, batch_tokens=1000)
    lines, kinds = ["a", *sentences[::9], "the sea " * 6], set()
    limits = [segment.max_length for (segment,) in theirs.segments(lines)]
    for line, limit, found in zip(lines, limits, theirs.translate(lines), strict=True):
        scores = [candidate.score for candidate in found.candidates]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        for candidate in found.candidates:
            assert len(candidate.pieces) <= limit
            expected = score_by_model(trained, line, candidate)
            penalty = length_penalty(len(candidate.pieces) + 1, alpha)
            assert candidate.score == pytest.approx(expected / penalty, rel=1e-3, abs=1e-3)
            kinds.add(candidate.truncated)
    assert kinds == {False, True} or alpha == 2  # where the longest are the best


def test_without_scores_greedy_outputs_are_equal_and_a_beam_has_them_all_the_same(
    trained: TrainedModel, sentences: list[str]
) -> None:
    lines = ["a", *sentences[:4], "the sea " * 6]
    for beam_size in (1, 4):
        choices = {"beam_size": beam_size, "max_extra_tokens": 1, "batch_tokens": 1000}
        (_, scored), (_, bare) = (both(trained, scores=one, **choices) for one in (True, False))
        for one, other in zip(scored.translate(lines), bare.translate(lines), strict=True):
            assert other.text == one.text
            assert other.candidates[0].truncated == one.candidates[0].truncated
            assert math.isnan(other.score) if beam_size == 1 else other.score == one.score


@pytest.mark.parametrize("value", [math.nan, math.inf, -3e38])
def test_a_model_that_predicts_nan_is_refused_when_it_is_opened(
    make_trained: MakeTrained, value: float
) -> None:
    trained = make_trained(seed=3)
    with torch.no_grad():
        trained.model.decoder.layers[-1].feed_forward_norm.bias[0] = value
    with pytest.raises(UserError, match="the model predicts NaN"):
        both(trained)


def test_this_engine_alone_splits_what_is_longer_than_its_positions(trained: TrainedModel) -> None:
    ours, theirs = both(trained, max_source_tokens=4096)
    line = "a " * 2000
    assert [len(translator.segments([line])[0]) for translator in (ours, theirs)] == [1, 2]


def test_int8_translates(trained: TrainedModel, sentences: list[str]) -> None:
    options = TranslationOptions(device="cpu", precision="int8", engine="ctranslate2")
    translations = Translator(trained, options).translate(sentences[:5])
    assert all(translation.candidates for translation in translations)


def test_what_the_engine_can_t_do_is_one_line(
    trained: TrainedModel, make_trained: MakeTrained, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="precision int8 needs engine ctranslate2: choose that"):
        TranslationOptions(precision="int8")
    with pytest.raises(UserError, match="can't draw samples"):
        TranslationOptions(engine="ctranslate2", search=SamplingConfig())
    options = TranslationOptions(engine="ctranslate2", device="cpu")
    with pytest.raises(UserError, match="can't run an ensemble"):
        Translator([trained, make_trained(seed=2)], options)
    with pytest.raises(UserError, match="heads are d_model / num_heads wide"):
        Translator(make_trained(d_k=3), options)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UserError, match="not installed: pip install ctranslate2, or"):
        Translator(trained, options)


@pytest.fixture(scope="module")
def of_two_languages(make_model: Callable[..., Transformer], sentences: list[str]) -> TrainedModel:
    config = TokenizerConfig(vocab_size=60)
    tokenizer = Tokenizer.train(sentences, config, controls=["<bt>", ">>de<<", ">>fr<<"])
    model = make_model(vocab_size=tokenizer.vocab_size, seed=3).float()
    return TrainedModel(model, tokenizer, "en", "de")


def test_a_target_language_stands_before_the_source(
    of_two_languages: TrainedModel, sentences: list[str]
) -> None:
    texts = [
        [found.text for found in translator.translate(sentences[::9])]
        for to in ("de", "fr")
        for translator in both(of_two_languages, beam_size=1, max_extra_tokens=5, to=to)
    ]
    assert texts[0] == texts[1] != texts[2] == texts[3]


def test_what_stands_before_a_source_has_positions_too(of_two_languages: TrainedModel) -> None:
    _, translator = both(of_two_languages, to="de", tag="<bt>", max_source_tokens=4096)
    first, _ = translator.segments(["a " * 2000])[0]
    assert len(first.source_ids) == translator.engine.max_positions
