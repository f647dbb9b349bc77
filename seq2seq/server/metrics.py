"""What the server counts, for Prometheus. No label holds a text, an address or a key."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one server, in a registry of its own; the process's figures are in it too."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        own: dict[str, Any] = {"namespace": "seq2seq", "registry": self.registry}
        self.requests = Counter(
            "requests", "Requests by route and status.", ["route", "status"], **own
        )
        self.request_seconds = Histogram(
            "request_seconds", "Time of a translation request.", buckets=_SECONDS, **own
        )
        self.batch_sentences = Histogram(
            "batch_sentences", "Sentences per batch.", buckets=_SENTENCES, **own
        )
        self.lines = Counter(
            "lines", "Sentences translated, new or from the cache.", ["made"], **own
        )
        self.tokens = Counter("tokens", "Tokens read and written.", ["side"], **own)
        self.suspect = Counter("suspect", "Suspicious translations by kind.", ["kind"], **own)
        self.queue_tokens = Gauge("queue_tokens", "Tokens queued or being translated.", **own)
