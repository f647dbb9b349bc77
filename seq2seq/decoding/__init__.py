"""Translation as users need it, beside the plain search of the core.

| module | contents |
|---|---|
| `translator` | `Translator`: lines in, translations out |
| `options` | its options |
| `segments` `sentences` | lines divided into the inputs of a model; batches of these |
| `capitals` | text in capitals, read in the case that a vocabulary knows |
| `translation` | the outputs of a line's segments joined, and counts of suspicious ones |
| `engines` | the native search |
| `ensemble` `sampling` `glossary` | several models, drawn outputs, outputs with given terms |
| `alignment` `linking` | word alignments: of lines, and of the pieces that a model reads |
| `attention` `attended` | attention maps and their pictures; what attentions attend to |
| `many` `resume` | large texts: chunks, processes, a killed translation that goes on |

Another engine is a subclass of `seq2seq.translate.Engine`, with its name in `options.ENGINES` and
its branch in `Translator`; CTranslate2's is in `interop`, and is imported when it is asked for.
Nothing here may know of documents, of the server or of how a model was trained.
"""
