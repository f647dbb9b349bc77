"""Translation on the simulated GPU: the CPU's text, in few waits."""

from collections import Counter
from unittest import mock

import pytest
import torch

from seq2seq.data.tokenizer import Tokenizer
from seq2seq.decoding.config import SamplingConfig, SearchConfig, TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.errors import OutOfMemoryError, limit_reached
from seq2seq.model import TransformerConfig
from seq2seq.storage.checkpoint import TrainedModel, new_transformer
from tests.cuda.device import Journal

LINES = ["a man sees the sea.", "", "two small dogs paints an apple.", "nobody likes a red house."]


@pytest.fixture(scope="module")
def trained(tokenizer: Tokenizer) -> TrainedModel:
    sizes = TransformerConfig(num_layers=2, d_model=16, d_ff=24, num_heads=2)
    torch.manual_seed(1)
    model = new_transformer(sizes, tokenizer.vocab_size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return TrainedModel(model, tokenizer, "a", "b")


def translator(trained: TrainedModel, device: str, search: object = None) -> Translator:
    search = search or SearchConfig(max_extra_tokens=4)
    return Translator(trained, TranslationOptions(device=device, search=search))


@pytest.mark.parametrize(
    "search",
    [
        SearchConfig(max_extra_tokens=4, nbest=2),
        SearchConfig(max_extra_tokens=4, beam_size=1),
        SamplingConfig(nbest=2, max_extra_tokens=4),
        SamplingConfig(top_k=5, top_p=0.9, max_extra_tokens=4),
    ],
)
def test_translations_are_those_of_the_cpu(
    trained: TrainedModel, search: SearchConfig | SamplingConfig
) -> None:
    on_cpu, on_gpu = (translator(trained, device, search) for device in ("cpu", "cuda"))
    for prefixes in (None, ["two", "", "", "a"]):
        ours, theirs = (one.translate(LINES, prefixes) for one in (on_gpu, on_cpu))
        for found, expected in zip(ours, theirs, strict=True):
            assert [c.text for c in found.candidates] == [c.text for c in expected.candidates]
            for one, other in zip(found.candidates, expected.candidates, strict=True):
                assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize("search", [SearchConfig(max_extra_tokens=4), SamplingConfig(nbest=2)])
def test_every_line_is_translated_in_bf16(
    trained: TrainedModel, search: SearchConfig | SamplingConfig
) -> None:
    options = TranslationOptions(device="cuda", precision="bf16", search=search)
    found = Translator(trained, options).translate(LINES)
    assert [len(one.candidates) for one in found] == [search.nbest * bool(line) for line in LINES]


def test_a_search_waits_once_a_step(trained: TrainedModel, journal: Journal) -> None:
    on_gpu = translator(trained, "cuda")
    on_gpu.translate(LINES[:1])  # makes the table of positions
    journal.clear()
    with mock.patch.object(on_gpu.decoder, "step", wraps=on_gpu.decoder.step) as step:
        on_gpu.translate(LINES[:1])
    start, end = 2, 3  # lengths and padding; scores, tokens, and scores of what had not ended
    assert len(journal.waits) == step.call_count + start + end, Counter(journal.waits)


def test_samples_and_given_translations_wait_once_a_batch(
    trained: TrainedModel, journal: Journal
) -> None:
    on_gpu = translator(trained, "cuda", SamplingConfig(max_extra_tokens=4))
    on_gpu.translate(LINES[:1])
    journal.clear()
    with mock.patch.object(on_gpu.decoder, "step", wraps=on_gpu.decoder.step) as step:
        on_gpu.translate(LINES)
    assert len(journal.waits) <= step.call_count + 5, Counter(journal.waits)
    journal.clear()
    on_gpu.log_probabilities(LINES, LINES)
    assert len(journal.waits) == 1, journal.waits


def test_scores_and_attention_are_those_of_the_cpu(trained: TrainedModel) -> None:
    on_cpu, on_gpu = (translator(trained, device) for device in ("cpu", "cuda"))
    ours, theirs = (one.log_probabilities(LINES, LINES[::-1]) for one in (on_gpu, on_cpu))
    for found, expected in zip(ours, theirs, strict=True):
        assert found.log_probability == pytest.approx(expected.log_probability, abs=1e-3)
    ours, theirs = (one.attention(LINES[0], LINES[2]) for one in (on_gpu, on_cpu))
    for name in ("encoder", "decoder", "cross"):
        torch.testing.assert_close(
            getattr(ours, name).cpu(), getattr(theirs, name), rtol=1e-4, atol=1e-5
        )


def test_one_worker_feeds_a_gpu(trained: TrainedModel) -> None:
    with mock.patch.object(torch, "get_num_threads", return_value=4):
        assert translator(trained, "cuda").workers == 1


def test_batches_are_larger_on_a_gpu(trained: TrainedModel) -> None:
    assert [translator(trained, name).batch_tokens for name in ("cpu", "cuda")] == [2048, 16_384]


def test_too_little_memory_is_told_as_such() -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert isinstance(limit_reached(error), OutOfMemoryError)
