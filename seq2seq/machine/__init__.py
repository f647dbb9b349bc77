"""What is used of a machine: memory, threads, processes.

| module | contents |
|---|---|
| `process` | memory and threads of this process, with other settings than the defaults |
| `processes` | several processes, started by torchrun; and signals |

Nothing here may change what is computed.
"""
