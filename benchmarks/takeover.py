"""Time until a topic has a new owner when its exclusive producer is gone (PIP-68), and the resulting load (PIP-440).

    python -m benchmarks.takeover [TOPICS]

One topic: the owner closes, or its connection breaks; timed until the waiting producer receives its response. The store
is SQLite, so the new epoch is on disk before the response. Many topics: one host owns all of them, ten hosts wait for
each, and the owner dies. The hosts are raw connections of one program, each with a producer for every topic; opening
them is not timed.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections import Counter
from urllib.parse import urlsplit

from benchmarks.brokers import geoemu
from emulator.client import AccessMode, Client
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.command_types import CommandType
from emulator.wire.commands import PROTOCOL_VERSION, Connect, CreateProducer
from emulator.wire.frames import PONG_FRAME, FrameBuffer
from emulator.wire.protobuf import decode_command

TOPICS = 10_000
HOSTS = 10
ROUNDS = 50
AT_ONCE = 500
WAITING = AccessMode.WAIT_FOR_EXCLUSIVE


class Host(asyncio.Protocol):
    """One connection that wants to own topics."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owned: set[int] = set()
        self.answered = 0
        self._frames = FrameBuffer(5_300_000)
        self._room = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(Connect("benchmark", PROTOCOL_VERSION).encode())

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        for type_, command, _ in self._frames.feed(data):
            if type_ == CommandType.PING:
                self._transport.write(PONG_FRAME)
            elif type_ == CommandType.PRODUCER_SUCCESS:
                self._answered(decode_command(command).producer_success)
            elif type_ == CommandType.ERROR:
                raise SystemExit(f"{self.name}: {decode_command(command).error.message}")

    def _answered(self, success: pb.CommandProducerSuccess) -> None:
        if success.producer_ready:
            self.owned.add(success.request_id)
        self.answered += 1
        self._room.set()

    async def want(self, topics: int, priority: random.Random | None) -> None:
        """Open a producer for each topic; returns when each was answered, with yes or not yet."""
        assert self._transport is not None
        for number in range(topics):
            while number - self.answered >= AT_ONCE:
                self._room.clear()
                await self._room.wait()
            rank = 0 if priority is None else priority.randrange(2**31)
            self._transport.write(
                CreateProducer(
                    number,
                    f"checked-{number}",
                    number,
                    0,
                    WAITING,
                    is_name_given=True,
                    producer_name=f"{self.name}-{number}",
                    queue_priority=rank,
                ).encode()
            )
        while self.answered < topics:
            self._room.clear()
            await self._room.wait()

    def die(self) -> None:
        assert self._transport is not None
        self._transport.abort()


async def _host(service_url: str, name: str) -> Host:
    address = urlsplit(service_url)
    host = Host(name)
    await asyncio.get_running_loop().create_connection(lambda: host, address.hostname, address.port)
    return host


async def _fail_over(service_url: str, topics: int, *, priorities: bool) -> tuple[float, list[int]]:
    """(seconds until every topic has an owner again, topics of each survivor)."""
    chance = random.Random(1) if priorities else None
    owner = await _host(service_url, "owner")
    await owner.want(topics, None)
    hosts = [await _host(service_url, f"host-{number}") for number in range(HOSTS)]
    for host in hosts:
        await host.want(topics, chance)
    assert len(owner.owned) == topics
    began = time.perf_counter()
    owner.die()
    while sum(len(host.owned) for host in hosts) < topics:
        await asyncio.sleep(0.001)
    seconds = time.perf_counter() - began
    load = sorted((len(host.owned) for host in hosts), reverse=True)
    for host in hosts:
        host.die()
    return seconds, load


async def _one_takeover(service_url: str, topic: str, *, dies: bool) -> float:
    async with Client(service_url) as one, Client(service_url) as other:
        owner = await one.producer(topic, access_mode=WAITING)
        waiting = asyncio.ensure_future(other.producer(topic, access_mode=WAITING))
        await asyncio.sleep(0.02)
        began = time.perf_counter()
        if dies:
            for connection in list(one._connections.values()):
                connection.abort()
        else:
            closing = asyncio.ensure_future(owner.close())
        await waiting
        seconds = time.perf_counter() - began
        if not dies:
            await closing
        return seconds


def table(topics: int = TOPICS) -> str:
    """Both as a Markdown table."""
    rows = ["| event | median | p99 | goal |", "|---|---|---|---|"]
    with geoemu(deduplication=True) as broker:
        for what, dies, goal in (("the owner closes", False, "3 ms"), ("the owner is killed", True, "10 ms")):
            taken = sorted(
                asyncio.run(_one_takeover(broker.service_url, f"{what[-6:]}-{number}", dies=dies)) * 1_000
                for number in range(ROUNDS)
            )
            rows.append(
                f"| {what}: a waiting producer is promoted | {statistics.median(taken):.1f} ms | "
                f"{taken[-1]:.1f} ms | {goal} |"
            )
    rows += [
        "",
        "| one host of eleven is killed | every topic has an owner again | topics of the survivors | goal |",
    ]
    rows.append("|---|---|---|---|")
    for what, priorities in (("first in, first out", False), ("a random priority for each topic", True)):
        with geoemu(deduplication=True) as broker:
            seconds, load = asyncio.run(_fail_over(broker.service_url, topics, priorities=priorities))
        loads = ", ".join(
            f"{times} x {count:,}" if times > 1 else f"{count:,}" for count, times in Counter(load).items()
        )
        rows.append(f"| {topics:,} topics, {what} | {seconds:.2f} s | {loads} | 5 s |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else TOPICS))
