"""The configuration of a parallel corpus: its languages, its splits and its filters.

Target languages and tags become control symbols, `>>de<<` and `<bt>`, which stand before a source.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from seq2seq.data.tokenizer import CONTROL_PIECES, TokenizerConfig
from seq2seq.errors import UsageError, UserError, check_number
from seq2seq.settings import digested

LANGUAGE_PIECE = re.compile(">>([^<>]+)<<")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_RESERVED_NAMES = ("train", "valid", "mean")  # the first two are splits, the last two selections
_TAG = re.compile(r"<[A-Za-z][A-Za-z0-9_-]*>")
_MAX_LISTED = 20
_MAX_WEIGHT = 1000  # an epoch is made in memory


@dataclass(kw_only=True)
class SplitConfig:
    """Two files, a file of pairs (compressed or not), or the split of a dataset."""

    source: str | None = digested(None)
    """Text file with one source sentence per line."""

    target: str | None = digested(None)
    """Text file with one target sentence per line; line k belongs to line k of the source."""

    pairs: str | None = digested(None)
    """File with one pair per line, .tsv (source, tab, target) or .jsonl, or a .tmx file."""

    split: str | None = digested(None)
    """Name of a split of the Hugging Face dataset, such as ``validation`` or ``train[:1000]``."""

    target_language: str | None = digested(None)
    """Code of the target language, for a model of several: ``>>de<<`` stands before the source."""

    def __post_init__(self) -> None:
        self.split = self.split or None  # `data.train.split=` on the command line

    @property
    def is_configured(self) -> bool:
        """Whether anything says where the text is."""
        return any((self.source, self.target, self.pairs, self.split))


@dataclass(kw_only=True)
class CorpusConfig(SplitConfig):
    """One of several training corpora."""

    weight: float = digested(1.0)
    """How often an epoch takes each pair that passed the filters; 0.5 is every other one."""

    tag: str | None = digested(None)
    """A piece such as ``<bt>``, which no text contains, to stand before each source."""


@dataclass(kw_only=True)
class FilterConfig:
    """Which training pairs are skipped; lengths are in tokens, the end symbol counted."""

    max_tokens: int = digested(256)
    """The most tokens on either side."""

    max_length_ratio: float = digested(9.0)
    """The largest ratio of the longer side to the shorter."""

    def __post_init__(self) -> None:
        check_number("data.filter.max_tokens", self.max_tokens, at_least=2)
        check_number("data.filter.max_length_ratio", self.max_length_ratio, at_least=1)


@dataclass(kw_only=True)
class DataConfig:
    """A parallel corpus: its languages, its three splits, and how it becomes token ids."""

    name: str = digested("files")
    """Short name of the corpus, for folders and reports."""

    source_language: str = digested("source")
    """Code of the language to translate from; also its key in rows of .jsonl and datasets."""

    target_language: str = digested("target")
    """Code of the language to translate into; also its key in rows of .jsonl and datasets."""

    train: SplitConfig = field(default_factory=SplitConfig)
    """The training split; the tokenizer is learned from it and from ``corpora`` alone."""

    corpora: dict[str, CorpusConfig] = digested({})
    """More training corpora, by name; ``train``, if there is one, has the weight 1 among them."""

    valid: SplitConfig = field(default_factory=SplitConfig)
    """The validation split."""

    valid_from_train: int | None = digested(None)
    """Make `valid` of so many pairs of ``train``, chosen by hashes of their sources: neither they
    nor other pairs with these sources are trained on."""

    valid_sets: dict[str, SplitConfig] = digested({})
    """More validation sets, by name: each is validated and recorded as `valid` is."""

    test: SplitConfig = field(default_factory=SplitConfig)
    """The test split; training never needs it."""

    dataset: str | None = digested(None)
    """Hugging Face dataset: a name on the hub, or a local folder of parquet, json or csv files."""

    dataset_config: str | None = digested(None)
    """Configuration of the dataset, if it has several."""

    dataset_folder: str | None = digested(None)
    """Folder of the dataset that has the files, if it has no configurations."""

    revision: str | None = digested(None)
    """Commit of the dataset; a full hash pins its content."""

    filter: FilterConfig = field(default_factory=FilterConfig)
    """Which training pairs are skipped."""

    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """The options of the vocabulary."""

    def __post_init__(self) -> None:
        check_number("data.valid_from_train", self.valid_from_train, at_least=1)
        for section, names in (("valid_sets", self.valid_sets), ("corpora", self.corpora)):
            for name in names:
                if not _NAME.fullmatch(name) or name in _RESERVED_NAMES:
                    raise UsageError(
                        f"data.{section}.{name}: choose a name of letters, digits, _ and - other"
                        f" than {', '.join(_RESERVED_NAMES)}"
                    )
        for name, corpus in self.corpora.items():
            weight = f"data.corpora.{name}.weight"
            check_number(weight, corpus.weight, above=0, at_most=_MAX_WEIGHT)
            if corpus.tag is not None:
                with prefix_errors(f"data.corpora.{name}.tag"):
                    check_tag(corpus.tag)
        self._check_languages()

    def _check_languages(self) -> None:
        """Check that all splits that a model sees have a target language, or none."""
        names = [*self.training_splits(), *self.validation_splits()]
        codes = {name: self.split_config(name).target_language for name in names}
        for name, code in codes.items():
            if code is not None:
                with prefix_errors(f"data.{name}.target_language"):
                    language_piece(code)
        given = [name for name, code in codes.items() if code is not None]
        if given and len(given) < len(codes):
            missing = next(name for name, code in codes.items() if code is None)
            raise UsageError(
                f"data.{missing}: has no target_language, but data.{given[0]} has: give"
                f" data.{missing}.target_language"
            )

    def training_splits(self) -> list[str]:
        """Return the names of `train` and the further corpora, in the order of encoding."""
        corpora = [f"corpora.{name}" for name in sorted(self.corpora)]
        return ["train", *corpora] if self.train.is_configured or not corpora else corpora

    def validation_splits(self) -> list[str]:
        """Return the names of `valid` and the further validation sets."""
        return ["valid", *(f"valid_sets.{name}" for name in self.valid_sets)]

    def split_config(self, name: str) -> SplitConfig:
        """Return the configuration of a split, named by its key: `train` or `corpora.web`."""
        section, _, member = name.partition(".")
        found: SplitConfig | Mapping[str, SplitConfig] = getattr(self, section)
        return found if isinstance(found, SplitConfig) else found[member]


@contextmanager
def prefix_errors(key: str) -> Iterator[None]:
    """Put a key before the message of a user error."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{key}: {error}") from None


def check_tag(tag: str) -> None:
    """Check that a tag is a word in angle brackets, and not another control symbol."""
    if not _TAG.fullmatch(tag) or tag in CONTROL_PIECES.values():
        others = ", ".join(CONTROL_PIECES.values())
        raise UsageError(f"{tag!r} is not a tag: use a word such as <bt>, other than {others}")


UNNAMED = ("", DataConfig.source_language, DataConfig.target_language)
"""What a model has for the code of a language that it doesn't name."""


def language_piece(code: str) -> str:
    """Return the piece that marks a source with its target language."""
    if not _NAME.fullmatch(code):
        raise UsageError(f"{code!r} is not a language code: use letters, digits, _ and -")
    return f">>{code}<<"


def target_languages(controls: Iterable[str]) -> list[str]:
    """Return the codes of the target languages among control symbols."""
    return [found[1] for piece in controls if (found := LANGUAGE_PIECE.fullmatch(piece))]


def control_ids(
    controls: Mapping[str, int], to: str | None, tag: str | None, only_language: str | None = None
) -> list[int]:
    """Return the ids before a source; a model that knows only one language needs no `to`.

    A model without symbols of languages translates into its `only_language`, which `to` may name
    where the model doesn't.
    """
    languages = target_languages(controls)
    if not languages and only_language in (to, *UNNAMED):
        to = None
    tags = [piece for piece in controls if not LANGUAGE_PIECE.fullmatch(piece)]
    if to is None and len(languages) == 1:
        to = languages[0]  # which stands before each source that the model has seen
    if to is None and languages:
        raise UserError(
            f"the model translates into several languages ({_list(languages)}): choose one with"
            " --to or target_language"
        )
    if to is not None and to not in languages:
        only = not languages and only_language
        known = f"translates into {only} only" if only else f"knows {_list(languages)}"
        raise UserError(f"no target language {to!r}: the model {known}")
    if tag is not None and tag not in tags:
        raise UserError(f"no tag {tag!r}: the model knows {_list(tags)}")
    pieces = ([] if to is None else [f">>{to}<<"]) + ([] if tag is None else [tag])
    return [controls[piece] for piece in pieces]


def _list(names: Sequence[str]) -> str:
    more = ["..."] if len(names) > _MAX_LISTED else []
    return ", ".join([*names[:_MAX_LISTED], *more]) or "none, so remove it"
