"""Counters and rates of a region's topics, for stats and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from emulator.core.flow.meters import Distribution, Rate

LATENCY_LIMITS_US: Final = (500, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000)
SIZE_LIMITS: Final = (128, 512, 1_024, 2_048, 4_096, 16_384, 102_400, 1_048_576)


class Traffic:
    """Messages and bytes of a loaded topic or subscription, or of a connected client, and their rates."""

    __slots__ = ("_rates", "_since_seconds", "bytes", "messages")

    def __init__(self, now_seconds: float) -> None:
        self.messages = 0
        self.bytes = 0
        self._since_seconds = now_seconds
        self._rates: tuple[Rate, Rate] | None = None
        """Rates of messages and of bytes; created when one is read for the first time."""

    def add(self, messages: int, bytes_: int) -> None:
        self.messages += messages
        self.bytes += bytes_

    def message_rate(self, now_seconds: float) -> float:
        """Messages per second."""
        return self._rate(0).per_second(self.messages, now_seconds)

    def byte_rate(self, now_seconds: float) -> float:
        """Bytes per second."""
        return self._rate(1).per_second(self.bytes, now_seconds)

    def _rate(self, which: int) -> Rate:
        if self._rates is None:
            self._rates = Rate(self._since_seconds), Rate(self._since_seconds)
        return self._rates[which]


class StorageMetrics:
    """Latency, size and reads of a topic's entries since it was loaded, in the histogram buckets of Pulsar's
    dashboards."""

    __slots__ = ("_read_rate", "latency_us", "read", "size_bytes")

    def __init__(self, now_seconds: float) -> None:
        self.latency_us = Distribution(LATENCY_LIMITS_US, now_seconds)
        """Time from append to durable, in microseconds; counted once for each entry."""
        self.size_bytes = Distribution(SIZE_LIMITS, now_seconds)
        self.read = 0
        """Number of entries read from the store because they were not in memory."""
        self._read_rate = Rate(now_seconds)

    def appended(self, entries: Sequence[bytes], seconds: float) -> None:
        """Record the sizes of entries that became durable, and the seconds since their append was issued."""
        self.latency_us.add(round(seconds * 1_000_000), len(entries))
        if len(entries) == 1:  # such as a marker
            self.size_bytes.add(len(entries[0]))
        else:
            self.size_bytes.add_each([len(entry) for entry in entries])

    def read_rate(self, now_seconds: float) -> float:
        """Entries read from the store per second."""
        return self._read_rate.per_second(self.read, now_seconds)


class TopicMetrics:
    """Counters of one topic since it was loaded."""

    __slots__ = (
        "_loaded_seconds",
        "_storing",
        "_wall_clock_ms",
        "loaded_end_entry_id",
        "loaded_ms",
        "published",
        "published_ms",
    )

    def __init__(self, wall_clock_ms: Callable[[], int], log_end: int) -> None:
        self._loaded_seconds = now_seconds = asyncio.get_running_loop().time()
        self._wall_clock_ms = wall_clock_ms
        self.loaded_end_entry_id = log_end
        """End of the log (exclusive entry id) when the topic was loaded."""
        self.loaded_ms = wall_clock_ms()
        self.published = Traffic(now_seconds)
        """Messages published by clients and by other regions' replicators; duplicates are counted, too."""
        self.published_ms = 0
        """Time of the last publish, by the region's clock; 0: none since the topic was loaded."""
        self._storing: StorageMetrics | None = None

    @property
    def storing(self) -> StorageMetrics:
        """Latency, size and reads of the entries. Created at the first use: many topics are only subscribed to."""
        if self._storing is None:
            self._storing = StorageMetrics(self._loaded_seconds)
        return self._storing

    def note_published(self, messages: int, bytes_: int) -> None:
        """Count publishes that are acknowledged: entries that became durable, and duplicates."""
        self.published.add(messages, bytes_)
        self.published_ms = self._wall_clock_ms()

    def publish_rate(self) -> tuple[float, float]:
        """Return the messages and bytes that are published per second."""
        now = asyncio.get_running_loop().time()
        return self.published.message_rate(now), self.published.byte_rate(now)


@dataclass(slots=True)
class AccessFigures:
    """Counters of exclusive producers of all topics of a region since it was started."""

    promotions: int = 0
    "Number of producers promoted from the wait queue."
    fences: int = 0
    "Number of producers that were fenced, connected or waiting."
    ownerless_seconds: float = 0.0
    "Total time that producers waited for topics without an owner, in seconds."
