"""The search that suits a model: beam sizes and length penalties on a validation set (6.1)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sacrebleu import CHRF

from seq2seq.decoding.options import SweepConfig, TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.model_folder import TrainedModel
from seq2seq.score import ScoreConfig, bleu_metric, signature
from seq2seq.search import SearchConfig

BEAM_SIZES = (1, 2, 4, 8)
ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""From 0 to 1, as Wu et al. (2016) tried them. A higher one can win on the validation set because
its references are long, and then make translations of other text repeat themselves."""


@dataclass(frozen=True)
class Trial:
    """The score of a search on the validation set."""

    beam_size: int
    alpha: float
    metric: str
    value: float
    length_ratio: float  # tokens of the translations per token of the references
    signature: str  # of the metric


def try_searches(
    trained: TrainedModel,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    beam_sizes: Sequence[int] = BEAM_SIZES,
    alphas: Sequence[float] = ALPHAS,
    options: TranslationOptions | None = None,
    scoring: ScoreConfig | None = None,
    by_chrf: bool = False,
) -> Iterator[Trial]:
    """Score every beam size with every alpha by BLEU or chrF2; all alphas share one search.

    `options` are the translator's, except for its search; `scoring` has the options of BLEU.
    """
    options, scoring = options or TranslationOptions(), scoring or ScoreConfig()
    metrics = [bleu_metric(scoring), *([CHRF(lowercase=scoring.lowercase)] if by_chrf else [])]
    for beam_size in beam_sizes:
        search = SweepConfig(beam_size=beam_size, alphas=tuple(alphas))
        translations = Translator(trained, replace(options, search=search)).translate(sources)
        for number, alpha in enumerate(alphas):
            # A line without words has one candidate, an empty line none.
            outputs = [
                (t.candidates[number:] or t.candidates)[0].text if t.candidates else ""
                for t in translations
            ]
            results = [metric.corpus_score(outputs, [references]) for metric in metrics]
            best, ratio = results[-1], results[0].ratio
            mark = signature(metrics[-1].get_signature(), scoring)
            yield Trial(beam_size, alpha, best.name, best.score, ratio, mark)


def best_trial(trials: Sequence[Trial]) -> Trial:
    """Choose the best score; of equals, the smallest beam, then the alpha nearest the paper's."""
    paper = SearchConfig().alpha
    return max(trials, key=lambda t: (t.value, -t.beam_size, -abs(t.alpha - paper)))
