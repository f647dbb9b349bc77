"""Documents translated as they are: all but their texts stays, byte by byte.

| module | contents |
|---|---|
| `names` `formats` | the formats by their names; a file's content to its reader |
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

A reader knows its format alone: nothing here knows of models but `translate`.
"""
