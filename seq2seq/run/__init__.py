"""A run from its configuration to its last model: whatever keeps its work from being lost.

| module | contents |
|---|---|
| `config` | all settings of a run |
| `validation` | loss, BLEU and chrF of the validation sets |
| `records` | progress bar, `metrics.jsonl`, TensorBoard events, log |
| `folder` | where the files and models of a run are |
| `data_record` | `data.json`: what the report says of the data |
| `sessions` | by which program, when and where a run was started and resumed |
| `checkpoint` | checkpoints: saved, restored, found |
| `resume` | the settings with which a run may go on from one |
| `lock` | who may write to a run's folder |
| `start` | the data, the initial model and the trainer of a run |
| `training` | one run from start to end |

Nothing here may change what a step computes: that is the updater's.
"""
