"""Write the everyday corpus: English-German sentence pairs from our own lexicon and grammar."""

from __future__ import annotations

import argparse
import random
import sys
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import combined
import descriptions
import modifiers
import nouns
import places
import questions
import relatives
import statements
import subordinate
import verbs
from modifiers import ADJECTIVES
from phrases import Fact
from sentence import Sentence
from speaker import Speaker

SEED = 2017
SIZES = {"train": 20_000, "valid": 500, "test": 500}
UNSEEN = 150
SHORTEST, LONGEST = 3, 25
# One lemma pair in this many is held out of training and validation.
HELD_OUT_IN = 29
# A held-out pair is tested only where training has each of its words at least this often.
OFTEN = 20
DEFAULT_OUTPUT = Path(__file__).resolve().parents[1]
PATTERNS = (
    *statements.PATTERNS,
    *questions.PATTERNS,
    *descriptions.PATTERNS,
    *subordinate.PATTERNS,
    *relatives.PATTERNS,
    *combined.PATTERNS,
)


def held_out(fact: Fact) -> bool:
    """Whether a lemma pair is kept from training, decided by a checksum of the pair alone."""
    return zlib.crc32(" ".join(fact).encode()) % HELD_OUT_IN == 0


def held_out_facts(sentence: Sentence) -> list[Fact]:
    """The held-out pairs of a sentence."""
    return [fact for fact in sentence.facts if held_out(fact)]


@dataclass
class Corpus:
    """The splits as they grow, with every line used until now on either side."""

    speaker: Speaker
    splits: dict[str, list[Sentence]] = field(default_factory=dict)
    german_of: dict[str, str] = field(default_factory=dict)
    german_lines: dict[str, None] = field(default_factory=dict)
    words: Counter[str] = field(default_factory=Counter)

    def draw(self) -> Sentence:
        """A new sentence of some pattern, of moderate length and unlike all before it.

        Raises:
            ValueError: if the grammar gives an English sentence a second translation.
        """
        functions = [pattern for pattern, _ in PATTERNS]
        weights = [weight for _, weight in PATTERNS]
        while True:
            pattern = self.speaker.rng.choices(functions, weights)[0]
            sentence = replace(pattern(self.speaker), pattern=pattern.__name__)
            known = self.german_of.setdefault(sentence.english, sentence.german)
            if known != sentence.german:
                raise ValueError(f"two translations of {sentence.english!r}")
            fits = SHORTEST <= len(sentence.english.split()) <= LONGEST
            if fits and sentence.german not in self.german_lines:
                return sentence

    def keep(self, split: str, sentence: Sentence) -> None:
        """Add a sentence to a split, and count the words of the training split."""
        self.german_lines[sentence.german] = None
        self.splits.setdefault(split, []).append(sentence)
        if split == "train":
            self.words.update(word for _, *pair in sentence.facts for word in pair)

    def fill(self, split: str, size: int) -> None:
        """Add sentences without held-out pairs."""
        while len(self.splits.get(split, ())) < size:
            sentence = self.draw()
            if not held_out_facts(sentence):
                self.keep(split, sentence)

    def fill_unseen(self, split: str, size: int) -> None:
        """Add sentences with held-out pairs whose words training knows well."""
        while len(self.splits.get(split, ())) < size:
            sentence = self.draw()
            facts = held_out_facts(sentence)
            if facts and all(self.words[word] >= OFTEN for _, *pair in facts for word in pair):
                self.keep(split, sentence)


def build() -> dict[str, list[Sentence]]:
    """All splits of the corpus; the unseen split is also inside the test split."""
    corpus = Corpus(Speaker(random.Random(SEED)))
    corpus.fill("train", SIZES["train"])
    corpus.fill("valid", SIZES["valid"])
    corpus.fill("test", SIZES["test"] - UNSEEN)
    corpus.fill_unseen("unseen", UNSEEN)
    test = corpus.splits["test"] + corpus.splits["unseen"]
    corpus.speaker.rng.shuffle(test)
    return {
        "train": corpus.splits["train"],
        "valid": corpus.splits["valid"],
        "test": test,
        "test_unseen": [sentence for sentence in test if held_out_facts(sentence)],
    }


def possible_sentences() -> int:
    """A lower bound: subjects x objects x times of the plain transitive past and future alone."""
    times = [row for group in modifiers.dated_times() for row in group]
    moments = 2 * len(times) + len(modifiers.past_times()) + len(modifiers.future_times())
    suited = {
        noun: 1 + sum(any(kind in nouns.names(noun) for kind in a.kinds) for a in ADJECTIVES)
        for noun in nouns.NOUNS
    }
    total = 0
    for verb in verbs.ACCUSATIVE:
        people = [n for n in nouns.of_kinds(verb.subjects) if "family" not in n.kinds]
        subjects = 6 + len(modifiers.MEN) + len(modifiers.WOMEN) + sum(suited[n] for n in people)
        things = [n for n in nouns.of_kinds(verb.objects) if "person" not in n.kinds]
        # "the" and one more determiner for every adjective that suits, or none.
        objects = sum(2 * suited[noun] for noun in things)
        if "state" not in verb.marks:
            total += subjects * objects * moments
    return total


def lemmas() -> int:
    """The words of the lexicon that inflect, with the adverbs, names and numbers."""
    verbs_of = len({(verb.lemma, verb.german) for verb in verbs.ALL})
    open_classes = len(nouns.NOUNS) + len(places.PLACES) + verbs_of + len(ADJECTIVES)
    names = len(modifiers.MEN + modifiers.WOMEN + modifiers.SURNAMES) + len(places.TOWNS)
    calendar = len(modifiers.WEEKDAYS) + len(modifiers.MONTHS) + len(modifiers.SEASONS)
    return open_classes + names + calendar + len(modifiers.HOURS) + len(modifiers.FREQUENCY)


def readme(splits: dict[str, list[Sentence]]) -> str:
    """The README.md beside the files."""
    rows = []
    for name, sentences in splits.items():
        english = sum(len(sentence.english.split()) for sentence in sentences)
        german = sum(len(sentence.german.split()) for sentence in sentences)
        rows.append(f"| `{name}` | {len(sentences):,} | {english:,} | {german:,} |")
    table = "\n".join(rows)
    return README.format(
        table=table,
        patterns=len(PATTERNS),
        lemmas=lemmas(),
        possible=possible_sentences(),
        unseen=len(splits["test_unseen"]),
        held_out_in=HELD_OUT_IN,
        often=OFTEN,
    )


README = """# Everyday sentences, English-German

Sentences about family, food, work, travel, school, animals, the house and the city, for the
quickstart and the tests. A generator builds each sentence as one structure, from a lexicon and a
grammar of its own, and realizes it in both languages, so every pair is an exact translation. No
English sentence has two translations.

| split | pairs | English words | German words |
| --- | ---: | ---: | ---: |
{table}

- {patterns} sentence patterns over {lemmas} lemmas. The plain transitive sentence alone has more
  than {possible:,} forms (`possible_sentences` multiplies the choices of its slots).
- No line, English or German, occurs twice in `train`, `valid` and `test` together.
- One lemma pair in {held_out_in} (adjective and noun, verb and object, subject and verb) is held
  out: it never occurs in `train` or `valid`, although each of its words occurs in at least
  {often} other pairs of `train`. `test_unseen` holds the {unseen} lines of `test` with such a pair.
- "You" is "du", except after "Mr." or "Mrs." in address ("Sie") and after "Children" ("ihr").
  The simple past is the German perfect, except for a few verbs (sein, haben, kennen, mögen,
  wissen, modal verbs). The progressive adds "gerade". "It" and "they" agree with the noun
  they stand for.

## The generator

`python data/everyday/generator/generate.py` writes all files of this folder, this one included;
`--check` compares them with a fresh run instead. The generator needs Python alone, and is not part
of the installed package.

| file | content |
| --- | --- |
| `words.py` `nouns.py` `verbs.py` `places.py` `modifiers.py` | the lexicon, and how to read it |
| `english.py` `german.py` | inflection |
| `phrases.py` `clauses.py` `sentence.py` | one structure, realized in both languages |
| `speaker.py` | chooses phrases and clauses that make sense together |
| `statements.py` `questions.py` `descriptions.py` `subordinate.py` `relatives.py` `combined.py` | \
the sentence patterns |
| `generate.py` | draws the splits and writes them |

License: Apache-2.0, like the project.
"""


def render() -> dict[str, str]:
    """The content of every file by name."""
    splits = build()
    files = {}
    for name, sentences in splits.items():
        files[f"{name}.en"] = "".join(f"{sentence.english}\n" for sentence in sentences)
        files[f"{name}.de"] = "".join(f"{sentence.german}\n" for sentence in sentences)
    files["README.md"] = readme(splits)
    return files


def differing(output: Path, files: dict[str, str]) -> list[str]:
    """The names of the files that are missing on disk or have another content."""
    return [
        name
        for name, content in files.items()
        if not (output / name).is_file() or (output / name).read_bytes() != content.encode()
    ]


def main() -> int:
    """Write the corpus, or check that it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    arguments = parser.parse_args()
    files = render()
    if arguments.check:
        stale = differing(arguments.output, files)
        if stale:
            print(f"{arguments.output} is out of date: {', '.join(stale)}", file=sys.stderr)
            return 1
        return 0
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (arguments.output / name).write_bytes(content.encode())
    print(f"{len(PATTERNS)} patterns, more than {possible_sentences():,} possible sentences")
    return 0


if __name__ == "__main__":
    sys.exit(main())
