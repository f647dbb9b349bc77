"""Measure the alignment errors of every layer and step of a model, and those of its choice.

    python scripts/benchmarks/alignment.py --model RUN --gold SOURCE TARGET LINKS

SOURCE and TARGET have one sentence a line, its words divided by blanks. LINKS has the links between
these words, counted from 0: `1-2` for sure ones, `1?2` for possible ones. `--other LINKS` measures
the links of another program, too.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TypeAlias

from seq2seq.decoding.alignment import Alignment
from seq2seq.decoding.linking import choose_step
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.model_folder import AlignmentStep, find_model, load_model

Links: TypeAlias = set[tuple[int, int]]
_NO_BLANK_BEFORE, _NO_BLANK_AFTER = re.compile(r"[,.;:!?)\]%]|'\w*"), ("(", "[", "'")


def main() -> None:
    """Print the alignment error rates in percent."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, nargs="+", required=True)
    parser.add_argument("--gold", type=Path, nargs=3, required=True)
    parser.add_argument("--other", type=Path, nargs="*", default=[])
    words = parser.parse_args()
    sources, targets = ([line.split(" ") for line in lines_of(path)] for path in words.gold[:2])
    sure = [read_links(line, "-") for line in lines_of(words.gold[2])]
    possible = [read_links(line, "-?") for line in lines_of(words.gold[2])]
    diagonals = [diagonal(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
    print(f"diagonal: {error_rate(diagonals, sure, possible):.1f}")
    for path in words.other:
        found = [read_links(line, "-") for line in lines_of(path)]
        print(f"{path.name}: {error_rate(found, sure, possible):.1f}")
    for folder in words.model:
        trained = load_model(find_model(folder))
        made = choose_step(trained)
        chosen = trained.alignment or made
        for layer, reads in product(
            range(1, trained.model.config.decoder_depth + 1), (True, False)
        ):
            step = AlignmentStep(layer, reads)
            of_step = Translator(
                replace(trained, alignment=step), TranslationOptions(device="cpu", workers=1)
            )
            rate = error_rate(align(of_step, sources, targets), sure, possible)
            said = " chosen" * (step == chosen) + " (without known text)" * (step == made)
            print(f"{folder}: layer {layer} {'reads' if reads else 'writes'}: {rate:.1f}{said}")


def lines_of(path: Path) -> list[str]:
    """Read lines, of which a word may have white space other than blanks."""
    return path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")


def read_links(line: str, marks: str) -> Links:
    """Read the links of a line that have one of the marks."""
    found = re.findall(rf"(\d+)[{marks}](\d+)", line)
    return {(int(source), int(target)) for source, target in found}


def diagonal(source: int, target: int) -> Links:
    """Link each word of the target to the word in the same place of the source."""
    return {(int((j + 0.5) * source / target), j) for j in range(target)}


def error_rate(found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> float:
    """Compute the alignment error rate (Och and Ney 2003) in percent."""
    right = count = 0
    for links, s, p in zip(found, sure, possible, strict=True):
        right += len(links & s) + len(links & (p | s))
        count += len(links) + len(s)
    return 100 * (1 - right / count)


def align(
    translator: Translator, sources: Sequence[list[str]], targets: Sequence[list[str]]
) -> list[Links]:
    """Align sentences, written as usual, and return the links between their words."""
    texts, numbers = zip(*map(written, sources), strict=True)
    target_texts, target_numbers = zip(*map(written, targets), strict=True)
    alignments = translator.alignments(texts, target_texts)
    return list(map(links_of, alignments, numbers, target_numbers))


def written(words: Sequence[str]) -> tuple[str, list[int]]:
    """Write a sentence without the blanks of its tokenization, and number the word of characters.

    A blank has -1.
    """
    text, numbers = "", list[int]()
    for number, word in enumerate(words):
        if text and not (_NO_BLANK_BEFORE.fullmatch(word) or text.endswith(_NO_BLANK_AFTER)):
            text += " "
            numbers.append(-1)
        text += word if text else word[:1].upper() + word[1:]
        numbers += [number] * len(word)
    return text, numbers


def links_of(found: Alignment, numbers: Sequence[int], target_numbers: Sequence[int]) -> Links:
    """Return the links between words, given those of each character."""
    links: Links = set()
    for i, j in found.mutual:
        source = numbers[slice(*found.source_spans[i])]
        links |= set(product(source, target_numbers[slice(*found.target_spans[j])]))
    return {link for link in links if min(link) >= 0}


if __name__ == "__main__":
    main()
