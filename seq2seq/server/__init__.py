"""A server of translations, with LibreTranslate's interface and a page.

| module | contents |
|---|---|
| `app` | the routes |
| `requests` | the fields of a request and their limits |
| `service` | the models, and the work that clients give them |
| `documents` | uploaded documents, each read in a process of its own |
| `batcher` | work of many clients in common batches |
| `guard` | socket, signals, and what every request passes |

Only `app` and `guard` know of HTTP, and nothing here knows of files on disk.
"""
