"""The report on faithful models, and on models that are wrong on purpose."""

import gc
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Adam

from seq2seq import train as forms
from seq2seq.cli.fidelity import compose_config
from seq2seq.corpus import DataConfig, SplitConfig
from seq2seq.fidelity import decoding, embedding, layers, optimization, recipe, results
from seq2seq.fidelity.detail import Detail, Subject, new_model
from seq2seq.fidelity.report import DETAILS, as_text, examine, summary
from seq2seq.search import SearchConfig
from seq2seq.sizes import Activation, Norm, NormPosition, Positions, TransformerConfig
from seq2seq.tokenizer import PADDING_ID, START_ID
from seq2seq.train import TrainingConfig
from seq2seq.transformer import FeedForward, Transformer, attention

SMALL = TransformerConfig(num_layers=2, d_model=64, d_ff=128, num_heads=4)
BIG = TransformerConfig(num_layers=1, d_model=1024, d_ff=4096, num_heads=16)
WMT = DataConfig(
    dataset="wmt/wmt14",
    revision="0" * 40,
    source_language="en",
    target_language="de",
    valid=SplitConfig(split="validation"),
    test=SplitConfig(split="test"),
)
ARCHITECTURE = DETAILS[: DETAILS.index(optimization.label_smoothing)]


def subject(
    config: TransformerConfig = SMALL,
    *,
    search: SearchConfig | None = None,
    data: DataConfig = WMT,
    **training: Any,
) -> Subject:
    return Subject(
        model=new_model(config),
        vocab_size=data.tokenizer.vocab_size,
        training=TrainingConfig(**training),
        search=search or SearchConfig(),
        data=data,
    )


def with_model(kind: type[Transformer]) -> Subject:
    torch.manual_seed(1)
    model = kind(SMALL, vocab_size=101, padding_id=PADDING_ID, start_id=START_ID)
    return replace(subject(), model=model)


def named(value: object) -> str:
    """Name a case of a test; a detail's own text shows an address, which no two processes share."""
    return value.name if isinstance(value, Detail) else str(value)


def differing(examined: Subject) -> list[Detail]:
    return [detail for detail in ARCHITECTURE if detail(examined).differs]


def test_no_model_of_a_report_stays_in_memory() -> None:
    """Else a --multirun of many runs, each with its report, would run out of files."""
    for detail in (optimization.label_smoothing, optimization.adam):
        detail(subject())
    gc.collect()
    assert not [o for o in gc.get_objects() if type(o) is optimization.Rehearsal]


def test_the_defaults_are_the_paper_and_where_it_is_silent_tensor2tensor() -> None:
    rows = examine(subject())
    # Only its size and how label smoothing is spread are not the paper's.
    others = [optimization.label_smoothing.name, results.cost.name]
    assert [row.detail for row in rows if row.as_paper is False] == others
    assert [row.detail for row in rows if row.verdict == "differs"] == [results.cost.name]
    for row in rows:
        assert (row.as_paper is None) == (row.paper is None)
        assert (row.as_tensor2tensor is None) == (row.tensor2tensor is None)
    assert summary(rows).startswith("27 details: 21 as the paper; 4 as tensor2tensor, the paper")
    text = as_text(rows)
    assert max(map(len, text.splitlines())) <= 100
    assert "1 differ (27)" in " ".join(text.split())
    assert [row.number for row in rows] == list(range(1, 28))
    assert (rows[3].paper, rows[3].as_tensor2tensor) == (None, True)


def test_the_variant_tensor2tensor_is_as_tensor2tensor() -> None:
    config = compose_config(["variant=tensor2tensor"])
    sizes = {name: getattr(SMALL, name) for name in ("num_layers", "d_model", "d_ff", "num_heads")}
    rows = examine(subject(replace(config.model, **sizes), **vars(config.training)))
    assert [row.detail for row in rows if row.verdict == "differs"] == [results.cost.name]
    found = [row.detail for row in rows if row.verdict == "as tensor2tensor"]
    assert found == [
        layers.norm_epsilon.name,
        layers.attention_biases.name,
        layers.initialization.name,
        embedding.positions.name,
        embedding.decoder_start.name,
        optimization.label_smoothing.name,
        optimization.loss_normalization.name,
        recipe.batch.name,
        results.bleu_variants.name,
    ]


class Unbiased(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + self.eps).sqrt()


def test_another_variance_differs() -> None:
    examined = subject()
    examined.model.get_submodule("encoder.layers.1").feed_forward_norm = Unbiased(64, eps=1e-6)
    assert layers.norm_epsilon(examined).differs
    assert "another norm" in layers.norm_epsilon(examined).here


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_norm_after_the_last_layer_differs(stack: str) -> None:
    class EndNorm(Transformer):
        def __init__(self, *arguments: Any, **facts: Any) -> None:
            super().__init__(*arguments, **facts)
            self.end = nn.LayerNorm(SMALL.d_model, eps=1e-6)

        def encode(self, *inputs: Tensor) -> Tensor:
            memory = super().encode(*inputs)
            return self.end(memory) if stack == "encoder" else memory

        def decode(self, *inputs: Tensor) -> Tensor:
            states = super().decode(*inputs)
            return self.end(states) if stack == "decoder" else states

    assert differing(with_model(EndNorm)) == [layers.norm_after_the_last_layer]
    assert stack in layers.norm_after_the_last_layer(with_model(EndNorm)).here


def test_a_missing_embedding_scale_differs() -> None:
    class Unscaled(Transformer):
        def embed(
            self, token_ids: Tensor, first_position: int = 0, *, is_target: bool = False
        ) -> Tensor:
            x = nn.functional.embedding(token_ids, self.embedding.weight)
            return self.dropout(x + self.positions(x, first_position))

    assert differing(with_model(Unscaled)) == [embedding.embedding_scale]


def test_unmasked_padding_differs() -> None:
    class Unmasked(Transformer):
        def source_mask(self, source: Tensor) -> Tensor:
            return torch.ones_like(super().source_mask(source))

    assert differing(with_model(Unmasked)) == [embedding.embedding_scale]
    assert "padding reaches other tokens" in embedding.embedding_scale(with_model(Unmasked)).here


def test_targets_that_attend_to_the_next_one_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "seq2seq.transformer.causal_mask",
        lambda length, device: torch.ones(length, length, dtype=torch.bool).tril(1),
    )
    assert differing(subject()) == [layers.attention_formula]
    assert "a target attends to those after it" in layers.attention_formula(subject()).here


def test_a_bias_of_the_logits_is_not_as_tensor2tensor_even_while_it_is_zero() -> None:
    class Biased(Transformer):
        def __init__(self, *arguments: Any, **facts: Any) -> None:
            super().__init__(*arguments, **facts)
            self.bias = nn.Parameter(torch.zeros(self.vocab_size))

        def project(self, states: Tensor) -> Tensor:
            return super().project(states) + self.bias

    found = embedding.shared_matrix(with_model(Biased))
    assert (found.paper, found.tensor2tensor) == (True, False)
    assert found.here.endswith("logits with a bias")


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_the_rate_of_dropout_is_measured(rate: float) -> None:
    examined = subject(replace(SMALL, dropout=rate))
    assert layers.dropout_rates(examined.model) == [rate]
    assert differing(examined) == []
    assert recipe.dropout_rate(examined).differs


class TooManyZeros(nn.Dropout):
    """The factor of p, the zeros of 2p."""

    def forward(self, x: Tensor) -> Tensor:
        keep = torch.rand_like(x) >= 2 * self.p
        return x * keep / (1.0 - self.p) if self.training else x


@pytest.mark.parametrize("module", ["", "encoder.layers.1", "decoder.layers.0"])
def test_another_dropout_differs(module: str) -> None:
    examined = subject()
    examined.model.get_submodule(module).dropout = TooManyZeros(0.1)
    assert differing(examined) == [layers.residual_norm_dropout]
    assert recipe.dropout_rate(examined).differs


def test_the_dropout_of_big_is_0_3_but_for_french() -> None:
    model = replace(BIG, dropout=0.3)
    assert not recipe.dropout_rate(subject(model)).differs
    assert recipe.dropout_rate(subject(model, data=replace(WMT, target_language="fr"))).differs


def test_big_is_trained_three_times_as_long_and_averages_twenty_checkpoints() -> None:
    big = subject(BIG, max_steps=300_000, average_checkpoints=20, keep_checkpoints=20)
    for detail in (recipe.steps, recipe.averaging):
        assert not detail(big).differs
        assert detail(subject(BIG)).differs


def test_another_attention_scale_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "seq2seq.transformer.attention", lambda query, *rest: attention(2 * query, *rest)
    )
    assert differing(subject()) == [layers.attention_formula]


def test_a_bias_in_one_attention_differs() -> None:
    examined = subject()
    examined.model.get_submodule("decoder.layers.1.cross_attention").w_k = nn.Linear(64, 64)
    nn.init.zeros_(examined.model.get_parameter("decoder.layers.1.cross_attention.w_k.bias"))
    assert layers.attention_biases(examined).differs
    assert layers.attention_biases(examined).here == "biases in 1 of 6 attentions"


@pytest.mark.parametrize("activation", [a for a in Activation if a.value not in ("relu", "swiglu")])
def test_another_feed_forward_network_differs(activation: Activation) -> None:
    examined = subject(replace(SMALL, activation=activation))
    assert differing(examined) == [layers.feed_forward_formula]
    here = layers.feed_forward_formula(examined).here
    assert here.startswith(f"{activation.value}(xW1 + b1)W2 + b2, in ")
    for module in examined.model.modules():
        if isinstance(module, FeedForward):
            module.activation = torch.tanh
    assert layers.feed_forward_formula(examined).here == "another formula"


@pytest.mark.parametrize(
    ("change", "details", "here"),
    [
        ({"attention_dropout": 0.1}, [layers.inner_dropout], "attention weights"),
        ({"relu_dropout": 0.1}, [layers.inner_dropout], "ReLU"),
        ({"layer_norm_epsilon": 1e-5}, [layers.norm_epsilon], "1e-05"),
        ({"positions": Positions.learned}, [embedding.positions], "no sinusoids"),
        ({"shared_embedding": False}, [embedding.shared_matrix],
         "2 matrices.*source; target and logits"),
        ({"tied_output": False}, [embedding.shared_matrix], "2 matrices.*logits; source and targ"),
        ({"norm_position": NormPosition.pre},
         [layers.residual_norm_dropout, layers.norm_after_the_last_layer], "Pre-LN"),
        ({"norm": Norm.rms}, [layers.norm_epsilon, layers.residual_norm_dropout], "RMSNorm"),
        ({"positions": Positions.rotary}, [layers.attention_formula, embedding.positions],
         "one with rotary positions, mask"),
        ({"activation": Activation.swiglu}, [layers.feed_forward_formula], r"\(swish.*W2 \+ b2,"),
        ({"num_kv_heads": 2}, [layers.attention_formula], "V, mask.*; 4 heads share 2 of keys"),
        ({"bias": False}, [layers.feed_forward_formula], "without biases, in 4 of 4"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_another_model_differs(change: dict[str, Any], details: list[Detail], here: str) -> None:
    examined = subject(replace(SMALL, **change))
    assert {*differing(examined)} == {*details}
    assert re.search(here, details[0](examined).here)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("embedding.weight", "embeddings"),
        ("encoder.layers.0.feed_forward.inner.weight", "feed-forward"),
        ("decoder.layers.0.cross_attention.w_v.weight", "attention"),
        ("encoder.layers.0.feed_forward.outer.bias", "biases"),
    ],
)
def test_another_initialization_differs(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    reset_parameters = Transformer.reset_parameters

    def reset(model: Transformer, init_std: float | None) -> None:
        reset_parameters(model, init_std)
        nn.init.normal_(model.get_parameter(name), std=0.2)

    monkeypatch.setattr(Transformer, "reset_parameters", reset)
    assert layers.initialization(subject()).differs
    assert layers.initialization(subject()).here.startswith(f"otherwise: {kind};")


def test_smoothing_over_all_tokens_is_that_of_the_paper_s_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain_loss = forms.label_smoothed_loss

    def over_all(*arguments: Any, smoothing: float, **rest: Any) -> Any:
        return plain_loss(*arguments, smoothing=smoothing * 10 / 11, **rest)

    monkeypatch.setattr(forms, "label_smoothed_loss", over_all)
    found = optimization.label_smoothing(subject())
    assert (found.paper, found.tensor2tensor) == (True, False)
    assert found.here.startswith("reference 0.9091, others eps / V = 0.0091 each")


def test_another_normalization_of_the_loss_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_loss = forms.label_smoothed_loss

    def halved(*arguments: Any, **rest: Any) -> Any:
        loss = plain_loss(*arguments, **rest)
        return loss._replace(smoothed=loss.smoothed / 2)

    monkeypatch.setattr(forms, "label_smoothed_loss", halved)
    assert optimization.loss_normalization(subject()).differs


def clip(optimizer: Adam, *_: object) -> None:
    for group in optimizer.param_groups:
        nn.utils.clip_grad_norm_(group["params"], 1.0)


@pytest.mark.parametrize(
    "change",
    [{"betas": (0.9, 0.999)}, {"eps": 1e-6}, {"weight_decay": 0.1}, {"clipping": True}],
    ids=str,
)
def test_another_optimizer_differs(monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]) -> None:
    def make(model: nn.Module) -> Adam:
        paper: dict[str, Any] = {"betas": (0.9, 0.98), "eps": 1e-9}
        settings = {k: v for k, v in change.items() if k != "clipping"}
        adam = Adam(model.parameters(), lr=0.0, fused=True, **{**paper, **settings})
        if "clipping" in change:
            adam.register_step_pre_hook(clip)
        return adam

    monkeypatch.setattr("seq2seq.train.make_adam", make)
    assert optimization.adam(subject()).differs


@pytest.mark.parametrize(
    ("detail", "setting"),
    [
        (optimization.label_smoothing, {"label_smoothing": 0.0}),
        (optimization.learning_rates, {"warmup_steps": 8000}),
        (optimization.learning_rates, {"learning_rate_scale": 2.0}),
        (recipe.batch, {"source_tokens": 4096, "target_tokens": 4096}),
        (recipe.steps, {"max_steps": 50_000}),
        (recipe.steps, {"patience": 5}),
        (recipe.averaging, {"average_checkpoints": 1}),
        (recipe.averaging, {"validate_mean": True}),
        (recipe.dropout_rate, {"dropout_warmup_steps": 1000}),
        (recipe.averaging, {"checkpoint_minutes": 5.0}),
        (decoding.beam, {"search": SearchConfig(alpha=1.0)}),
        (decoding.longest_output, {"search": SearchConfig(max_extra_tokens=20)}),
    ],
    ids=named,
)
def test_another_recipe_differs(detail: Detail, setting: dict[str, Any]) -> None:
    assert detail(subject(**setting)).differs


def test_another_length_penalty_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "seq2seq.decoding.beam_search.length_penalty", lambda length, alpha: length**alpha
    )
    assert decoding.length_penalties(subject()).differs


def test_fewer_candidates_than_twice_the_beam_are_not_as_tensor2tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topk: Callable[..., Any] = Tensor.topk
    monkeypatch.setattr(Tensor, "topk", lambda x, k, **rest: topk(x, min(k, 4), **rest))
    found = decoding.beam(subject())
    assert (found.paper, found.tensor2tensor) == (True, False)
    assert "fewer than 2 x beam" in found.here


def test_the_cost_of_base_is_the_papers_and_that_of_half_as_many_steps_is_not() -> None:
    assert not results.cost(subject(TransformerConfig())).differs
    assert results.cost(subject(TransformerConfig(), max_steps=50_000)).differs


def test_the_cost_of_a_run_is_that_of_the_steps_done(tmp_path: Path) -> None:
    run = replace(subject(TransformerConfig(), max_steps=50_000), run=tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 100000}\n')
    assert not results.cost(run).differs
    endless = subject(TransformerConfig(), max_steps=None, max_minutes=60.0)
    found = results.cost(endless)
    assert found.differs
    assert "no limit of steps" in found.here


def test_other_data_differ() -> None:
    other_split = replace(WMT, valid=SplitConfig(split="test"))
    assert not results.evaluation_sets(subject()).differs
    assert results.evaluation_sets(subject(data=other_split)).differs
    assert results.evaluation_sets(subject(data=DataConfig(name="captions"))).differs
    files = {"valid": "newstest2013.en", "test": "newstest2014.en"}
    named = DataConfig(**{split: SplitConfig(source=name) for split, name in files.items()})
    assert not results.evaluation_sets(subject(data=named)).differs
    assert results.vocabulary(replace(subject(), vocab_size=8000)).differs
    assert results.vocabulary(replace(subject(), vocab_size=40_960)).tensor2tensor


def test_another_bleu_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "prepare", lambda line, language: line)
    assert results.bleu_variants(subject()).differs


def test_an_examination_does_not_change_the_model() -> None:
    examined = subject()
    examined.model.eval()
    before = {name: value.clone() for name, value in examined.model.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    for detail in DETAILS:
        detail(examined)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in examined.model.modules())
    for name, value in examined.model.state_dict().items():
        assert torch.equal(value, before[name])
