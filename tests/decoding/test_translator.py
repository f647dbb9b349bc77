"""Text in, text out: order, blank lines, batches and limits, with a tiny random model."""

import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import seq2seq
from seq2seq.decoding.ensemble import TargetScore
from seq2seq.decoding.options import SamplingConfig, TranslationOptions
from seq2seq.decoding.segments import make_batches
from seq2seq.decoding.translation import Translation
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.fast.decoder import TranslationKernels
from seq2seq.machine.resources import process_lock
from seq2seq.model_folder import TrainedModel
from seq2seq.search import Hypothesis, SearchConfig, length_penalty
from seq2seq.tokenizer import PADDING_ID, START_ID, Tokenizer, TokenizerConfig
from seq2seq.transformer import Transformer
from seq2seq.translate import SearchInput
from tests.conftest import MakeModel, MakeTrained
from tests.decoding.translators import new_translator

MakeTranslator = Callable[..., Translator]


@pytest.fixture
def make_translator(make_trained: MakeTrained) -> MakeTranslator:
    return lambda **choices: new_translator(make_trained(), **choices)


@pytest.fixture
def lines(sentences: list[str]) -> list[str]:
    """Of many lengths, some of them blank."""
    chosen = random.Random(1).sample(sentences, 8)
    texts = [" ".join(chosen[: 1 + i % 4])[: 7 * i + 3] for i in range(8)]
    return ["", *texts[:5], "   ", *texts[5:], "\t", ""]


def texts_of(translations: list[Translation]) -> list[str]:
    return [translation.text for translation in translations]


def test_a_translation_depends_on_neither_batch_nor_order_nor_earlier_calls(
    make_translator: MakeTranslator, lines: list[str]
) -> None:
    one_by_one = make_translator(batch_tokens=1)
    expected = one_by_one.translate(lines)
    assert [bool(one.candidates) for one in expected] == [bool(line) for line in lines]
    assert len(set(texts_of(expected))) > 5, "all translations are equal, which proves nothing"
    assert one_by_one.translate(lines) == expected
    order = random.Random(2).sample(range(len(lines)), len(lines))
    for batch_tokens in (8, 1024):
        found = make_translator(batch_tokens=batch_tokens).translate([lines[i] for i in order])
        assert texts_of(found) == [expected[i].text for i in order]
        scores = [expected[i].score for i in order]
        assert [translation.score for translation in found] == pytest.approx(scores, abs=1e-5)
    for chunk in (1, 5):
        stream = make_translator().translate_stream(iter(lines), chunk_lines=chunk)
        assert texts_of(list(stream)) == texts_of(expected)


def test_samples_depend_on_the_seed_and_the_line_alone(
    make_translator: MakeTranslator, lines: list[str]
) -> None:
    expected = texts_of(make_translator(seed=3).translate(lines))
    order = random.Random(2).sample(range(len(lines)), len(lines))
    for choices in ({"batch_tokens": 1, "workers": 2}, {"batch_tokens": 1024, "nbest": 5}):
        found = make_translator(seed=3, **choices).translate([lines[i] for i in order])
        assert texts_of(found) == [expected[i] for i in order]
        assert {len(one.candidates) for one in found} == {0, 1, choices.get("nbest", 1)}
    assert texts_of(make_translator(seed=4).translate(lines)) != expected


def test_a_callers_autocast_changes_nothing(
    make_translator: MakeTranslator, lines: list[str]
) -> None:
    translator = make_translator(workers=2)
    expected, scores = translator.translate(lines), translator.log_probabilities(lines, lines)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert translator.translate(lines) == expected
        assert translator.log_probabilities(lines, lines) == scores
        assert translator.attention("a child", "a tree").cross.dtype == torch.float32


@pytest.mark.parametrize("choices", [{}, {"seed": 2}, {"glossary": {"sea": "house"}}], ids=str)
@pytest.mark.parametrize("count", [1, 2])
def test_a_plain_form_runs_no_code_of_the_fast_ones(
    make_trained: MakeTrained, sentences: list[str], count: int, choices: dict[str, Any]
) -> None:
    def packages(forms: str) -> set[str]:
        """Translate, and return the packages whose functions were called."""
        names, lines = set[str](), sentences[:2]
        sys.setprofile(lambda frame, event, argument: names.add(frame.f_globals["__name__"]))
        try:
            new_translator([make_trained()] * count, forms=forms, **choices).translate(lines)
        finally:
            sys.setprofile(None)
        return {".".join(name.split(".")[:2]) for name in names}

    assert "seq2seq.fast" in packages("fast")
    plain = packages("plain")
    assert "seq2seq.fast" not in plain
    assert {"seq2seq.transformer", "seq2seq.decoder", "seq2seq.search"} <= plain


def test_one_call_may_name_its_target_language(sentences: list[str], make_model: MakeModel) -> None:
    config, controls = TokenizerConfig(vocab_size=60), [">>de<<", ">>fr<<"]
    tokenizer = Tokenizer.train(sentences, config, controls=controls)
    model = make_model(vocab_size=tokenizer.vocab_size).float()
    trained = TrainedModel(model, tokenizer, "en", "target")
    german, french = (new_translator(trained, to=code) for code in ("de", "fr"))
    lines = sentences[:5]
    expected = french.translate(lines)
    assert german.translate(lines, to="fr") == expected != german.translate(lines)
    assert german.target_language == "de"


@pytest.mark.parametrize("kind", ["native", "static", "ctranslate2", "sampling"])
def test_every_option_of_a_search_has_an_effect_in_each_engine(
    make_trained: MakeTrained, sentences: list[str], kind: str
) -> None:
    other = {"nbest": 2, "alpha": 2.0, "max_extra_tokens": 1, "beam_size": 1}
    other |= {"temperature": 0.1, "top_k": 1, "top_p": 0.1, "seed": 2}
    config = SamplingConfig if kind == "sampling" else SearchConfig
    engine = kind if kind == "ctranslate2" else "native"
    pytest.importorskip("ctranslate2" if engine == kind else "torch")

    def outputs(**options: Any) -> list[Translation]:
        given = TranslationOptions(device="cpu", workers=1, search=config(**options), engine=engine)
        kernels = TranslationKernels(static=True if kind == "static" else None)
        return Translator(make_trained(), given, kernels).translate(sentences[:2])

    expected = outputs()
    for field in fields(config):
        assert outputs(**{field.name: other[field.name]}) != expected, field.name


def test_a_translator_is_made_of_a_model_and_may_name_its_language(
    make_translator: MakeTranslator,
) -> None:
    assert make_translator(to="de").target_language == make_translator().target_language == "de"
    for no_model in ("RUN", []):
        with pytest.raises(TypeError, match=r"is not a trained model: call Translator.load"):
            Translator(no_model)  # type: ignore[arg-type]
    names = {"Translation", "TranslationOptions", "Translator", "__version__"}
    assert names == set(dir(seq2seq))


def test_the_translator_s_own_output_has_the_score_of_its_search(
    make_translator: MakeTranslator, tokenizer: Tokenizer, lines: list[str]
) -> None:
    translator = make_translator(batch_tokens=16, workers=3)
    translations = translator.translate(lines)
    scores = translator.log_probabilities(lines, texts_of(translations))
    same_pieces = 0
    for line, translation, score in zip(lines, translations, scores, strict=True):
        if not line.strip():
            assert score == TargetScore(0.0, 0)
            continue
        pieces = translation.candidates[0].pieces
        # The tokenizer may split a text into other pieces than it was made of.
        if tokenizer.pieces(tokenizer.encode([translation.text])[0]) == pieces:
            same_pieces += 1
            assert score.tokens == len(pieces) + 1
            penalized = score.log_probability / length_penalty(score.tokens, 0.6)
            assert translation.score == pytest.approx(penalized, abs=1e-5)
    assert same_pieces >= 1


def test_workers_and_calls_from_several_threads_change_nothing_and_leave_no_trace(
    make_translator: MakeTranslator, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = make_translator(batch_tokens=16).translate(lines)
    threads = torch.get_num_threads()
    translator = make_translator(batch_tokens=16, workers=3)
    used, encode = set(), translator.models[0].encode

    def spy(*inputs: Tensor) -> object:
        used.add(threading.get_ident())
        return encode(*inputs)

    monkeypatch.setattr(translator.models[0], "encode", spy)
    assert translator.translate(lines) == expected
    assert len(used) > 1
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(translator.translate, [lines] * 3)) == [expected] * 3
    assert torch.get_num_threads() == threads


def test_low_precision_translates_with_a_copy(
    make_translator: MakeTranslator, lines: list[str]
) -> None:
    exact, low = make_translator(), make_translator(precision="bf16")
    assert {value.dtype for value in low.models[0].state_dict().values()} == {torch.bfloat16}
    # Of given translations: the search may find others, which ones differs by processor.
    scores, wanted = (
        [score.log_probability for score in one.log_probabilities(lines, lines[::-1])]
        for one in (low, exact)
    )
    assert scores != wanted
    assert scores == pytest.approx(wanted, abs=0.05 * max(map(abs, wanted)))
    assert low.translate(lines) != exact.translate(lines)
    model = make_translator().models[0]
    Translator(TrainedModel(model, low.tokenizer, "a", "b"), low.options)
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


def test_the_language_of_the_sources_is_the_model_s_unless_given(make_trained: MakeTrained) -> None:
    trained = replace(make_trained(), source_language="de", target_language="")
    for language, parts in ((None, 0), ("en", 2), ("de_AT", 0)):
        translator = new_translator(trained, sentences=True, source_language=language)
        assert len(translator.translate(["am 3. mai"])[0].parts) == parts


def test_lines_with_many_samples_are_drawn_a_few_at_a_time(
    make_translator: MakeTranslator, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = make_translator(seed=3, nbest=40, batch_tokens=256)
    search, tokens = translator.engine.search, []

    def count(inputs: list[SearchInput], config: SamplingConfig) -> list[list[Hypothesis]]:
        widest = max(len(each.source_ids) for each in inputs)
        tokens.append(0 if len(inputs) == 1 else len(inputs) * widest * config.nbest)
        return search(inputs, config)

    monkeypatch.setattr(translator.engine, "search", count)
    found = translator.translate(lines)
    assert 0 < max(tokens) <= 8 * 256
    assert texts_of(found) == texts_of(make_translator(seed=3).translate(lines))


def test_an_output_of_the_maximum_length_is_marked_as_truncated(
    make_translator: MakeTranslator, tokenizer: Tokenizer, sentences: list[str]
) -> None:
    translations = make_translator(nbest=4).translate(sentences[:8])
    for translation, ids in zip(translations, tokenizer.encode(sentences[:8]), strict=True):
        lengths = [len(candidate.pieces) for candidate in translation.candidates]
        assert max(lengths) <= len(ids) + 4
        truncated = [length == len(ids) + 4 for length in lengths]
        assert [candidate.truncated for candidate in translation.candidates] == truncated


def test_translating_does_not_disturb_a_training(
    make_trained: MakeTrained, lines: list[str]
) -> None:
    def losses(model: Transformer) -> Tensor:
        torch.manual_seed(1)
        return model(torch.tensor([[5, 3]]), torch.tensor([[2, 6]]))

    trained = make_trained(dropout=0.5)
    model, untouched = trained.model.train(), make_trained(dropout=0.5).model.train()
    translator = new_translator(trained)
    found = translator.translate(lines)
    assert translator.translate(lines) == found  # no dropout
    assert model.training
    for one in (model, untouched):
        losses(one).sum().backward()
    for parameter, other in zip(model.parameters(), untouched.parameters(), strict=True):
        assert torch.equal(parameter.grad, other.grad)
        parameter.data.add_(parameter.grad)
    assert translator.translate(lines) == found
    assert new_translator(trained).translate(lines) != found


def test_log_probabilities_come_in_order_whatever_the_batch(
    make_translator: MakeTranslator, lines: list[str], sentences: list[str]
) -> None:
    targets = ["", *sentences[: len(lines) - 1]]
    alone = make_translator()
    expected = [alone.log_probabilities([a], [b])[0] for a, b in zip(lines, targets, strict=True)]
    assert expected[0] == TargetScore(0.0, 0)
    assert all(score.tokens > 1 for score in expected[1:])
    for batch_tokens in (1, 32, 1024):
        found = make_translator(batch_tokens=batch_tokens).log_probabilities(lines, targets)
        assert [score.tokens for score in found] == [score.tokens for score in expected]
        wanted = [score.log_probability for score in expected]
        assert [score.log_probability for score in found] == pytest.approx(wanted, abs=1e-4)
    (blank,) = alone.log_probabilities(["a child"], [" "])
    assert blank.tokens == 1
    assert blank.log_probability < 0


def test_unequal_counts_and_too_long_lines_are_refused(make_translator: MakeTranslator) -> None:
    for call in (make_translator().log_probabilities, make_translator().alignments):
        with pytest.raises(UserError, match="2 sources but 1 translations"):
            call(["a child", "the sea"], ["a"])
    translator = make_translator(max_source_tokens=12)
    long = "the long road home " * 9
    for pair, name in (([long, "a"], "source"), (["a", long], "translation")):
        with pytest.raises(UserError, match=f"line 2: the {name} has .* tokens, at most 1"):
            translator.log_probabilities(["a", pair[0]], ["a", pair[1]])


def test_a_string_is_no_list_of_lines(make_translator: MakeTranslator) -> None:
    translator = make_translator()
    for call, *arguments in (
        (translator.translate, "a man"),
        (lambda lines: list(translator.translate_stream(lines)), "a man"),
        (translator.log_probabilities, ["a"], "a"),
        (translator.alignments, ["a"], "a"),
    ):
        with pytest.raises(TypeError, match="is a single string: give a list of lines"):
            call(*arguments)


@pytest.mark.posix
def test_a_child_process_translates_while_a_thread_of_its_parent_does(
    make_translator: MakeTranslator,
) -> None:
    translator = make_translator()
    expected = texts_of(translator.translate(["a man sees the sea."]))
    within, leave = threading.Event(), threading.Event()

    def occupy() -> None:
        with process_lock:
            within.set()
            leave.wait()

    thread = threading.Thread(target=occupy)
    thread.start()
    within.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside a thread
        child = os.fork()
    if not child:
        signal.alarm(120)
        found = texts_of(translator.translate(["a man sees the sea."]))
        os._exit(0 if found == expected else 1)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("choices", [{}, {"seed": 3}], ids=str)
def test_padding_and_start_symbol_never_come_out(
    make_trained: MakeTrained, tokenizer: Tokenizer, choices: dict[str, int]
) -> None:
    """Not even from a model to which they are the most probable tokens, in every place."""
    trained = make_trained()
    model = trained.model
    norm = model.decoder.layers[-1].feed_forward_norm
    with torch.no_grad():  # the logits are the first column of the matrix
        norm.weight.zero_()
        norm.bias.copy_(torch.eye(8)[0])
        model.embedding.weight[:, 0] = -9.0
        model.embedding.weight[[PADDING_ID, START_ID, 7], 0] = torch.tensor([30.0, 30.0, 9.0])
    (translation,) = new_translator(trained, **choices).translate(["a"])
    assert set(translation.candidates[0].pieces) == set(tokenizer.pieces([7]))


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 12))
def test_every_item_is_in_one_batch_within_the_limit_and_every_worker_has_one(
    sizes: list[int], workers: int
) -> None:
    batches = make_batches(sizes, 40, workers)
    items = [item for batch in batches for item in batch]
    assert sorted(items) == [item for item, size in enumerate(sizes) if size > 1]
    assert len(batches) >= min(workers, len(items))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(sizes[item] for item in batch) <= 40
