"""Counts for monitoring, in the text format of Prometheus (version 0.0.4).

No label holds a text, an address or a key.
"""

from collections import defaultdict

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SENTENCES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

Labels = tuple[tuple[str, str], ...]


class Counter:
    """A count that only grows, one for each combination of labels."""

    def __init__(self, name: str, summary: str) -> None:
        self.name, self.summary = name, summary
        self._values: dict[Labels, int] = defaultdict(int)

    def add(self, amount: int = 1, **labels: str) -> None:
        """Add to the count of these labels."""
        self._values[tuple(sorted(labels.items()))] += amount

    def lines(self) -> list[str]:
        """Return the lines of the exposition."""
        return [
            *_head(self.name, self.summary, "counter"),
            *(f"{self.name}{_format(key)} {value}" for key, value in self._values.items()),
        ]


class Histogram:
    """Counts of observations up to each of some bounds."""

    def __init__(self, name: str, summary: str, bounds: tuple[float, ...]) -> None:
        self.name, self.summary, self.bounds = name, summary, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[sum(bound < value for bound in self.bounds)] += 1
        self._sum += value

    def lines(self) -> list[str]:
        """Return the lines of the exposition."""
        found, total = _head(self.name, self.summary, "histogram"), 0
        for bound, count in zip((*self.bounds, None), self._counts, strict=True):
            total += count
            name = "+Inf" if bound is None else f"{bound:g}"
            found.append(f'{self.name}_bucket{{le="{name}"}} {total}')
        return [*found, f"{self.name}_sum {self._sum:.6f}", f"{self.name}_count {total}"]


class Metrics:
    """All that the server counts."""

    def __init__(self) -> None:
        self.requests = Counter("seq2seq_requests_total", "Requests by route and status.")
        self.request_seconds = Histogram(
            "seq2seq_request_seconds", "Time of a translation request.", _SECONDS
        )
        self.batch_sentences = Histogram(
            "seq2seq_batch_sentences", "Sentences per batch.", _SENTENCES
        )
        self.lines = Counter("seq2seq_lines_total", "Lines translated, by where from.")
        self.tokens = Counter("seq2seq_tokens_total", "Tokens read and written.")
        self.suspect = Counter("seq2seq_suspect_total", "Translations that need a look, by kind.")

    def render(self, queue_tokens: int) -> str:
        """Return the exposition.

        Args:
            queue_tokens: tokens that wait or run now.
        """
        parts = (
            self.requests,
            self.request_seconds,
            self.batch_sentences,
            self.lines,
            self.tokens,
            self.suspect,
        )
        name = "seq2seq_queue_tokens"
        gauge = [*_head(name, "Tokens that wait or run.", "gauge"), f"{name} {queue_tokens}"]
        return "\n".join([*gauge, *(line for part in parts for line in part.lines()), ""])


def _head(name: str, summary: str, kind: str) -> list[str]:
    return [f"# HELP {name} {summary}", f"# TYPE {name} {kind}"]


def _format(labels: Labels) -> str:
    """Write labels; their values are fixed words of this program, which need no escapes."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
