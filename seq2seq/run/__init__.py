"""A run from its configuration to its last model: what a training needs so that nothing is lost.

| module | contents |
|---|---|
| `config` | all settings of a run |
| `validation` | loss, BLEU and chrF of the validation sets |
| `records` | progress bar, `metrics.jsonl`, TensorBoard events, log |
| `folder` | where the files and models of a run are |
| `sessions` | by which program, when and where a run was started and resumed |
| `checkpoint` | checkpoints, who may write to a run's folder, what resuming needs |
| `training` | one run from start to end |

Nothing here may change what a step computes: that is the core's and the forms'.
"""
