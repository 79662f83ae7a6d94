"""How a topic's entries are stored and read: how long it takes, how large they are, how many in a second. In the
classes that Pulsar's dashboards ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from emulator.core.flow.meters import Distribution, Rate

LATENCY_LIMITS_US: Final = (500, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000)
SIZE_LIMITS: Final = (128, 512, 1_024, 2_048, 4_096, 16_384, 102_400, 1_048_576)


class Storing:
    """Of one topic, since it is in memory."""

    __slots__ = ("_read_rate", "latency_us", "read", "size_bytes")

    def __init__(self, now_seconds: float) -> None:
        self.latency_us = Distribution(LATENCY_LIMITS_US, now_seconds)
        """Until a group was durable; each entry of it counts."""
        self.size_bytes = Distribution(SIZE_LIMITS, now_seconds)
        self.read = 0
        """Entries that memory had no more."""
        self._read_rate = Rate(now_seconds)

    def follow(self, entries: Sequence[bytes], appended: asyncio.Future[int]) -> None:
        """One group, which was issued now."""
        loop = asyncio.get_running_loop()
        issued_at = loop.time()

        def done(appended: asyncio.Future[int]) -> None:
            if appended.cancelled() or appended.exception() is not None:
                return
            self.latency_us.add(round((loop.time() - issued_at) * 1_000_000), len(entries))
            self.size_bytes.add_each([len(entry) for entry in entries])

        appended.add_done_callback(done)

    def read_rate(self, now_seconds: float) -> float:
        """Entries read from the store per second."""
        return self._read_rate.per_second(self.read, now_seconds)
