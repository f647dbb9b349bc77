"""Models of other programs: import from Marian, export to Marian and CTranslate2.

| module | contents |
|---|---|
| `marian` | the names of Marian's settings and weights |
| `marian_folder` `marian_import` | a model of Marian's read, and made one of ours |
| `transformers_folder` | Hugging Face's folders of Marian's models |
| `pair_tokenizer` | the vocabularies of imported models |
| `export` | our models for Marian and CTranslate2 |
| `ctranslate2_engine` | CTranslate2 as an engine of `seq2seq.Translator` |

Nothing that is read is executed.
"""
