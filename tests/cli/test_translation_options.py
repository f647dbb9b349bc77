"""The options that a command line gives, and those that keep their defaults."""

import argparse

import pytest

from seq2seq.cli.arguments import add_sampling_options, add_search_options
from seq2seq.cli.translation_options import translation_options
from seq2seq.decoding.options import SamplingConfig, TranslationOptions
from seq2seq.errors import UsageError
from seq2seq.search import SearchConfig


def options(*words: str) -> TranslationOptions:
    parser = argparse.ArgumentParser()
    add_search_options(parser)
    add_sampling_options(parser)
    return translation_options(parser.parse_args(words))


def test_what_is_not_given_keeps_its_default() -> None:
    assert options() == TranslationOptions()
    assert options("--sample").search == SamplingConfig()


def test_what_is_given_counts_even_if_it_is_zero() -> None:
    assert options("--alpha", "0", "--beam", "2").search == SearchConfig(alpha=0.0, beam_size=2)
    sampled = options("--sample", "--seed", "0", "--top-k", "3", "--temperature", "0.5").search
    assert sampled == SamplingConfig(seed=0, top_k=3, temperature=0.5)
    assert options("--precision", "bf16", "--device", "cpu") == TranslationOptions(
        precision="bf16", device="cpu"
    )


@pytest.mark.parametrize(
    "words", ["--temperature 0.5", "--top-k 2", "--top-p 0.9", "--seed 0", "--sample --beam 2"]
)
def test_options_of_sampling_and_of_beam_search_are_not_mixed(words: str) -> None:
    with pytest.raises(UsageError, match="--sample"):
        options(*words.split())
