"""The machine that a command runs on: devices, memory, threads, processes.

| module | contents |
|---|---|
| `resources` | the device and its precision; memory and threads, not as by default |
| `processes` | several processes, started by torchrun; and signals |

Nothing here knows of models.
"""
