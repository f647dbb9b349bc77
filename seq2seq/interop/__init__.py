"""Models of other programs: import from Marian, export to Marian, CTranslate2, ONNX and browsers.

| module | contents |
|---|---|
| `marian` | the names of Marian's settings and weights |
| `marian_folder` `marian_import` | a model of Marian's read, and made one of ours |
| `transformers_folder` | Hugging Face's folders of Marian's models |
| `pair_tokenizer` | the vocabularies of imported models |
| `export` | our models for Marian and CTranslate2 |
| `onnx_graph` `onnx_model` | ONNX's nodes, and the model's two graphs of them |
| `tokenizer_json` `onnx_folder` | the tokenizer for Hugging Face; the whole folder |
| `web` `javascript` | a page that translates in the browser; Python's patterns for it |
| `ctranslate2_engine` | CTranslate2 as an engine of `seq2seq.Translator` |

Nothing that is read is executed.
"""
