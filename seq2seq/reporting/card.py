"""The model card: `README.md` of a model folder, in the format of the Hugging Face hub."""

import json
import re
from typing import Any

from seq2seq.evaluation.scores import Score
from seq2seq.reporting.report import RunReport

_ON_THE_HUB = {"BLEU": "bleu", "chrF2": "chrf", "TER": "ter"}
_CODE = re.compile("[a-z]{2,3}")
_RECIPE = ("model.", "training.", "search.", "seed")


def model_card(report: RunReport, *, averaged: bool, license_name: str | None = None) -> str:
    """Describe a model.

    Args:
        report: of its run, on the validation set.
        averaged: whether it is the mean of checkpoints, or the one that validated best.
        license_name: named in the card only if given.
    """
    source = str(report.config["data.source_language"])
    target = str(report.config["data.target_language"])
    data = str(report.config["data.name"])
    scores = _scores(report, averaged=averaged)
    metadata: dict[str, Any] = {
        # The hub accepts codes alone, and "source" is the name of a language that was not told.
        "language": [code for code in (source, target) if _CODE.fullmatch(code)],
        "tags": ["translation", "transformer", "seq2seq"],
        "pipeline_tag": "translation",
        "metrics": [_ON_THE_HUB[score.name] for score in scores],
        "model-index": [
            {
                "name": report.run,
                "results": [
                    {
                        "task": {"type": "translation"},
                        "dataset": {"name": f"{data}, validation", "type": data},
                        "metrics": [
                            {
                                "type": _ON_THE_HUB[score.name],
                                "value": round(score.value, 2),
                                "name": f"{score.name} {score.signature}",
                            }
                            for score in scores
                        ],
                    }
                ],
            }
        ],
    }
    if license_name is not None:
        metadata["license"] = license_name
    # JSON is YAML, and quotes whatever a name holds.
    front = "".join(f"{key}: {json.dumps(value)}\n" for key, value in metadata.items())
    kind = "the mean of the last checkpoints" if averaged else "the checkpoint that validated best"
    parts = [
        f"---\n{front}---\n",
        f"# {_plain(report.run)}\n",
        f"A Transformer (Vaswani et al. 2017) that translates {_plain(source)} to {_plain(target)}:"
        f" {report.parameters:,} parameters, {kind}. Training ended {_plain(report.ended)}.\n",
        "## Scores on the validation set\n",
        "| metric | value | signature |\n|---|---|---|\n"
        + "".join(f"| {s.name} | {s.value:.2f} | `{_in_cell(s.signature)}` |\n" for s in scores),
        "The validation set chose the checkpoint, so the scores on other text may be lower.\n",
        "## Data\n",
        _data(report),
        "## Recipe\n",
        "```\n"
        + "".join(
            f"{key}={_on_one_line(str(value))}\n"
            for key, value in report.config.items()
            if key.startswith(_RECIPE)
        )
        + "```\n",
        "## Limits\n",
        "The model knows the kind of text that it was trained on, sentence by sentence. It may"
        " leave out, repeat or invent words; have a person check what matters.\n",
        "## Use\n",
        "```\nseq2seq translate --model FOLDER < input > output\n```\n",
    ]
    return "\n".join(parts)


def _scores(report: RunReport, *, averaged: bool) -> list[Score]:
    """Return the scores of this model, the one that was not translated with having BLEU alone."""
    scores = [score for score in report.sets[0].scores if score.name in _ON_THE_HUB]
    if averaged == (report.model == "averaged"):
        return scores
    return [
        Score(score.name, report.best["valid/bleu"], score.signature)
        for score in scores
        if score.name == "BLEU"
    ]


def _data(report: RunReport) -> str:
    rows = [
        f"| {_plain(split)} | {counts['read']:,} | {counts['kept']:,} |\n"
        for split, counts in report.data.get("counts", {}).items()
    ]
    sums = [
        f"| {_plain(name)} | `{digest}` |\n"
        for name, digest in report.data.get("sha256", {}).items()
    ]
    return (
        f"| split | pairs read | kept |\n|---|---|---|\n{''.join(rows)}\n"
        f"| file | sha256 |\n|---|---|\n{''.join(sums)}"
    )


def _plain(text: str) -> str:
    """Keep a text on its line and out of Markdown and HTML."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in _on_one_line(text))


def _on_one_line(text: str) -> str:
    return "".join(c for c in " ".join(text.split()) if c.isprintable()).replace("```", "")


def _in_cell(code: str) -> str:
    return code.replace("|", "\\|")  # else it would end the cell, even within backticks
