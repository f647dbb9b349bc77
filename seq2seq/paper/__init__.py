"""The statements of the paper, beside what the program does.

| file | contents |
|---|---|
| `README.md` | the paper, equation by equation, in plain NumPy and in the program |
| `FIDELITY.md` | the details in which implementations differ, each with its code and its test |
| `details` | in which of them a model or a configuration is not the paper's |
| `table2` | the figures of Table 2: the paper's own BLEU, the operations of an update |

No other file of the package needs it, but for the command line and the report.
"""
