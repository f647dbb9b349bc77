"""The details of the recipe (sections 5 and 6): how much, how long, on what."""

import hashlib
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from seq2seq.data.batching import BatchStatistics
from seq2seq.data.corpus import DataConfig, read_pairs
from seq2seq.evaluation.paper_bleu import paper_bleu, prepare
from seq2seq.evaluation.scores import bleu
from seq2seq.model import TransformerConfig
from seq2seq.reproduction.cost import AUTHORS_ROWS, PAPERS_ESTIMATE, count_parameters, step_flops
from seq2seq.reproduction.residuals import OddModelError, measured_dropout
from seq2seq.reproduction.subject import Finding, Subject
from seq2seq.reproduction.synthetic import SyntheticLengths, synthetic_tokenizer
from seq2seq.storage.checkpoint import TrainedModel, average, new_transformer, save_model
from seq2seq.training.recorder import read_metrics

_STEPS = {"base": 100_000, "big": 300_000}
_AVERAGED = {"base": 5, "big": 20}
_PIECES = {"de": 37_000, "fr": 32_000}
# sha256 of the lines, each with its line feed.
_KNOWN_TEXTS = {
    "ace268a1d9724ca76f6d8e5c720ffdc08f01bdce45630ed8b269dc7918e1c16e": "newstest2013",
    "d7ea35ab91ff3709e03ad9cb6bf5b4f2cc775cd2d72efd5254c4aec5e69663ca": "newstest2013",
}
# About the mean length of a sentence of WMT 2014 in pieces of the paper's vocabulary.
_MEAN_LENGTH = 27.0
_PAIRS = 100_000


def realised_batch(subject: Subject) -> tuple[BatchStatistics, int]:
    """What a step's budget comes to on sentences as long as those of the news.

    Returns:
        Means over the steps of an epoch, and the most tokens, pads counted, that any micro-batch
        has on its longer side.
    """
    training = subject.training
    budget = min(training.source_tokens, training.target_tokens) // training.micro_batches
    corpus = SyntheticLengths(_PAIRS, mean_length=_MEAN_LENGTH, max_length=min(250, budget))
    batching = training.batching(corpus, seed=1)
    batches = batching.epoch(0)
    longest = max(
        len(b) * int(max(corpus.source_lengths[b].max(), corpus.target_lengths[b].max()))
        for b in batches
    )
    return batching.statistics(batches), longest


def batch(subject: Subject) -> Finding:
    """Row 17: the tokens of a step, in the run's own record or on made-up pairs."""
    training = subject.training
    statistics, longest = realised_batch(subject)
    parts = training.micro_batches
    source, target = parts * statistics.source_tokens, parts * statistics.target_tokens
    where = f"on made-up news; padding {statistics.padding:.1%}"
    figures = _recorded(subject, "train/source_tokens")
    if figures:
        source = sum(f["train/source_tokens"] for f in figures) / len(figures)
        target = sum(f["train/target_tokens"] for f in figures) / len(figures)
        where = "on average of the run"
    sides = (training.source_tokens, training.target_tokens)
    paper = (
        not training.count_longer_side
        and sides == (25_000, 25_000)
        and 0.9 <= (source + target) / 50_000 <= 1.05
        and statistics.padding < 0.15
    )
    budget = parts * training.micro_batch_tokens
    authors = training.count_longer_side and (parts, training.micro_batch_tokens) == (8, 4096)
    authors = authors and longest <= training.micro_batch_tokens
    asked = (
        f"{parts} x {budget // parts:,} of the longer side, pads counted"
        if training.count_longer_side
        else f"{sides[0]:,} + {sides[1]:,}"
    )
    return Finding(f"{asked}: {source:,.0f} + {target:,.0f} {where}", paper, authors)


def _recorded(subject: Subject, name: str) -> list[dict[str, float]]:
    """The records of the run, if there is one, that have a figure of that name."""
    path = subject.run / "metrics.jsonl" if subject.run else None
    records = read_metrics(path) if path and path.is_file() else []
    return [record for record in records if name in record]


def steps(subject: Subject) -> Finding:
    """Row 18: the updates that are asked for, and of a run those that were done."""
    training, wanted = subject.training, _STEPS[subject.recipe]
    limits = {
        f"{training.max_steps or math.inf:,} steps": training.max_steps,
        f"{training.max_minutes} minutes": training.max_minutes,
        f"{training.patience} validations without gain": training.patience,
    }
    here = " or ".join(text for text, limit in limits.items() if limit is not None)
    done = [record["step"] for record in _recorded(subject, "step")]
    if done:
        here = f"{int(done[-1]):,} done, of {here}"
    asked = training.max_steps == wanted and not training.max_minutes and not training.patience
    right = (done[-1] == wanted) if done else asked
    return Finding(f"{here}; the paper's {subject.recipe} model: {wanted:,}", right, None)


def dropout_rate(subject: Subject) -> Finding:
    """Row 19: the rate that is found on the model in training."""
    wanted = 0.1
    if subject.is_big and subject.data.target_language != "fr":
        wanted = 0.3
    try:
        rates = measured_dropout(subject.model)
    except OddModelError:
        return Finding("none that could be measured", False, None)
    shown = ", ".join(f"{rate:.3g}" for rate in rates)
    right = len(rates) == 1 and math.isclose(rates[0], wanted, abs_tol=2e-3)
    return Finding(f"{shown}; the paper's {subject.recipe} model: {wanted:g}", right, None)


def averaging(subject: Subject) -> Finding:
    """Row 20: how many, how often, and that the mean of two checkpoints is their mean."""
    training, wanted = subject.training, _AVERAGED[subject.recipe]
    minutes, by_steps = training.checkpoint_minutes, training.checkpoint_steps
    every = [f"{minutes:g} minutes"] if minutes else []
    every += [f"{by_steps:,} steps"] if by_steps else []
    right = (training.average_checkpoints, minutes, by_steps) == (wanted, 10.0, None)
    means = _average_is_mean()
    return Finding(
        f"the last {training.average_checkpoints}, one every {' or '.join(every)};"
        f" {'their weights added and divided' if means else 'their mean is wrong'}",
        right and means,
        None,
    )


def _average_is_mean() -> bool:
    config = TransformerConfig(num_layers=1, d_model=8, d_ff=8, num_heads=2)
    tokenizer = synthetic_tokenizer()
    with tempfile.TemporaryDirectory() as place, torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        models = [new_transformer(config, tokenizer.vocab_size) for _ in range(2)]
        folders = [Path(place) / str(i) for i in range(2)]
        for folder, model in zip(folders, models, strict=True):
            save_model(folder, TrainedModel(model, tokenizer, "a", "b"))
        mean = average(folders).model.state_dict()
    one, other = (model.state_dict() for model in models)
    return all(torch.allclose(mean[name], (one[name] + other[name]) / 2) for name in mean)


def vocabulary(subject: Subject) -> Finding:
    """Row 24: the rows of the shared matrix, and what they would weigh with the authors'."""
    wanted = _PIECES.get(subject.data.target_language, _PIECES["de"])
    rows, config = subject.vocab_size, subject.model.config
    sizes = (config.num_layers, config.d_model, config.d_ff)
    papers = {(6, 512, 2048): "65 million", (6, 1024, 4096): "213, unexplained"}.get(sizes)
    theirs = count_parameters(replace(config, attention_bias=True), AUTHORS_ROWS)
    return Finding(
        f"{rows:,} rows, shared: {count_parameters(config, rows):,} parameters; with 40,960 rows"
        f" and biases {theirs:,}" + (f" (the paper: {papers})" if papers else ""),
        math.isclose(rows, wanted, rel_tol=0.02),
        rows == AUTHORS_ROWS,
    )


def evaluation_sets(subject: Subject) -> Finding:
    """Row 25: the texts where they are at hand, the data set's pinned name where they are not."""
    data = subject.data
    if data.dataset == "wmt/wmt14" and data.revision:
        parts = (data.valid.split, data.test.split)
        right = parts == ("validation", "test")
        names = "newstest2013, newstest2014" if right else "other parts"
        return Finding(
            f"{names}: {parts[0]} and {parts[1]} of {data.dataset} at {data.revision[:8]}",
            right,
            right,
        )
    valid = _identify(data)
    right = valid == "newstest2013" and "newstest2014" in str(data.test)
    return Finding(valid or f"{data.name}: another development set", right, right)


def _identify(data: DataConfig) -> str:
    """Which known text the validation part's source side is; empty if none."""
    if not (data.valid.source or data.valid.pairs):
        return ""
    digest = hashlib.sha256()
    for pair in read_pairs(data, "valid"):
        digest.update(f"{pair.source}\n".encode())
    return _KNOWN_TEXTS.get(digest.hexdigest(), "")


def bleu_variants(subject: Subject) -> Finding:
    """Row 26: a German compound goes through both scores, on either side."""
    reference = "Das ist ein neues Software-Update für alle."
    output = "Das ist ein neues Hardware-Update für alle."
    tokens = [prepare(line, "de") for line in (reference, output)]
    split = all(" ##AT##-##AT## Update" in line for line in tokens)
    cased = paper_bleu([reference.lower()], [[reference]]).value < 99.9
    ours = paper_bleu([output], [[reference]]).value
    theirs = bleu([output], [[reference]]).value
    right = split and cased and not math.isclose(ours, theirs, rel_tol=1e-3)
    return Finding(
        f"paper BLEU {'splits' if split else 'does not split'} both sides,"
        f" {'cased' if cased else 'not cased'}: {ours:.1f} where sacreBLEU has {theirs:.1f};"
        " both are printed, each under its name",
        None,
        right,
    )


def cost(subject: Subject) -> Finding:
    """Row 27: operations counted from the sizes, beside the paper's estimate from time and rate."""
    statistics, _ = realised_batch(subject)
    parts, recipe = subject.training.micro_batches, subject.recipe
    pairs = statistics.sentences

    def counted(config: TransformerConfig, vocab_size: int, source: float, target: float) -> float:
        return step_flops(
            config,
            vocab_size,
            source_tokens=source,
            target_tokens=target,
            source_length=statistics.source_tokens / pairs,
            target_length=statistics.target_tokens / pairs,
        )

    step = counted(
        subject.model.config,
        subject.vocab_size,
        parts * statistics.source_tokens,
        parts * statistics.target_tokens,
    )
    total = step * (subject.training.max_steps or 0)
    sizes = (
        TransformerConfig(d_model=1024, d_ff=4096, num_heads=16)
        if subject.is_big
        else TransformerConfig()
    )
    papers = counted(sizes, _PIECES["de"], 25_000, 25_000) * _STEPS[recipe]
    about = 0.8 <= total / papers <= 1.25
    share = "" if about else f", {total / papers:.2g} of that"
    return Finding(
        f"counted {step:.2g} a step, {total:.2g} in all (the paper's {recipe} recipe {papers:.2g}"
        f"{share}); by the paper's time and rate {PAPERS_ESTIMATE[recipe]:.2g}, another measure",
        about,
        None,
    )
