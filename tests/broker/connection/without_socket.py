"""A connection without a socket, whose bytes a test passes to it itself; metadata of plain messages; what a topic shows
of its publishes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st

from emulator.broker.connection.connection import ClientConnection
from emulator.broker.topic.metrics import TopicMetrics
from emulator.broker.topic.producer import ConnectedProducer
from emulator.broker.topic.topic import Topic
from emulator.core.topic.state import TopicState
from emulator.storage.memory import MemoryLog
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.frames import simple_frame
from tests.broker.regions import Regions, until

PAYLOAD_BYTES_MAX = 200
payloads = st.sampled_from([b"", b"x", b"y" * 50, b"z" * PAYLOAD_BYTES_MAX, b"w" * (PAYLOAD_BYTES_MAX + 1)])


def plain_metadata(**more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the metadata of plain messages. `more`: further optional fields."""
    return st.fixed_dictionaries(
        {"publish_time": st.sampled_from([1, 1, 1, 200, 1_795_000_000_000])},
        optional={
            "partition_key": st.sampled_from(["", "k", "é"]),
            "event_time": st.just(3),
            "uncompressed_size": st.sampled_from([1, 300]),
            "ordering_key": st.just(b"\xff"),
            "schema_version": st.just(b"\0\0\0\0\0\0\0\1"),
            **more,
        },
    )


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


@dataclass
class ConnectionWithoutSocket:
    """A connection to region us without a socket, with producers of new topics."""

    world: Regions
    prefix: str
    """Of the names of its topics."""
    end: ClientEnd = field(default_factory=ClientEnd)

    def __post_init__(self) -> None:
        region = self.world.running["us"]
        self.connection = ClientConnection(region, region.clients._table)
        self.connection.connection_made(self.end)

    async def opened(self, count: int, *, closed: int) -> None:
        """Wait for all requested producers, close one of them, and drop the responses."""
        await until(lambda: len(self.connection.producers.open) == count)
        self.producers = {number: self._open(number) for number in range(1, count + 1)}
        close = pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER)
        close.close_producer.producer_id = close.close_producer.request_id = closed
        self.read(simple_frame(close))
        await until(lambda: closed not in self.connection.producers.open and not self.connection.responses)
        self.end.written.clear()

    def _open(self, producer_id: int) -> tuple[ConnectedProducer, Topic]:
        producer = self.connection.producers.open[producer_id]
        assert isinstance(producer.topic, Topic)
        return producer, producer.topic

    def read(self, data: bytes) -> None:
        """Let the connection read bytes, unless it was closed."""
        if not self.end.closed:
            self.connection.data_received(data)


class StepCounts:
    """How often the steps of publishing run."""

    def __init__(self, patched: pytest.MonkeyPatch, *more: tuple[type, str]) -> None:
        self.calls: Counter[str] = Counter()
        for type_, name in (
            (ConnectedProducer, "publish"),
            (ConnectedProducer, "publish_group"),
            (ConnectedProducer, "stored"),
            (MemoryLog, "append"),
            (TopicState, "admit"),
            (TopicState, "fold"),
            (TopicMetrics, "note_published"),
            *more,
        ):
            patched.setattr(type_, name, self._counted(name, getattr(type_, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return function(*arguments, **named)

        return call


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
