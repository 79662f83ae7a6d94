"""What opening a topic costs: calls of functions, which is where the processor time goes, and objects that stay.

The bounds are little above what was measured, 227 calls and 49 objects, and below what it was while every opening read
the rows of its topic and ran in two tasks, 402 and 59 (docs/BENCHMARKS.md, "Opening a topic").
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import AsyncIterator
from types import FrameType
from typing import Any

from emulator.wire import codec_hot
from tests.broker.connection.test_shared_appends import RawClient
from tests.broker.regions import regions

TOPICS = 100
CALLS_MAX = 250
"""Calls of functions of the product, with PRODUCER and the response to it; lookups are not included."""
OBJECTS_MAX = 54
"""Objects that garbage collection visits, the producer of the topic included."""
PRODUCT = codec_hot.__file__.rpartition("emulator")[0] + "emulator"


class CallCount:
    """Counts calls of the product's functions."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            self.calls += 1


@contextlib.asynccontextmanager
async def clients() -> AsyncIterator[RawClient]:
    """A client of a region in which another one has opened a topic, so that everything is imported and remembered that
    a region creates once."""
    async with regions("us", deduplication=True) as world:
        first, client = RawClient(0, world), RawClient(1, world)
        await first.open("first")
        try:
            yield client
        finally:
            client.socket.close()
            first.socket.close()


async def test_opening_a_topic_takes_few_calls() -> None:
    async with clients() as client:
        count = CallCount()
        sys.setprofile(count)
        try:
            await client.open(*(f"topic-{number}" for number in range(TOPICS)))
        finally:
            sys.setprofile(None)
        assert TOPICS < count.calls <= CALLS_MAX * TOPICS, count.calls / TOPICS


async def test_an_open_topic_keeps_few_objects() -> None:
    async with clients() as client:
        gc.collect()
        before = len(gc.get_objects())
        await client.open(*(f"topic-{number}" for number in range(TOPICS)))
        gc.collect()
        kept = (len(gc.get_objects()) - before) / TOPICS
        assert 10 < kept <= OBJECTS_MAX, kept
