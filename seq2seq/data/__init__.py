"""A corpus from its files to token ids: read, checked, filtered, encoded and cached.

| module | contents |
|---|---|
| `corpus` | the languages and splits of a corpus, and where each is: files or data sets |
| `pairs` | files of pairs: `.tsv`, `.jsonl`, `.tmx`; pairs held out for validation |
| `checks` | what a model should not learn from |
| `noise` | capitals and typing errors, added to training text |
| `encoding` | text to token ids, in several processes, and for each epoch with noise, BPE-dropout |
| `mixture` | the choice of the pairs that each epoch takes of several corpora |
| `preparation` | all in order, with a cache |

Nothing here knows of models.
"""
