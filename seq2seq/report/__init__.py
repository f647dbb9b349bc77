"""The report of a run: one page, and the same numbers as JSON.

| module | contents |
|---|---|
| `run_report` | the numbers |
| `sets` `significance` | test sets, two systems compared, paired tests |
| `page` | the page, with `templates/` |
| `card` | the card of a model |
| `record` | scores of a run, and its settings as a command |
| `overview` | several runs in one table |

It translates, but changes no model and no run.
"""
