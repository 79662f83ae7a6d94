"""Real clients, real processes, real kills: the guarantees of the project at their documented size."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pulsar
import pytest

from emulator.client import EARLIEST, Client
from emulator.config.loading import load_topology
from emulator.runtimes.process import ProcessRuntime

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOPOLOGY = Path(__file__).parents[2] / "topology.yaml"
TOPIC = "persistent://public/default/load"
RECEIVE_MS = 20_000


@contextlib.asynccontextmanager
async def three_regions(folder: Path) -> AsyncIterator[tuple[ProcessRuntime, dict[str, str]]]:
    """Start the sample topology as processes; yield each region's service URL."""
    runtime = ProcessRuntime.create(load_topology(TOPOLOGY), folder / "run")
    await runtime.up()
    try:
        status = await runtime.status()
        yield runtime, {region.name: region.service_url for region in status.regions}
    finally:
        await runtime.down()


@contextlib.contextmanager
def real_client(url: str) -> Iterator[pulsar.Client]:
    """A client that reconnects within two seconds of a region's return: nothing else bounds the real client's
    back-off."""
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    client = pulsar.Client(url, logger=quiet, operation_timeout_seconds=2)
    try:
        yield client
    finally:
        client.close()


def publish(url: str, region: str, count: int, *, batched: bool, acknowledged: list[int]) -> None:
    """Publish `count` numbered messages with the real client, which resends by itself for as long as it takes."""
    with real_client(url) as client:
        producer = client.create_producer(
            TOPIC,
            producer_name=f"p-{region}",
            batching_enabled=batched,
            block_if_queue_full=True,
            send_timeout_millis=0,
        )
        for number in range(count):
            producer.send_async(f"{region} {number}".encode(), _noting(number, acknowledged))
        producer.flush()


def _noting(number: int, acknowledged: list[int]) -> object:
    def note_receipt(result: pulsar.Result, _: object) -> None:
        if result == pulsar.Result.Ok:
            acknowledged.append(number)

    return note_receipt


def receive(url: str, region: str, count: int, by_origin: dict[str, list[int]]) -> None:
    """Take `count` messages and note each origin's numbers in the order of their delivery."""
    with real_client(url) as client:
        consumer = client.subscribe(
            TOPIC, f"c-{region}", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=5000
        )
        for _ in range(count):
            message = consumer.receive(RECEIVE_MS)
            origin, number = message.data().decode().split()
            by_origin[origin].append(int(number))
            consumer.acknowledge(message)


def run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def test_three_regions_publish_ten_thousand_each_and_every_consumer_receives_thirty_thousand(
    tmp_path: Path,
) -> None:
    """Each origin in order, nothing twice."""
    count = 10_000

    async with three_regions(tmp_path) as (_, urls):
        received: dict[str, dict[str, list[int]]] = {name: defaultdict(list) for name in urls}
        threads = [
            threading.Thread(
                target=publish, args=(url, name, count), kwargs={"batched": True, "acknowledged": []}
            )
            for name, url in urls.items()
        ] + [
            threading.Thread(target=receive, args=(url, name, len(urls) * count, received[name]))
            for name, url in urls.items()
        ]
        await asyncio.to_thread(run_all, threads)
        for by_origin in received.values():
            assert by_origin == {name: list(range(count)) for name in urls}


@pytest.mark.parametrize("seed", range(4))
async def test_kills_during_the_load_neither_lose_nor_duplicate_messages(seed: int, tmp_path: Path) -> None:
    """kill -9 of any region at any moment; the producers continue by themselves."""
    count, chance = 3_000, random.Random(seed)

    async with three_regions(tmp_path) as (runtime, urls):
        acknowledged: dict[str, list[int]] = {name: [] for name in urls}
        threads = [
            threading.Thread(
                target=publish,
                args=(url, name, count),
                kwargs={"batched": chance.random() < 0.5, "acknowledged": acknowledged[name]},
            )
            for name, url in urls.items()
        ]
        publishing = asyncio.create_task(asyncio.to_thread(run_all, threads))
        for _ in range(3):
            victim, progress = chance.choice(sorted(urls)), chance.randrange(count)
            await _until(lambda name=victim, at=progress: len(acknowledged[name]) >= at)
            await runtime.kill(victim)
            await runtime.start(victim)
        await publishing
        for name, url in urls.items():
            assert len(acknowledged[name]) == count
            assert await _stored(url, len(urls) * count) == {other: list(range(count)) for other in urls}


async def _until(condition: object, deadline_seconds: float = 20) -> None:
    assert callable(condition)
    async with asyncio.timeout(deadline_seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def _stored(url: str, expected: int) -> dict[str, list[int]]:
    """Return the contents of a region's log once it is complete, each origin's numbers in log order."""
    by_origin: dict[str, list[int]] = defaultdict(list)
    async with Client(url) as client:
        reader = await client.reader(TOPIC, EARLIEST)
        for _ in range(expected):
            message = await asyncio.wait_for(reader.receive(), 20)
            origin, number = message.payload.decode().split()
            by_origin[origin].append(int(number))
        assert not await reader.has_message(), "nothing but what was sent"
    return dict(by_origin)
