"""The arguments of each command and its examples; what runs it is imported only to run it."""

from argparse import ArgumentError, ArgumentParser, Namespace, _ActionsContainer, _StoreAction
from collections.abc import Mapping
from typing import Any

TRAIN_EXAMPLES = """\
examples:
  seq2seq train model=tiny schedule=demo run_dir=runs/demo     the embedded corpus, in minutes
  seq2seq train data=files data.train.source=train.en data.train.target=train.de \\
                data.valid.source=valid.en data.valid.target=valid.de \\
                data.source_language=en data.target_language=de \\
                model=small schedule=small_data run_dir=runs/mine
"""
TRAIN_HELP = f"""\
usage: seq2seq train [OVERRIDE ...] [--multirun] [--cfg job]

Train a model from parallel text; a Hydra application: every option is KEY=VALUE.

  data=everyday|files|multi30k|iwslt14_de_en|iwslt2017_de_en|wmt14_en_de|wmt14_en_fr
  model=tiny|small|base|big|modern_small|modern_base
                                        the size of the model; default base
  schedule=paper|small_data|demo        step size, learning rate, limits; default paper for millions
                                        of pairs; small_data for 10,000 to 500,000 pairs; demo
                                        ends after a few minutes
  variant=paper|tensor2tensor           where the paper and tensor2tensor differ; default paper
  experiment=NAME                       a whole experiment, such as table3/B_dk16
  experiment=finetune init_from=MODEL   start from a trained or imported model
  run_dir=FOLDER  resume=true           where to write; continue where it stopped
  training.max_steps=N  training.max_minutes=M  training.patience=K

  --cfg job        print the whole configuration, every key that can be overridden
  --multirun       run each combination of comma-separated values
  --debug          show a traceback on errors
  --hydra-help     Hydra's own flags

{TRAIN_EXAMPLES}"""
EXAMPLES = {
    "translate": """\
examples:
  echo "A dog runs in the snow." | seq2seq translate --model runs/captions
  seq2seq translate --model runs/captions -i test.en --sample --top-k 20 --temperature 0.7
  seq2seq translate --model runs/captions -i film.en.srt -o film.de.srt
  seq2seq translate --model runs/captions --model runs/second -i test.en -o test.out.de
""",
    "serve": """\
examples:
  seq2seq serve --model runs/captions
  curl -d q="A dog runs." -d source=en -d target=de http://127.0.0.1:5000/translate
""",
    "score": """\
examples:
  seq2seq score -i test.out.de -r test.de
  seq2seq score -i test.out.de -r test.de --paper --compare other.out.de
  seq2seq score --model runs/captions -s test.en -r test.de
""",
    "rescore": """\
examples:
  seq2seq rescore --model runs/captions -s test.en -i test.de
  seq2seq rescore --model runs/captions -s test.en -i test.out.de --per-line > log_probabilities.tsv
""",
    "runs": """\
A line for each run, the best first: the settings that are not the same in all, what it was trained
on, and the scores of the model that it ended with; below them, versions, machines and signatures.

examples:
  seq2seq runs runs/multirun-2026-11-25_10-00-00
  seq2seq runs runs --seeds --format latex > table.tex
""",
    "report": """\
The page has no scripts and no links. Training writes it too, as report.html in the run folder.

examples:
  seq2seq report runs/captions
  seq2seq report runs/captions --test test.en test.de -o captions.html
  seq2seq report runs/captions --json > captions.json
""",
    "attention": """\
example:
  seq2seq attention --model runs/captions --source "A dog runs in the snow." -o attention.svg
""",
    "fidelity": """\
examples:
  seq2seq fidelity                                the base model and the paper's recipe
  seq2seq fidelity experiment=paper/big_en_de variant=tensor2tensor
  seq2seq fidelity --model runs/captions          a trained model, or an imported one
""",
    "export": """\
examples:
  seq2seq export --model runs/captions --to marian -o captions-marian
  seq2seq export --model runs/captions --to onnx --precision int8 -o captions-onnx
  seq2seq export --model runs/captions --to web -o captions-page
""",
    "import": """\
FOLDER is one of Hugging Face's, with config.json, model.safetensors or pytorch_model.bin,
source.spm, target.spm and vocab.json; or Marian's own, with an .npz, a vocabulary in YAML,
source.spm and target.spm. Nothing in it is executed.

examples:
  seq2seq import opus-mt-en-mg -o runs/en-mg
  seq2seq translate --model runs/en-mg < test.en > test.out.mg
""",
    "average": """\
example:
  seq2seq average --model runs/captions --last 5 -o runs/captions/averaged
""",
}
"""The end of each command's help."""

_KINDS = {"int": int, "float": float, "": str}


class _StoreOnce(_StoreAction):
    """Stores the value of an option, and refuses a second one, which would replace it."""

    _given: Namespace | None = None
    """The arguments that have a value already."""

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: Any, option: str | None = None
    ) -> None:
        if self._given is namespace:
            raise ArgumentError(self, "is given twice; give it once")
        self._given = namespace
        super().__call__(parser, namespace, values, option)


def add_options(
    parser: _ActionsContainer, options: Mapping[str, str], *, required: bool = False
) -> None:
    """Add options from a table of forms, such as `-o --output FILE`, and what they do.

    A value is a text unless its form says `N:int`; `A|B` are choices, and without a value it is a
    flag. ` ...` is for a list whose option may be repeated; any other is refused if it is.
    """
    for form, text in options.items():
        *names, value = form.removesuffix(" ...").split()
        if value.startswith("--"):
            parser.add_argument(*names, value, action="store_true", help=text)
            continue
        metavar, _, kind = value.partition(":")
        choices = metavar.split("|") if "|" in metavar else None
        parser.add_argument(
            *names,
            action="append" if form.endswith(" ...") else _StoreOnce,
            default=[] if form.endswith(" ...") else None,
            metavar=None if choices else metavar,
            choices=choices,
            type=_KINDS[kind],
            required=required,
            help=text,
        )


_CLASS = {
    "--model-class NAME ...": "class of a model that is not the paper's, such as"
    " my_module.MyTransformer, imported from the current folder or an installed package",
}
_MODELS = {"--model RUN ...": "run or model folder; repeat it for an ensemble"}
_ENGINE = {
    "--engine ENGINE": "native (default), or ctranslate2 (pip install ctranslate2): often faster,"
    " also with --precision int8, but some outputs differ",
}
_DEVICE = {
    "--device DEVICE": "auto, cpu, cuda, ... (default auto)",
    "--precision PRECISION": "fp32 (default on a CPU, where no output then depends on the"
    " batch), bf16, or auto (default on a GPU): bf16 where it is faster, else fp32",
    "--forms plain|fast": "compute by the plain code of the core, or by fast forms of it (default"
    " fast)",
}
_CONTROLS = {
    "--to CODE": "target language, of a model that translates into several or names none",
    "--tag PIECE": "tag before each source, as in training, such as '<bt>'",
}


def add_beam_options(parser: _ActionsContainer) -> None:
    """Add the options of beam search, and of a file of terms."""
    parser.add_argument(
        "--beam",
        action=_StoreOnce,
        dest="beam_size",
        type=int,
        metavar="N",
        help="hypotheses kept at each step; 1 is greedy search (default 4)",
    )
    options = {
        "--alpha ALPHA:float": "exponent of the length penalty (default 0.6)",
        "--glossary FILE": "terms and the translations to use: on each line a term, a tab, and its"
        " translation",
    }
    add_options(parser, options)


def add_search_options(parser: _ActionsContainer) -> None:
    """Add the options of commands that translate files; one that is not given is None.

    Each is named after the field of `TranslationOptions` or of its search that it sets.
    """
    add_beam_options(parser)
    options = {
        "--sentences": "translate the sentences of a line one by one, keeping the spacing between"
        " them",
        "--source-language CODE": "language of the text, for documents and abbreviations, such as"
        " en (default: the model's)",
    }
    add_options(parser, _CONTROLS | options | _ENGINE | _DEVICE)
    parser.set_defaults(sentences=None)


def add_sampling_options(parser: ArgumentParser) -> None:
    """Add the options of sampling."""
    options = {
        "--sample": "draw translations by their probability",
        "--temperature T:float": "below 1 sharpens, above 1 flattens",
        "--top-k K:int": "draw from the K most probable tokens",
        "--top-p P:float": "draw from the smallest set of tokens with probability P",
        "--seed SEED:int": "a line's samples depend only on the seed and the line (default 1)",
    }
    add_options(parser.add_argument_group("sampling instead of beam search"), options)


def _translate(parser: ArgumentParser) -> None:
    add_options(parser, _MODELS, required=True)
    add_options(parser, _CLASS)
    files = {
        "-i --input FILE": "text to translate, a document (.srt, .html, .po, .docx, ...) or a"
        " folder of them; also .gz, .xz, .zst, .bz2 (default: stdin)",
        "--format FORMAT": "format of a document whose name doesn't say it, such as srt; txt is"
        " lines of text",
        "--fuzzy": "translate the fuzzy entries of a .po file, too",
        "-o --output FILE": "translations, also compressed; of a folder, the folder to make;"
        " FILE.*.part until complete (default: stdout)",
        "--resume": "continue what this command, also with --resume, has left in FILE.resume.part;"
        " bring a folder of documents up to date",
        "--skip PATTERN ...": "files and folders of a folder to copy, not to translate, such as"
        " '*.pdf'; may be repeated",
    }
    add_options(parser, files)
    parser.set_defaults(input="-", output="-")
    add_search_options(parser)
    lines = {
        "--nbest K:int": "write K translations per line: number, text and score, separated by tabs;"
        " in the text, tabs become spaces",
        "--alignments FILE": "write which words of source and translation belong together, such as"
        " 0-0 1-2",
        "--scores": "write the score and a tab before each translation",
        "--batch-tokens N:int": "source tokens of a batch, padding counted (default 2048, or 4096"
        " with ctranslate2; 16384 on a GPU)",
        "--workers N:int": "batches translated in parallel (default: one per core; one on a GPU)",
    }
    add_options(parser, lines)
    add_sampling_options(parser)


def _serve(parser: ArgumentParser) -> None:
    model = {"--model RUN ...": "run or model folder; may be repeated, for other languages"}
    add_options(parser, model, required=True)
    add_options(parser, _CLASS)
    options = {
        "--languages SOURCE-TARGET ...": "languages of a model, such as en-de, or en-de,fr if it"
        " has several target languages; one for each --model (default: the models')",
        "--host HOST": "default 127.0.0.1, this machine",
        "--port PORT:int": "default 5000; 0 takes a free one",
    }
    add_options(parser, options)
    add_beam_options(parser)
    parser.add_argument(
        "--no-sentences",
        dest="sentences",
        action="store_false",
        help="give the model each line as a whole, not sentence by sentence",
    )
    add_options(parser, _ENGINE | _DEVICE)
    parser.set_defaults(host="127.0.0.1", port=5000)
    limits = {
        "--char-limit N:int": "maximum characters of a request, 20 times as many of a file (default"
        " 5000)",
        "--batch-limit N:int": "maximum texts of a request (default 100)",
        "--queue-tokens N:int": "maximum tokens queued or being translated (default 100000)",
        "--timeout S:int": "seconds for an answer (default 60)",
        "--grace S:int": "seconds to finish after SIGTERM (default 30)",
        "--cache N:int": "sentences whose translations are kept (default 1000)",
    }
    add_options(parser.add_argument_group("limits"), limits)
    access = {
        "--api-key-file FILE": "keys, one per line, with names after #; a request must give one",
        "--allow-host NAME ...": "answer requests for this host name too; may be repeated",
        "--allow-origin URL ...": "an origin whose pages may send requests, such as"
        " moz-extension://*; * for all; may be repeated",
        "--no-page": "show no page, only answer programs",
    }
    add_options(parser.add_argument_group("access"), access)


def _score(parser: ArgumentParser) -> None:
    translations = parser.add_argument_group("translations")
    systems = {
        "-i --input FILE": "translations; - is stdin",
        "--model RUN ...": "translate with this model instead; repeat it for an ensemble",
    }
    add_options(translations.add_mutually_exclusive_group(required=True), systems)
    add_options(translations, {"-s --source FILE": "text for the model to translate"} | _CLASS)
    add_search_options(translations)

    reference = {"-r --reference FILE ...": "references; repeat it for several references per line"}
    add_options(parser, reference, required=True)

    metrics = parser.add_argument_group("metrics")
    scores = {
        "--tokenize T": "BLEU's tokenizer (default: with --model, that of its validations;"
        " otherwise 13a)",
        "--lowercase": "ignore case",
        "--paper": "add the BLEU of the paper's tables, for raw text",
        "--language CODE": "target language for --paper (default de)",
    }
    add_options(metrics, scores)
    metrics.add_argument(
        "--compare",
        action="extend",
        nargs="+",
        default=[],
        metavar="OTHER",
        help="test whether other systems' translations differ significantly",
    )
    add_options(metrics, {"--json": "write one JSON object"})


def _rescore(parser: ArgumentParser) -> None:
    texts = {
        "-s --source FILE": "sources; - is stdin",
        "-i --input FILE": "their translations; - is stdin",
    }
    add_options(parser, _MODELS | texts, required=True)
    outputs = {
        "--per-line": "write each line's log-probability and number of tokens, separated by a tab",
        "--json": "write one JSON object",
    }
    add_options(parser, outputs | _CLASS | _CONTROLS | _DEVICE)


def _runs(parser: ArgumentParser) -> None:
    options = {
        "--seeds": "a line for the runs that differ in their seed alone: mean and range",
        "--format text|markdown|latex|json": "default text; latex is a table of booktabs",
    }
    add_options(parser, options)
    parser.set_defaults(format="text")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders of runs")


def _report(parser: ArgumentParser) -> None:
    parser.allow_abbrev = False  # --model would be --model-class
    parser.add_argument("run_dir", metavar="RUN", help="run folder")
    parser.add_argument(
        "--test",
        nargs=2,
        action="append",
        default=[],
        metavar=("SOURCE", "REFERENCE"),
        help="files to translate and score, instead of the run's own sets; may be repeated",
    )
    options = {
        "--to LANG": "target language of --test, if the model has several",
        "--device DEVICE": "auto, cpu, cuda, ... (default auto)",
    }
    add_options(parser, options | _CLASS)
    parser.set_defaults(device="auto")
    outputs = {
        "-o --output FILE": "the page (default: report.html in the run folder)",
        "--json": "write the same numbers to stdout",
    }
    add_options(parser.add_mutually_exclusive_group(), outputs)


def _attention(parser: ArgumentParser) -> None:
    inputs = {"--model RUN": "run or model folder", "--source TEXT": "text to translate"}
    add_options(parser, inputs, required=True)
    options = {
        "--target TEXT": "its translation (default: the model's)",
        "--kind encoder|decoder|cross": "source to source, target to target, or target to source"
        " (default cross)",
        "--layer N": "counted from 1, or all (default: the last)",
        "--head N": "counted from 1, or all (default all)",
    }
    add_options(parser, options | _CLASS | _CONTROLS)
    parser.set_defaults(kind="cross", head="all")
    outputs = {
        "-o --output FILE": "a picture: .svg, .png or .pdf",
        "--json": "write pieces and weights to stdout",
    }
    add_options(parser.add_mutually_exclusive_group(required=True), outputs)


def _fidelity(parser: ArgumentParser) -> None:
    options = {
        "--model RUN": "run folder of a trained model",
        "--json": "a list of objects, not a table",
    }
    add_options(parser, options | _CLASS)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="as for seq2seq train, but by default data=wmt14_en_de",
    )


def _export(parser: ArgumentParser) -> None:
    options = {
        "--model RUN": "run or model folder",
        "--to marian|ctranslate2|onnx|web": "Hugging Face's MarianMTModel, CTranslate2 (pip install"
        " ctranslate2), ONNX Runtime and transformers.js (pip install onnx), or a page that"
        " translates in the browser (pip install onnx)",
        "-o --output FOLDER": "a new folder",
    }
    add_options(parser, options, required=True)
    more = {
        "--precision fp32|int8": "of the weights, with --to onnx (default fp32) or web (default"
        " int8, a quarter of the size)",
        "--library FOLDER": "with --to web: copy the libraries from this node_modules, so that"
        " nothing comes from another host (default: the page loads them from a CDN)",
    }
    add_options(parser, more)


def _import(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="folder of the Marian model")
    add_options(parser, {"-o --output MODEL": "a new folder"}, required=True)


def _average(parser: ArgumentParser) -> None:
    add_options(parser, {"--model RUN": "run folder"}, required=True)
    options = {
        "--last K:int": "number of newest checkpoints (default 5)",
        "-o --output FOLDER": "new, or a model to replace (default RUN/averaged, which a run that"
        " goes on replaces)",
    }
    add_options(parser, options | _CLASS)
    parser.set_defaults(last=5)


def option(field: str) -> str:
    """Return the option that sets a field."""
    return "--beam" if field == "beam_size" else "--" + field.replace("_", "-")


COMMANDS = {
    "translate": ("translate lines of text with a trained model", _translate),
    "serve": ("serve translations to browsers and programs (LibreTranslate's interface)", _serve),
    "score": ("score translations with sacreBLEU and with the paper's BLEU", _score),
    "rescore": ("compute the log-probability of given translations under a model", _rescore),
    "runs": ("list what differs between runs, and how they validated", _runs),
    "report": ("show what a run did on one page: scores, curves, samples", _report),
    "attention": ("draw a model's attention, as in the paper's Figures 3 to 5", _attention),
    "fidelity": ("compare a model with the paper, detail by detail", _fidelity),
    "export": ("write a trained model for Marian, CTranslate2, ONNX or a browser", _export),
    "import": (
        "convert a model trained with Marian, such as OPUS-MT's, to a model folder",
        _import,
    ),
    "average": ("average the weights of several checkpoints", _average),
}
"""A summary of each command, and the function that adds its arguments; `train` takes Hydra's."""
