"""What the server counts, for Prometheus. No label holds a text, an address or a key."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one server, in a registry of its own; the process's figures are in it too."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "seq2seq_requests_total",
            "Requests by route and status.",
            ["route", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "seq2seq_request_seconds",
            "Time of a translation request.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_sentences = Histogram(
            "seq2seq_batch_sentences",
            "Sentences per batch.",
            buckets=_SENTENCES,
            registry=registry,
        )
        self.lines = Counter(
            "seq2seq_lines_total",
            "Lines translated, new or from the cache.",
            ["made"],
            registry=registry,
        )
        self.tokens = Counter(
            "seq2seq_tokens_total", "Tokens read and written.", ["side"], registry=registry
        )
        self.suspect = Counter(
            "seq2seq_suspect_total", "Suspicious translations by kind.", ["kind"], registry=registry
        )
        self.queue_tokens = Gauge(
            "seq2seq_queue_tokens", "Tokens queued or being translated.", registry=registry
        )
