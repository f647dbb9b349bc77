"""A run from its configuration to its last model: what a training needs so that nothing is lost.

| module | contents |
|---|---|
| `config` | all settings of a run |
| `checks` | what a model should not learn from |
| `encoding` | text to token ids, in several processes, and again for each epoch with BPE-dropout |
| `preparation` | from text to a corpus ready for training, with a cache |
| `validation` | loss, BLEU and chrF of the validation sets |
| `records` | progress bar, `metrics.jsonl`, TensorBoard events, learning curve, log |
| `folder` | a run on disk: its checkpoints, who may write to it, what resuming needs |
| `training` | one run from start to end |

Nothing here may change what a step computes: that is the core's and the forms'.
"""
