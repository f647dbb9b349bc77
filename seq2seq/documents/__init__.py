"""Documents translated as they are: all but their texts stays, byte by byte.

| module | contents |
|---|---|
| `formats` | a file's content to its reader |
| `document` | a text, its marks and escapes, and the slots of a document |
| `translate` | texts to the lines that a model translates, and back |
| `folder` | a folder of documents, brought up to date |
| `projection` | marks taken out of a text, and put into its translation |
| `placeholders` | what stands in strings for something else, and values that are code |
| `spans` `xml` `encodings` | inline code of markup, elements of XML, characters |
| `office` | `.docx`, `.odt` |
| `html` `markdown` `subtitles` `lines` | `.html`, `.md`, `.srt` `.vtt` `.ass`, text |
| `po` `json_messages` `resources` | messages of programs |
| `xliff` `tmx` | files of translators |

A reader knows its format alone: nothing here knows of models but `translate`. Here are the names of
the formats: what a suffix means, before a reader is imported.
"""

from pathlib import PurePath

from seq2seq.errors import UserError

FORMATS = (
    *("arb", "ass", "docx", "html", "json", "md", "odt", "po", "properties", "resx", "srt"),
    *("strings", "stringsdict", "tmx", "ts", "txt", "vtt", "xcstrings", "xliff", "xml"),
)
"""The formats that are read, each named by the suffix of its files, without the dot."""

_SAME = dict.fromkeys(("xlf", "sdlxliff", "mqxliff", "mxliff"), "xliff")
_SAME |= {"htm": "html", "xhtml": "html", "docm": "docx", "dotx": "docx", "ott": "odt"}
_SAME |= {"markdown": "md", "pot": "po", "resw": "resx", "ssa": "ass"}
"""Other suffixes of the same formats."""

SUFFIXES = [f".{suffix}" for suffix in sorted([*FORMATS, *_SAME])]

_UNREAD = "doc epub key odp ods pages pdf pps ppt pptx rtf sgm xls xlsx"
_TABLES = "csv jsonl log ndjson sql tsv"
_SETTINGS = "cfg conf config desktop env ftl hjson ini json5 jsonc lock plist toml yaml yml"
_PROGRAMS = (
    "bash bat c cc cjs cmake cmd cpp css cxx dart fish gradle h hh hpp ipynb java jl js jsx kt less"
    " lua mjs php ps1 py r rb sass scala scss swift tsx vb vbs vue zsh"
)
_MARKUP = "adoc asciidoc bib cls lrc org rst sbv sty sub svg tex textile ttml wiki"
_OTHER = "diff eml ics mbox patch vcf"
_BARE = "dockerfile gemfile jenkinsfile makefile procfile rakefile vagrantfile"
_DOCUMENTS = frozenset(_UNREAD.split())
_NO_LINES = frozenset(" ".join((_TABLES, _SETTINGS, _PROGRAMS, _MARKUP, _OTHER)).split())
"""Text whose lines would be spoilt if they were translated one by one."""


def is_document(name: str) -> bool:
    """Tell whether a file is a document by its name, even one of a format that isn't read."""
    return bool(find_format(name)) or PurePath(name).suffix[1:].lower() in _DOCUMENTS


def named_format(name: str) -> str:
    """Return the format that a file has by its name; "" if its content decides.

    Formats that are known and can't be translated are refused.
    """
    path = PurePath(name)
    suffix = path.suffix[1:].lower()
    unread = suffix in _DOCUMENTS or suffix in _NO_LINES
    if unread or (not suffix and path.name.lower() in _BARE.split()):
        raise UserError(
            f"format is not supported: choose {', '.join(SUFFIXES)}, or text without markup"
        )
    return find_format(name)


def find_format(name: str) -> str:
    """Return the format that a file has by its name; "" if there is none."""
    suffix = PurePath(name).suffix[1:].lower()
    suffix = _SAME.get(suffix, suffix)
    return suffix if suffix in FORMATS else ""
