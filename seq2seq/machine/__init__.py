"""What is used of a machine: devices, memory, threads, processes.

| module | contents |
|---|---|
| `resources` | the device and its precision; memory and threads, with other settings than the defaults |
| `processes` | several processes, started by torchrun; and signals |

Nothing here may change what is computed.
"""
