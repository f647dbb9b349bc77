"""The examination, on good models and on models that are wrong on purpose."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Adam

from seq2seq.data.corpus import DataConfig, SplitConfig
from seq2seq.data.tokenizer import PADDING_ID, START_ID
from seq2seq.decoding.beam_search import SearchConfig
from seq2seq.model import Memory, Transformer, TransformerConfig
from seq2seq.model.config import Positions, Start
from seq2seq.model.layers import DecoderLayer, EncoderLayer
from seq2seq.reproduction import embedding, recipe, residuals, search, sublayers, trace, training
from seq2seq.reproduction.paper import DETAILS
from seq2seq.reproduction.report import as_text, examine, summary
from seq2seq.reproduction.subject import Finding, Subject, untrained
from seq2seq.training import trainer
from seq2seq.training.config import TrainingConfig

SMALL = TransformerConfig(num_layers=2, d_model=64, d_ff=128, num_heads=4)
WMT = DataConfig(
    dataset="wmt/wmt14",
    revision="0" * 40,
    source_language="en",
    target_language="de",
    valid=SplitConfig(split="validation"),
    test=SplitConfig(split="test"),
)

ARCHITECTURE: dict[int, Callable[[Subject], Finding]] = {
    1: residuals.residual_norm_dropout,
    2: residuals.norm_after_the_last_layer,
    3: residuals.inner_dropout,
    4: residuals.norm_epsilon,
    5: embedding.positions,
    6: embedding.embedding_scale,
    7: embedding.shared_matrix,
    8: embedding.decoder_start,
    9: sublayers.attention_biases,
    10: sublayers.attention_formula,
    11: sublayers.feed_forward_formula,
    12: sublayers.initialisation,
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def subject(config: TransformerConfig = SMALL, **training_settings: Any) -> Subject:
    return untrained(config, TrainingConfig(**training_settings), SearchConfig(), WMT)


def with_model(kind: type[Transformer]) -> Subject:
    torch.manual_seed(1)
    model = kind(SMALL, vocab_size=101, padding_id=PADDING_ID, start_id=START_ID)
    return replace(subject(), model=model, fresh=model)


def differing(examined: Subject) -> list[int]:
    return [number for number, measure in ARCHITECTURE.items() if measure(examined).differs]


def test_the_papers_details() -> None:
    rows = examine(subject())
    # Only its size is not the paper's.
    assert [row.number for row in rows if row.finding.differs] == [27]
    against_the_paper = [row.number for row in rows if row.finding.paper is False]
    assert against_the_paper == [27]
    silent = {
        row.number for row, detail in zip(rows, DETAILS, strict=True) if row.finding.paper is None
    }
    assert silent == {number for number, d in enumerate(DETAILS, 1) if d.paper == "silent"}
    assert "22 as the paper; 4 as the authors' code, the paper being silent;" in summary(rows)
    text = as_text(rows)
    assert max(map(len, text.splitlines())) <= 120
    assert "1 differ (27)" in " ".join(text.split())


def test_the_authors_details() -> None:
    config = replace(SMALL, positions=Positions.concatenated, start=Start.zero, attention_bias=True)
    rows = examine(
        subject(
            config,
            source_tokens=32768,
            target_tokens=32768,
            micro_batch_tokens=4096,
            count_longer_side=True,
            subtract_target_entropy=True,
        )
    )
    assert [row.number for row in rows if row.finding.differs] == [27]
    theirs = [row.number for row in rows if row.finding.paper is False and row.finding.authors]
    assert theirs == [5, 8, 9, 17]
    assert rows[13].finding.here.endswith("shown less the targets' entropy")


def test_pre_norm_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(layer: EncoderLayer, x: Tensor, mask: Tensor | None) -> Tensor:
        first, second = layer.after_self_attention, layer.after_feed_forward
        x = x + first.dropout(layer.self_attention(first.norm(x), None, mask))
        return x + second.dropout(layer.feed_forward(second.norm(x)))

    monkeypatch.setattr(EncoderLayer, "forward", encode)
    assert differing(subject()) == [1]
    assert "Pre-LN" in residuals.residual_norm_dropout(subject()).here


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_norm_at_the_end_is_caught(stack: str) -> None:
    class EndNorm(Transformer):
        def __init__(self, *arguments: Any, **facts: Any) -> None:
            super().__init__(*arguments, **facts)
            self.end = nn.LayerNorm(SMALL.d_model, eps=1e-6)

        def encode(self, source: Tensor) -> Memory:
            memory = super().encode(source)
            states = self.end(memory.states) if stack == "encoder" else memory.states
            return Memory(states, memory.padding_mask)

        def decode(self, target_input: Tensor, memory: Memory) -> Tensor:
            states = super().decode(target_input, memory)
            return self.end(states) if stack == "decoder" else states

    assert differing(with_model(EndNorm)) == [2]
    assert stack in residuals.norm_after_the_last_layer(with_model(EndNorm)).here


def test_a_norm_without_a_module_is_caught() -> None:
    class EndNorm(Transformer):
        def decode(self, target_input: Tensor, memory: Memory) -> Tensor:
            return nn.functional.layer_norm(super().decode(target_input, memory), (64,))

    assert differing(with_model(EndNorm)) == [2]


def test_a_missing_embedding_scale_is_caught() -> None:
    examined = subject()
    examined.model.embedding.scale = 1.0
    assert differing(examined) == [6]
    assert embedding.embedding_scale(examined).here.startswith("times 1 (source), 1 (target)")


def test_an_untied_matrix_is_caught() -> None:
    class Untied(Transformer):
        def __init__(self, *arguments: Any, **facts: Any) -> None:
            super().__init__(*arguments, **facts)
            # The same numbers at first, another storage.
            self.output = nn.Parameter(self.embedding.weight.detach().clone())

        def project(self, states: Tensor) -> Tensor:
            return states @ self.output.T

    assert differing(with_model(Untied)) == [7]
    found = embedding.shared_matrix(with_model(Untied)).here
    assert found == "2 matrices of V x d_model, moving: logits; source and target"


def test_another_length_penalty_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "seq2seq.decoding.beam_search.length_penalty", lambda length, alpha: length**alpha
    )
    found = search.length_penalties(subject())
    assert found.differs
    assert found.here.startswith("length^alpha: 1.5157 at 2")
    assert not search.beam(subject()).differs


def test_a_narrow_choice_of_candidates_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    topk = Tensor.topk
    monkeypatch.setattr(Tensor, "topk", lambda x, k, **rest: topk(x, min(k, 4), **rest))
    assert "fewer than 2 x beam" in search.beam(subject()).here


@pytest.mark.parametrize(
    ("number", "setting"),
    [
        (3, {"attention_dropout": 0.1}),
        (3, {"relu_dropout": 0.1}),
        (4, {"layer_norm_epsilon": 1e-5}),
        (5, {"positions": Positions.learned}),
    ],
)
def test_other_settings_are_caught(number: int, setting: dict[str, Any]) -> None:
    assert differing(subject(replace(SMALL, **setting))) == [number]


def test_dropout_is_measured() -> None:
    assert residuals.measured_dropout(subject(replace(SMALL, dropout=0.25)).model) == [0.25]
    assert residuals.measured_dropout(subject(replace(SMALL, dropout=0.0)).model) == [0.0]
    found = recipe.dropout_rate(subject(replace(SMALL, dropout=0.3)))
    assert found.differs
    examined = subject()
    examined.model.embedding.dropout.rate = 0.0
    assert differing(examined) == [1]


def test_another_attention_scale_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def unscaled(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        scores = query @ key.transpose(-2, -1)
        return (scores if mask is None else scores.masked_fill(~mask, -1e30)).softmax(dim=-1)

    monkeypatch.setattr("seq2seq.model.attention.attention_weights", unscaled)
    assert differing(subject()) == [10]
    assert "no scale" in sublayers.attention_formula(subject()).here


def test_other_fresh_weights_are_caught() -> None:
    examined = subject()
    nn.init.normal_(examined.fresh.embedding.weight, std=1.0)
    assert "embeddings" in sublayers.initialisation(examined).here
    examined = subject()
    layer = examined.fresh.encoder[0]
    assert isinstance(layer, EncoderLayer)
    nn.init.kaiming_uniform_(layer.feed_forward.inner.weight)
    assert "feed-forward" in sublayers.initialisation(examined).here


def test_smoothing_over_all_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = trainer.projected_loss  # type: ignore[attr-defined]

    def spread(*arguments: Any, smoothing: float, **rest: Any) -> Any:
        return real(*arguments, smoothing=smoothing * 10 / 11, **rest)

    monkeypatch.setattr(trainer, "projected_loss", spread)
    found = training.label_smoothing(subject())
    assert found.differs
    assert found.here.startswith("reference 0.9091, others eps / (V - 1) = 0.0091 each")
    assert training.label_smoothing(subject(label_smoothing=0.0)).differs


def test_a_loss_per_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = trainer.projected_loss  # type: ignore[attr-defined]

    def halved(*arguments: Any, **rest: Any) -> Any:
        loss = real(*arguments, **rest)
        return loss._replace(smoothed=loss.smoothed / 2)

    monkeypatch.setattr(trainer, "projected_loss", halved)
    assert training.loss_normalisation(subject()).differs


@pytest.mark.parametrize("setting", [{"betas": (0.9, 0.999)}, {"eps": 1e-6}, {"weight_decay": 0.1}])
def test_another_optimizer_is_caught(
    monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any]
) -> None:
    def make(model: nn.Module) -> Adam:
        papers: dict[str, Any] = {"betas": (0.9, 0.98), "eps": 1e-9}
        return Adam(model.parameters(), lr=0.0, **{**papers, **setting})

    monkeypatch.setattr(trainer, "make_adam", make)
    assert training.adam(subject()).differs


def test_clipping_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = trainer.get_total_norm  # type: ignore[attr-defined]

    def clip(gradients: list[Tensor]) -> Tensor:
        norm: Tensor = real(gradients)
        for gradient in gradients:
            gradient.mul_(min(1.0, 1.0 / norm.item()))
        return norm

    monkeypatch.setattr(trainer, "get_total_norm", clip)
    assert training.adam(subject()).differs


@pytest.mark.parametrize("setting", [{"warmup_steps": 8000}, {"learning_rate_scale": 2.0}])
def test_another_schedule_is_caught(setting: dict[str, Any]) -> None:
    assert training.learning_rates(subject(**setting)).differs


@pytest.mark.parametrize(
    ("measure", "setting"),
    [
        (recipe.batch, {"source_tokens": 4096, "target_tokens": 4096}),
        (recipe.steps, {"max_steps": 50_000}),
        (recipe.steps, {"patience": 5}),
        (recipe.averaging, {"average_checkpoints": 1}),
        (recipe.averaging, {"checkpoint_minutes": 5.0}),
    ],
)
def test_another_recipe_is_caught(
    measure: Callable[[Subject], Finding], setting: dict[str, Any]
) -> None:
    assert not measure(subject()).differs
    assert measure(subject(**setting)).differs


@pytest.mark.parametrize(
    ("measure", "search_config"),
    [
        (search.beam, SearchConfig(beam_size=5)),
        (search.beam, SearchConfig(alpha=1.0)),
        (search.longest_output, SearchConfig(max_extra_tokens=20)),
    ],
)
def test_another_search_is_caught(
    measure: Callable[[Subject], Finding], search_config: SearchConfig
) -> None:
    assert measure(replace(subject(), search=search_config)).differs


def test_other_data_are_caught() -> None:
    others = DataConfig(name="captions", valid=SplitConfig(source="a", target="b"))
    examined = replace(subject(), data=replace(WMT, valid=SplitConfig(split="test")))
    assert recipe.evaluation_sets(examined).differs
    assert others.name not in recipe.evaluation_sets(subject()).here
    assert recipe.vocabulary(replace(subject(), vocab_size=8000)).differs
    assert recipe.vocabulary(replace(subject(), vocab_size=40_960)).authors


def test_examination_leaves_the_model_as_it_was() -> None:
    examined = subject()
    examined.model.eval()
    before = {name: value.clone() for name, value in examined.model.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    for measure in ARCHITECTURE.values():
        measure(examined)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in examined.model.modules())
    for name, value in examined.model.state_dict().items():
        assert torch.equal(value, before[name])
    assert not any(module._forward_hooks for module in examined.model.modules())


def test_layers_are_those_that_the_trace_knows() -> None:
    encoder, decoder = trace.trace(subject().model, training=False)
    kinds = [type(event.module) for event in encoder.events + decoder.events]
    assert kinds.count(EncoderLayer) == kinds.count(DecoderLayer) == 2
    assert kinds.count(nn.LayerNorm) == 2 * (2 + 3)
