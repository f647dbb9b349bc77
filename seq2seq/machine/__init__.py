"""What a run uses of its machine: memory, threads and records.

| module | contents |
|---|---|
| `process` | memory and threads of this process, with other settings than the defaults |
| `records` | progress bar, `metrics.jsonl`, TensorBoard events, learning curve, log |

Nothing here may change what is computed.
"""
