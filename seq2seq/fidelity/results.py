"""Sections 5.1 and 6: vocabulary, test sets, BLEU, and the cost of training."""

import math
from dataclasses import replace
from functools import partial

from seq2seq.fidelity.detail import Finding, Subject, detail
from seq2seq.fidelity.recipe import STEPS, recorded, synthetic_batches
from seq2seq.model_folder import count_parameters
from seq2seq.reporting.paper_bleu import paper_bleu, prepare
from seq2seq.score import bleu
from seq2seq.sizes import Activation, TransformerConfig

PAPER_MODELS = {
    "base": TransformerConfig(),
    "big": TransformerConfig(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
}

TENSOR2TENSOR_ROWS = 40_960
"""Rows of tensor2tensor's shared matrix; together with biases on the attention projections, they
give the parameter counts of Table 3."""

PAPER_FLOPS = {recipe: 3600 * hours * 8 * 9.5e12 for recipe, hours in (("base", 12), ("big", 84))}
"""Floating-point operations as section 6.1 estimates them: training time (12 hours and 3.5 days,
section 5.2) x 8 GPUs x their sustained rate in single precision, 9.5 TFLOP/s (footnote 5)."""


def step_flops(
    config: TransformerConfig,
    vocab_size: int,
    *,
    source_tokens: float,
    target_tokens: float,
    source_length: float,
    target_length: float,
) -> float:
    """Count the floating-point operations of one update: three times the forward matmuls.

    The backward pass has two matmuls for each of the forward pass. A matmul of (m, k) and (k, n)
    has 2mkn operations. Masked positions of attention are counted too.

    Tokens are counted per update, and lengths are means per sentence.
    """
    d_model, heads = config.d_model, config.num_heads
    # The multiplications of QK^T and of the weighted sum of V, per pair of positions. W^Q and W^O
    # have d_model times as many entries; so have W^K and W^V, unless several heads share them.
    width = heads * (config.key_width + config.value_width)
    kv_width = config.kv_heads * (config.key_width + config.value_width)
    matrices = 3 if config.activation is Activation.swiglu else 2
    feed_forward = matrices * d_model * config.inner_width
    # Multiplications per token.
    own, cross = d_model * (width + kv_width), d_model * width
    encoder_layer = own + feed_forward + width * source_length
    decoder_layer = own + cross + feed_forward + width * (target_length + source_length)
    memory = d_model * kv_width  # keys and values of the memory, in each decoder layer
    source = config.num_layers * encoder_layer + config.decoder_depth * memory
    target = config.decoder_depth * decoder_layer + d_model * vocab_size
    return 3 * 2 * (source_tokens * source + target_tokens * target)


_VOCABULARY = {"de": 37_000, "fr": 32_000}
_MILLIONS = {(6, 512, 2048): "65 million", (6, 1024, 4096): "213, unexplained"}


@detail(
    "vocabulary (5.1)",
    paper="shared, about 37,000 (En-De), 32,000 (En-Fr)",
    tensor2tensor="a matrix of 40,960 rows",
)
def vocabulary(subject: Subject) -> Finding:
    """Count the rows of the shared matrix, and the parameters with these and with 40,960 rows."""
    expected = _VOCABULARY.get(subject.data.target_language, _VOCABULARY["de"])
    rows, config = subject.vocab_size, subject.model.config
    parameters = count_parameters(config, rows)
    tensor2tensor = count_parameters(replace(config, attention_bias=True), TENSOR2TENSOR_ROWS)
    millions = _MILLIONS.get((config.num_layers, config.d_model, config.d_ff))
    return Finding(
        f"{rows:,} rows, shared: {parameters:,} parameters; with 40,960 rows and biases"
        f" {tensor2tensor:,}" + (f" (the paper: {millions})" if millions else ""),
        math.isclose(rows, expected, rel_tol=0.02),
        rows == TENSOR2TENSOR_ROWS,
    )


@detail(
    "development and test set (6)", paper="newstest2013, newstest2014", tensor2tensor="the same"
)
def evaluation_sets(subject: Subject) -> Finding:
    """Identify both sets, by the pinned data set or else by the names of their files."""
    data = subject.data
    if data.dataset == "wmt/wmt14" and data.revision:
        splits = (data.valid.split, data.test.split)
        right = splits == ("validation", "test")
        names = "newstest2013, newstest2014" if right else "other splits"
        where = f"{splits[0]} and {splits[1]} of {data.dataset} at {data.revision[:8]}"
        return Finding.both(f"{names}: {where}", right)
    right = "newstest2013" in str(data.valid) and "newstest2014" in str(data.test)
    here = "files of these names" if right else f"{data.name}: other sets"
    return Finding.both(here, right)


@detail(
    "BLEU (6)",
    paper=None,
    tensor2tensor="cased Moses tokens, German compounds split at hyphens on both sides",
)
def bleu_variants(subject: Subject) -> Finding:
    """Score a sentence with a German compound by paper BLEU and by sacreBLEU."""
    reference = "Das ist ein neues Software-Update für alle."
    output = "Das ist ein neues Hardware-Update für alle."
    tokens = [prepare(line, "de") for line in (reference, output)]
    split = all(" ##AT##-##AT## Update" in line for line in tokens)
    cased = paper_bleu([reference.lower()], [[reference]]).value < 99.9
    paper = paper_bleu([output], [[reference]]).value
    sacre = bleu([output], [[reference]]).value
    right = split and cased and not math.isclose(paper, sacre, rel_tol=1e-3)
    return Finding.both(
        f"paper BLEU {'splits' if split else 'does not split'} both sides,"
        f" {'cased' if cased else 'not cased'}: {paper:.1f} where sacreBLEU has {sacre:.1f};"
        " both are printed, each under its name",
        right,
    )


@detail(
    "cost (Table 2)",
    paper="time x GPUs x 9.5 TFLOP/s: base 3.3e18, big 2.3e19",
    tensor2tensor=None,
)
def cost(subject: Subject) -> Finding:
    """Count the operations from the sizes of the model; the paper estimates them from time."""
    statistics, _ = synthetic_batches(subject.training)
    micro_batches, recipe = subject.training.micro_batches(), subject.recipe
    flops = partial(
        step_flops,
        source_length=statistics.source_tokens / statistics.sentences,
        target_length=statistics.target_tokens / statistics.sentences,
    )
    step = flops(
        subject.model.config,
        subject.vocab_size,
        source_tokens=micro_batches * statistics.source_tokens,
        target_tokens=micro_batches * statistics.target_tokens,
    )
    paper_step = flops(
        PAPER_MODELS[recipe], _VOCABULARY["de"], source_tokens=25_000, target_tokens=25_000
    )
    done = recorded(subject, "step")
    steps = done[-1] if done else subject.training.max_steps
    paper = paper_step * STEPS[recipe]
    right, total, share = False, "no limit of steps", ""
    if steps is not None:
        ratio = step * steps / paper
        right, total = 0.8 <= ratio <= 1.25, f"{step * steps:.2g} in {steps:,.0f} steps"
        share = "" if right else f", {ratio:.2g} of that"
    return Finding.both(
        f"counted {step:.2g} a step, {total} (the paper's {recipe} recipe {paper:.2g}{share}); by"
        f" the paper's time and rate {PAPER_FLOPS[recipe]:.2g}, another measure",
        right,
    )
