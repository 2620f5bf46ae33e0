"""Counters of the server, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)  # seconds


class Metrics:
    """What the server has done; it holds numbers alone.

    Args:
        memories: returns name, entries and documents of each open memory.
        waiting: returns the number of requests that are answered or wait.
    """

    def __init__(
        self,
        memories: Callable[[], Iterable[tuple[str, int, int]]],
        waiting: Callable[[], int],
    ) -> None:
        self._memories, self._waiting = memories, waiting
        self.registry = CollectorRegistry()

        def metric(kind: Any, name: str, about: str, labels: Iterable[str], **more: Any) -> Any:
            return kind(f"hebblm_{name}", about, [*labels], registry=self.registry, **more)

        self.requests = metric(Counter, "requests", "Requests answered", ("route", "status"))
        self.tokens = metric(Counter, "tokens", "Tokens read, drawn and learned", ("kind",))
        self.seconds = metric(
            Histogram, "request_seconds", "Time of a request", ("route",), buckets=LATENCIES
        )
        self._entries = metric(Gauge, "entries", "Entries of a memory", ("memory",))
        self._documents = metric(Gauge, "documents", "Documents of a memory", ("memory",))
        self._in_work = metric(Gauge, "in_work", "Requests that are answered or wait", ())

    def learned(self, tokens: int) -> None:
        """Count the tokens of a document."""
        self.tokens.labels("learned").inc(tokens)

    def page(self) -> bytes:
        """Return all numbers as text."""
        for name, entries, documents in self._memories():
            self._entries.labels(name).set(entries)
            self._documents.labels(name).set(documents)
        self._in_work.set(self._waiting())
        return generate_latest(self.registry)
