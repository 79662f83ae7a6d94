"""A connection without a socket, whose bytes a test passes to it itself, and what a topic shows of its publishes."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

from emulator.broker.topic.topic import Topic
from tests.broker.regions import Regions


class ClientEnd(asyncio.Transport):
    """The transport of a client whose bytes a test passes to the connection itself."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


def outcome_of_topic(world: Regions, topic: Topic) -> dict[str, Any]:
    """Return all that a client, an administrator or a restart sees of the publishes to a topic of region us."""
    storing = topic.metrics.storing
    cached = topic.reading.cache.read(0, 10_000)
    assert cached is not None
    return {
        "log": [bytes(entry) for entry in world.disks["us"].logs[topic.full_name].entries],
        "state": json.loads(topic.state.head(0)),
        "pushed": {
            name: (progress.pushed, progress.persisted)
            for name, progress in topic.state.deduplication._progress.items()
        },
        "watermarks": topic.state.admitted_watermarks.to_json(),
        "published": (topic.metrics.published.messages, topic.metrics.published.bytes),
        "sizes": (storing.size_bytes._counts, storing.size_bytes._times, storing.size_bytes._total),
        "appended": storing.latency_us._times,
        "cached": [
            (
                one.entry_id,
                one.data,
                one.messages,
                one.due_ms,
                one.hidden,
                one.marker,
                one.chunk,
                one.replicated_from,
                one.info,
            )
            for one in cached
        ],
        "ends": (topic.state.stored_end, topic.state.readable_end, topic.state.last_data),
        "since checkpoint": topic.checkpoints.entries_since,
    }


def split(stream: bytes, cuts: list[float]) -> list[bytes]:
    """Return a stream as reads that end at these parts of its length."""
    at = [0, *sorted(int(cut * len(stream)) for cut in cuts), len(stream)]
    return [stream[begin:end] for begin, end in pairwise(at) if begin < end]
