"""What the paper says and what its authors' code did, detail by detail.

The paper is Vaswani et al. (2017), *Attention Is All You Need*; the code is tensor2tensor as it
stood at publication, in June 2017. Where the two differ this project's default is the paper; where
the paper is silent, the code.
"""

from typing import NamedTuple


class Detail(NamedTuple):
    """One thing that a reproduction can get wrong."""

    name: str
    """With the section of the paper."""
    paper: str
    authors: str


DETAILS = (
    Detail(
        "residual, norm, dropout (3.1, 5.4)",
        "LayerNorm(x + Dropout(Sublayer(x))); dropout on embedding + position, both stacks",
        "the same",
    ),
    Detail("norm after the last layer", "none", "none"),
    Detail("dropout on attention and ReLU", "none", "0 and 0"),
    Detail("LayerNorm's epsilon", "silent", "1e-6, inside the root, biased variance"),
    Detail(
        "positions (3.5)",
        "sine and cosine interleaved, pos / 10000^(2i/d)",
        "halves concatenated, wavelengths by log(10000) / (d/2 - 1)",
    ),
    Detail("embedding scale (3.4)", "times sqrt(d_model)", "the same, pads zeroed"),
    Detail(
        "shared matrix (3.4)",
        "source embedding = target embedding = pre-softmax matrix",
        "the same, logits without bias",
    ),
    Detail(
        "decoder's start (3.1)",
        "outputs shifted right by one",
        "a zero vector first; </s> closes both sides",
    ),
    Detail("attention projections (3.2.2)", "no bias in the formula", "biases"),
    Detail(
        "attention (3.2.1)",
        "softmax(QK^T / sqrt(d_k)) V, mask -inf",
        "the same with a large negative number",
    ),
    Detail("feed-forward (3.3)", "max(0, xW1 + b1)W2 + b2", "the same"),
    Detail(
        "initialisation",
        "silent",
        "matrices Glorot uniform, embeddings N(0, 1/d_model), norms 1 and 0, biases 0",
    ),
    Detail(
        "label smoothing (5.4)",
        "eps = 0.1",
        "reference 1 - eps, each other token eps / (V - 1), pads nothing",
    ),
    Detail("the loss is divided by", "silent", "target tokens without pads, over all devices"),
    Detail("Adam (5.3)", "0.9, 0.98, 1e-9", "the same, no clipping, no decay"),
    Detail(
        "learning rate (5.3)",
        "d^-1/2 min(step^-1/2, step 4000^-3/2)",
        "the same",
    ),
    Detail(
        "batch (5.1)",
        "about 25,000 source and 25,000 target tokens, of like length together",
        "8 x 4096 tokens of the longer side, pads counted",
    ),
    Detail("steps (5.2)", "base 100,000, big 300,000", "not known"),
    Detail("dropout rate (5.4, 6.1)", "base 0.1, big 0.3, big En-Fr 0.1", "not known"),
    Detail(
        "averaging (6.1)",
        "the last 5 (base) or 20 (big) checkpoints, one every 10 minutes",
        "not known",
    ),
    Detail("beam (6.1)", "beam 4, alpha 0.6", "the same, 2 x beam candidates a step"),
    Detail(
        "length penalty (6.1)",
        "((5 + length) / 6)^alpha (Wu et al. 2016)",
        "the same, </s> counted",
    ),
    Detail(
        "longest output, early stop (6.1)",
        "input + 50; ends early when possible",
        "ends when no live hypothesis can beat a finished one",
    ),
    Detail(
        "vocabulary (5.1)",
        "shared, about 37,000 (En-De), 32,000 (En-Fr)",
        "a matrix of 40,960 rows",
    ),
    Detail("development and test set (6)", "newstest2013, newstest2014", "the same"),
    Detail(
        "BLEU (6)",
        "silent",
        "cased Moses tokens, German compounds split at hyphens on both sides",
    ),
    Detail(
        "cost (Table 2)",
        "time x GPUs x 9.5 TFLOP/s: base 3.3e18, big 2.3e19",
        "not known",
    ),
)
