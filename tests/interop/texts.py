"""Texts of many scripts, and tokenizers that were trained on them."""

import random
from typing import Any

from seq2seq.tokenizer import Tokenizer, TokenizerConfig

CONTROLS = ["<bt>", ">>de<<", ">>fr<<"]
SIX_SCRIPTS = [
    "The long road home, ﬁve “quotes” and ½ of it.",
    "Größe und Straße, äöü – naïve café",
    "Съешь же ещё этих мягких французских булок.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "नमस्ते दुनिया, आप कैसे हैं?",
    "क्‍ष می‌خواهم \u061cabc",
    "我们 在 这里。東京都に住んでいます。ﾊﾝｶｸ",
    "نص حكيم له سر قاطع وذو شأن عظيم",
]
TYPED = ["</s>", "<s>", "<pad>", "<unk>", ">>de<<", "<bt>", "<0x41>", "▁", "▅", " ⁇ ", "\uffff"]
"""Control symbols, and what else a tokenizer reserves, as a user may type them."""
EMOJI = ["😀", "👩‍👩‍👧", "🇩🇪", "❤️"]
KINDS: dict[str, dict[str, Any]] = {
    "identity": {},
    "byte_fallback": {"byte_fallback": True},
    "nmt_nfkc": {"normalization": "nmt_nfkc"},
    "nfkc": {"normalization": "nfkc"},
    "few characters": {"character_coverage": 0.98, "vocab_size": 300},
}
"""Tokenizers that can be exported."""


def train_tokenizer(kind: str) -> Tokenizer:
    """Train one on all these scripts, in which `▁` has a piece of its own."""
    config = TokenizerConfig(**({"vocab_size": 500} | KINDS[kind]))
    return Tokenizer.train([*SIX_SCRIPTS * 9, "a ▁ b ▅ aa"], config, controls=CONTROLS)


def random_texts(count: int, seed: int) -> list[str]:
    """Draw texts of words of all scripts, typed symbols, emoji, and blanks between them or none."""
    draw = random.Random(seed)
    words = [*" ".join(SIX_SCRIPTS).split(), *TYPED, *EMOJI, "ß", "İ", "zzz", "unseen", "ﷺ"]
    texts = []
    for _ in range(count):
        parts = [draw.choice(words) for _ in range(draw.randrange(12))]
        text = "".join(draw.choice([" ", " ", " ", "", "  "]) + part for part in parts)
        texts.append(text[draw.randrange(3) :] + draw.choice(["", "", " ", "   "]))
    return texts
