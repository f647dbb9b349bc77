"""The model card: `README.md` of a model folder, in the format of the Hugging Face hub."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2seq.decoding.translation import OutputWarnings
from seq2seq.model_folder import TrainedModel, class_name, own_class
from seq2seq.report.run_report import RunReport
from seq2seq.run.data_record import DataRecord
from seq2seq.run.folder import translate_command
from seq2seq.run.sessions import Session
from seq2seq.score import Score

_ON_THE_HUB = {"BLEU": "bleu", "chrF2": "chrf", "TER": "ter"}
_CODE = re.compile("[a-z]{2,3}")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_RECIPE = re.compile(
    r"data\.(tokenizer|filter|noise)\.|data\.corpora\.[^.]+\.(weight|tag|target_language)$"
    r"|model\.|model_class|init_sha256|training\.|search\.|bleu|seed"
)


@dataclass(frozen=True)
class ModelFacts:
    """The facts on the card of a model; facts that are not known are not mentioned."""

    name: str
    source_language: str
    target_languages: Sequence[str]
    parameters: int
    origin: str
    """A phrase that says where the model comes from: "the checkpoint that validated best"."""
    ended: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings of its training, by their dotted names."""
    data: DataRecord | None = None
    sessions: Sequence[Session] = ()
    """The starts of its training."""
    scores: Sequence[tuple[str, Score]] = ()
    """On validation and test sets, by their names."""
    model_class: str | None = None
    """The class of the model, if it is not the paper's."""
    output_warnings: OutputWarnings | None = None


def facts_of_run(report: RunReport, *, averaged: int) -> ModelFacts:
    """Collect what is known of a model of a run.

    It is the mean of `averaged` checkpoints; if that is 0, the one that validated best.
    """
    best = (
        "the running mean of the weights that validated best"
        if report.config.get("training.validate_mean")
        else "the checkpoint that validated best"
    )
    was_translated = bool(averaged) == (report.model == "averaged")
    warnings = sum((result.output_warnings for result in report.sets), OutputWarnings())
    return ModelFacts(
        name=report.run,
        source_language=report.config["data.source_language"],
        target_languages=report.target_languages,
        parameters=report.parameters,
        origin=f"the mean of the last {averaged:,} checkpoints" if averaged else best,
        ended=report.ended,
        config=report.config,
        data=report.data,
        sessions=report.sessions,
        scores=list(_scores(report)) if was_translated else (),
        output_warnings=warnings if was_translated else None,
        model_class=report.config.get("model_class"),
    )


def _scores(report: RunReport) -> Iterator[tuple[str, Score]]:
    """Yield the scores of the model that the report has translated with."""
    for result in report.sets:
        for score in result.scores:
            if score.name in _ON_THE_HUB:
                yield result.name, score


def card_of_model(trained: TrainedModel, name: str, origin: str, **known: Any) -> bytes:
    """Describe a model that may have no run; of its run, `known` has fields of `ModelFacts`."""
    source = trained.source_language or "source"
    targets = [language or "target" for language in trained.target_languages]
    parameters = sum(map(Tensor.numel, trained.model.parameters()))
    kind = own_class(trained.model)
    known["model_class"] = None if kind is None else class_name(kind)
    return model_card(ModelFacts(name, source, targets, parameters, origin, **known)).encode()


def model_card(facts: ModelFacts) -> str:
    """Describe a model."""
    import jinja2
    from huggingface_hub import ModelCardData

    languages = dict.fromkeys([facts.source_language, *facts.target_languages])
    dataset = facts.config.get("data.dataset") or ""
    on_the_hub = _HUB_NAME.fullmatch(dataset) and not Path(dataset).is_dir()
    metadata = ModelCardData(
        # The hub accepts codes only; a language that was not given is called "source" or "target".
        language=[code for code in languages if _CODE.fullmatch(code)],
        tags=["translation", "transformer", "seq2seq"],
        pipeline_tag="translation",
        datasets=[dataset] if on_the_hub else None,
        license=facts.config.get("license"),
        **_results(facts),
    )
    kind = "Transformer (Vaswani et al. 2017)"
    if facts.model_class is not None:
        kind = f"model of the class {plain_markdown(facts.model_class)}, not the paper's,"
    description = (
        f"A {kind} that translates {plain_markdown(facts.source_language)} to"
        f" {plain_markdown(', '.join(facts.target_languages))}: {facts.parameters:,} parameters,"
        f" {plain_markdown(facts.origin)}."
    )
    if facts.ended:
        description += f" Training ended: {plain_markdown(facts.ended)}."
    recipe = []
    for key, value in facts.config.items():
        if _RECIPE.match(key):
            recipe.append(f"{key}={_on_one_line(str(value))}")
    text = (resources.files(__package__) / "templates" / "card.md").read_text("utf-8")
    template = jinja2.Template(text, trim_blocks=True, keep_trailing_newline=True)
    return template.render(
        card_data=metadata.to_yaml(),
        name=plain_markdown(facts.name),
        description=description,
        facts=facts,
        in_words=_in_words,
        recipe="\n".join(recipe),
        command=translate_command("FOLDER", facts.target_languages, facts.model_class),
        plain=plain_markdown,
    )


def _results(facts: ModelFacts) -> dict[str, Any]:
    """Return the scores as the hub's metadata."""
    from huggingface_hub import EvalResult

    if not facts.scores:
        return {}
    data, config = _on_one_line(str(facts.config["data.name"])), facts.config
    search = {"beam_size": config["search.beam_size"], "alpha": config["search.alpha"]}
    results = [
        EvalResult(
            task_type="translation",
            dataset_type=data,
            dataset_name=f"{data}, {_in_words(name)}",
            # The hub tells sets of one type apart by their configuration.
            dataset_config=None if name in ("valid", "test") else name.removeprefix("test/"),
            dataset_split=_split(name),
            metric_type=_ON_THE_HUB[score.name],
            metric_value=round(score.value, 2),
            metric_name=f"{score.name} {score.signature}",
            metric_args=search,
        )
        for name, score in facts.scores
    ]
    return {
        "metrics": list(dict.fromkeys(result.metric_type for result in results)),
        "model_name": _on_one_line(facts.name),
        "eval_results": results,
    }


def _split(name: str) -> str:
    return "test" if name.partition("/")[0] == "test" else "validation"


def _in_words(name: str) -> str:
    """Describe a set: `valid` is the validation set, `a` another one, and `test/a` a test set."""
    more = "" if name in ("valid", "test") else f", {name.removeprefix('test/')}"
    return f"{_split(name)}{more}"


def plain_markdown(text: str) -> str:
    """Keep a text on its line and out of Markdown and HTML."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in _on_one_line(text))


def _on_one_line(text: str) -> str:
    return "".join(c for c in " ".join(text.split()) if c.isprintable()).replace("```", "")
