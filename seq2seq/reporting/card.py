"""The model card: `README.md` of a model folder, in the format of the Hugging Face hub."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq.decoding.config import SearchConfig
from seq2seq.decoding.health import Health
from seq2seq.decoding.translator import Translator
from seq2seq.evaluation.scores import Score, ScoreConfig, score_all
from seq2seq.reporting.report import RunReport

_ON_THE_HUB = {"BLEU": "bleu", "chrF2": "chrf", "TER": "ter"}
_CODE = re.compile("[a-z]{2,3}")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_RECIPE = ("model.", "training.", "search.", "seed")


@dataclass(frozen=True)
class CardScores:
    """What a model scored on the validation set, and by which search."""

    run: str
    """The name of the run."""
    data: str
    """The name of the data."""
    scores: list[Score]
    beam_size: int
    alpha: float
    health: Health | None
    """Of the translations, if it is known."""


def model_card(report: RunReport, *, averaged: bool, license_name: str | None = None) -> str:
    """Describe a model.

    Args:
        report: of its run, on the validation set.
        averaged: whether it is the mean of checkpoints, or the one that validated best.
        license_name: named in the card only if given.
    """
    scored = _scored(report, averaged=averaged)
    source, target = _languages(report)
    number = f"{report.averaged:,} " if report.averaged else ""
    kind = (
        f"the mean of the last {number}checkpoints"
        if averaged
        else "the checkpoint that validated best"
    )
    recipe = (
        f"{key}={_on_one_line(str(value))}\n"
        for key, value in report.config.items()
        if key.startswith(_RECIPE)
    )
    parts = [
        f"---\n{_yaml(_metadata(report, scored, license_name))}---\n",
        f"# {_plain(report.run)}\n",
        f"A Transformer (Vaswani et al. 2017) that translates {_plain(source)} to {_plain(target)}:"
        f" {report.parameters:,} parameters, {kind}. Training ended {_plain(report.ended)}.\n",
        _score_section(scored),
        "## Data\n",
        _data(report),
        "## Recipe\n",
        f"```\n{''.join(recipe)}```\n",
        "## Limits\n",
        "The model translates sentence by sentence, and text unlike its training data less well."
        " It may leave out, repeat or invent words. Where an error would do harm, have translations"
        " checked by someone who knows both languages.\n",
        "## Use\n",
        "```\nseq2seq translate --model FOLDER < input > output\n```\n",
    ]
    return "\n".join(parts)


def score_for_card(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    scoring: ScoreConfig,
    *,
    run: str,
    data: str,
) -> CardScores:
    """Translate and score the validation set of a run.

    Raises:
        UserError: if a text can't be translated or scored.
    """
    search = translator.search
    assert isinstance(search, SearchConfig)
    health, outputs = Health(), []
    for source, translation in zip(sources, translator.translate_stream(sources), strict=True):
        health.count(source, translation)
        outputs.append(translation.text)
    scores = score_all(outputs, [references], scoring)
    return CardScores(run, data, _shown(scores), search.beam_size, search.alpha, health)


def replace_scores(card: bytes, scored: CardScores) -> bytes:
    """Replace the scores in a card that `model_card` wrote; all other text stays as it is."""
    text = card.decode(errors="surrogateescape")
    metadata = _yaml(_score_metadata(scored))
    text = re.sub(r"(?m)^metrics: .*\nmodel-index: .*\n", lambda _: metadata, text, count=1)
    section = _score_section(scored) + "\n"
    text = re.sub(r"(?ms)^## Scores on .*?(?=^## |\Z)", lambda _: section, text, count=1)
    return text.encode(errors="surrogateescape")


def _metadata(report: RunReport, scored: CardScores, license_name: str | None) -> dict[str, Any]:
    """Return the front matter."""
    metadata: dict[str, Any] = {
        # The hub accepts codes only; a language that was not given is called "source" or "target".
        "language": [code for code in _languages(report) if _CODE.fullmatch(code)],
        "tags": ["translation", "transformer", "seq2seq"],
        "pipeline_tag": "translation",
        **_score_metadata(scored),
    }
    dataset = report.config.get("data.dataset")
    if dataset and _HUB_NAME.fullmatch(dataset) and not Path(dataset).is_dir():
        metadata["datasets"] = [dataset]
    if license_name is not None:
        metadata["license"] = license_name
    return metadata


def _score_metadata(scored: CardScores) -> dict[str, Any]:
    search = {"beam_size": scored.beam_size, "alpha": scored.alpha}
    metrics = [
        {
            "type": _ON_THE_HUB[score.name],
            "value": round(score.value, 2),
            "name": f"{score.name} {score.signature}",
            "args": search,
        }
        for score in scored.scores
    ]
    result = {
        "task": {"type": "translation"},
        "dataset": {"name": f"{scored.data}, validation", "type": scored.data},
        "metrics": metrics,
    }
    return {
        "metrics": [metric["type"] for metric in metrics],
        "model-index": [{"name": scored.run, "results": [result]}],
    }


def _score_section(scored: CardScores) -> str:
    rows = "".join(
        f"| {score.name} | {score.value:.2f} | `{_in_cell(score.signature)}` |\n"
        for score in scored.scores
    )
    parts = [
        "## Scores on the validation set\n",
        f"| metric | value | signature |\n|---|---|---|\n{rows}",
        f"Reached by beam search with beam {scored.beam_size} and alpha {scored.alpha:g}. The"
        " checkpoint was chosen on the same set, so scores on other text may be lower.\n",
    ]
    if scored.health is not None:
        parts.append(f"Counts of suspicious translations: {scored.health}.\n")
    return "\n".join(parts)


def _scored(report: RunReport, *, averaged: bool) -> CardScores:
    """Return the scores of a model of the run.

    The report has translated one of the run's models. Of the other, only the BLEU of its validation
    while training is known.
    """
    run, data = report.run, str(report.config["data.name"])
    first = report.sets[0]
    scores = _shown(first.scores)
    if averaged == (report.model == "averaged"):
        beam_size, alpha = int(report.search["beam_size"]), report.search["alpha"]
        return CardScores(run, data, scores, beam_size, alpha, first.health)
    signature = next(score.signature for score in scores if score.name == "BLEU")
    return CardScores(
        run,
        data,
        [Score("BLEU", report.best["valid/bleu"], signature)],
        report.config["search.beam_size"],
        report.config["search.alpha"],
        None,
    )


def _shown(scores: Sequence[Score]) -> list[Score]:
    return [score for score in scores if score.name in _ON_THE_HUB]


def _yaml(metadata: dict[str, Any]) -> str:
    """Write one line for each key; JSON is YAML, and quotes whatever a name holds."""
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in metadata.items())


def _languages(report: RunReport) -> tuple[str, str]:
    return report.config["data.source_language"], report.config["data.target_language"]


def _data(report: RunReport) -> str:
    rows = [
        f"| {_plain(split)} | {counts['read']:,} | {counts['kept']:,} |"
        f" {', '.join(f'{n:,} {_plain(why)}' for why, n in counts['left_out'].items() if n)} |\n"
        for split, counts in report.data.get("counts", {}).items()
    ]
    sums = [
        f"| {_plain(name)} | `{digest}` |\n"
        for name, digest in report.data.get("sha256", {}).items()
    ]
    return (
        f"| split | pairs read | kept | left out |\n|---|---|---|---|\n{''.join(rows)}\n"
        f"| file | sha256 |\n|---|---|\n{''.join(sums)}"
    )


def _plain(text: str) -> str:
    """Keep a text on its line and out of Markdown and HTML."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in _on_one_line(text))


def _on_one_line(text: str) -> str:
    return "".join(c for c in " ".join(text.split()) if c.isprintable()).replace("```", "")


def _in_cell(code: str) -> str:
    return code.replace("|", "\\|")  # else it would end the cell, even within backticks
