"""Compare paragraphs translated whole with the same ones translated sentence by sentence.

    python scripts/compare_sentences.py --model runs/mine --source test.ja --target test.en

Prints chrF and BLEU of both. A paragraph is made of consecutive lines of the test set, which has a
sentence on each; a line that does not end as a sentence does, such as a heading, belongs to none.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace

from sacrebleu import BLEU, CHRF

from seq2seq.data.lines import read_text_lines
from seq2seq.decoding.config import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.evaluation.scores import tokenizer_without_spaces

ENDS = (".", "!", "?", "。", "！", "？")


def paragraphs(
    pairs: list[tuple[str, str]], most: int, languages: tuple[str, str]
) -> Iterator[tuple[str, str]]:
    """Join consecutive pairs of sentences, up to `most` of them; single ones are left out."""
    joiners = ["" if tokenizer_without_spaces(language) else " " for language in languages]
    waiting: list[tuple[str, str]] = []
    for pair in [*pairs, ("", "")]:
        is_sentence = pair[0].endswith(ENDS)
        if is_sentence:
            waiting.append(pair)
        if len(waiting) == most or not is_sentence:
            if len(waiting) > 1:
                source, target = (
                    joiner.join(side)
                    for joiner, side in zip(joiners, zip(*waiting, strict=True), strict=True)
                )
                yield source, target
            waiting = []


def main() -> None:
    """Translate, score, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="a run or model folder")
    parser.add_argument("--source", required=True, help="sentences, one per line")
    parser.add_argument("--target", required=True, help="their translations")
    parser.add_argument(
        "--sentences", type=int, default=4, help="of a paragraph, at most (default 4)"
    )
    parser.add_argument("--languages", default="ja-en", metavar="SOURCE-TARGET")
    arguments = parser.parse_args()
    source_language, _, target_language = arguments.languages.partition("-")
    lines = zip(
        (line.strip() for line in read_text_lines(arguments.source)),
        (line.strip() for line in read_text_lines(arguments.target)),
        strict=True,
    )
    languages = (source_language, target_language)
    found = list(paragraphs(list(lines), arguments.sentences, languages))
    if not found:
        parser.error(
            f"{arguments.source}: no two lines follow one another that end as sentences do"
        )
    sources, references = zip(*found, strict=True)
    print(f"{len(sources)} paragraphs of 2 to {arguments.sentences} sentences\n")
    print("| translated | chrF2 | BLEU | length of the output / that of the reference |")
    print("|---|---|---|---|")
    options = TranslationOptions(source_language=source_language)
    for name, by_sentence in (("whole", False), ("sentence by sentence", True)):
        translator = Translator.load(arguments.model, replace(options, sentences=by_sentence))
        outputs = [found.text for found in translator.translate_stream(sources)]
        chrf = CHRF().corpus_score(outputs, [references]).score
        bleu = BLEU().corpus_score(outputs, [references])
        print(f"| {name} | {chrf:.2f} | {bleu.score:.2f} | {bleu.sys_len / bleu.ref_len:.3f} |")


if __name__ == "__main__":
    main()
