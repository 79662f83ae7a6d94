"""Which connections are slow senders, and when they are read again."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from emulator.net import http_server
from emulator.net.http_connections import HttpConnections
from emulator.net.slow_senders import (
    PAUSE_SECONDS,
    RESUMED_PER_TURN,
    SLOW_SECONDS,
    SMALL_READ_BYTES,
    SMALL_READS_MAX,
    TURN_SECONDS,
    SlowSenders,
    SmallReads,
)
from tests.net.test_http_connections import serving

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time


class Sender:
    """Records when it is read again."""

    def __init__(self, read: list[tuple[float, Sender]]) -> None:
        self._read = read

    def read_again(self) -> None:
        self._read.append((asyncio.get_running_loop().time(), self))


async def test_senders_are_read_again_in_order_and_a_few_at_a_time() -> None:
    read: list[tuple[float, Sender]] = []
    slow_senders, senders = SlowSenders(), [Sender(read) for _ in range(100)]
    began = asyncio.get_running_loop().time()
    for sender in (*senders, senders[0]):
        slow_senders.pause(sender)
    assert slow_senders.end_pause(senders[7])
    assert not slow_senders.end_pause(senders[7]), "it waits no longer"
    await asyncio.sleep(PAUSE_SECONDS + 100 * TURN_SECONDS)
    assert [sender for _, sender in read] == senders[:7] + senders[8:]
    times = [time - began for time, _ in read]
    assert times[0] >= PAUSE_SECONDS
    turns = sorted(set(times))
    assert all(times.count(turn) <= RESUMED_PER_TURN for turn in turns)
    assert all(later - turn > 0.9 * TURN_SECONDS for turn, later in pairwise(turns))
    slow_senders.pause(senders[0])
    await asyncio.sleep(2 * PAUSE_SECONDS)
    assert len(read) == 100, "its timer starts again"


async def test_only_small_reads_over_some_time_make_a_slow_sender() -> None:
    reads = SmallReads()
    assert not any(reads.is_slow_after(1) for _ in range(100)), "they took no time"
    await asyncio.sleep(SLOW_SECONDS)
    assert reads.is_slow_after(1)
    assert not reads.is_slow_after(SMALL_READ_BYTES), "a large part"
    assert not reads.is_slow_after(1)
    await asyncio.sleep(SLOW_SECONDS)
    reads.reset()
    assert not any(reads.is_slow_after(1) for _ in range(SMALL_READS_MAX)), "a request was completed"
    few = SmallReads()
    for _ in range(SMALL_READS_MAX - 1):
        await asyncio.sleep(SLOW_SECONDS)
        assert not few.is_slow_after(1)


@pytest.mark.parametrize("seconds", [10.0, http_server.IDLE_SECONDS - 0.01])
async def test_a_slow_request_receives_its_response(seconds: float) -> None:
    connections = HttpConnections()
    async with serving(connections) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        waited = False
        request = b"GET / HTTP/1.1\r\nHost: x\r\nX: %b\r\n\r\n" % (b"x" * 100)
        for byte in request:
            writer.write(bytes([byte]))
            await asyncio.sleep(seconds / len(request))
            waited = waited or bool(len(connections.slow_senders))
        assert waited
        async with asyncio.timeout(2 * PAUSE_SECONDS):
            assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        writer.close()


async def test_a_request_that_does_not_end_is_closed_in_time() -> None:
    connections = HttpConnections()
    async with serving(connections) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        began = asyncio.get_running_loop().time()
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        while len(connections) or asyncio.get_running_loop().time() == began:
            writer.write(b"x")
            await asyncio.sleep(1)
        assert asyncio.get_running_loop().time() - began < http_server.IDLE_SECONDS + 3
        assert not len(connections.slow_senders)
        assert not await reader.read()
