"""What a fail-over redelivers after kill -9 under load, and which entries snapshots add, for each schedule.

    python -m benchmarks.snapshot_schedules [ROUNDS]

Three regions of `topology.yaml` without latency on their links, as processes. A topic receives 200 messages a second in
one region, whose consumer acknowledges every message at once. The region is killed at a random moment, and a consumer
continues in another region. Redelivered messages are those that were acknowledged before. Added entries are those in
the log of the killed region that are no messages. The schedules alternate.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import random
import statistics
import sys
import tempfile
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.client import Client, Consumer, InitialPosition, Producer
from emulator.config.link_shape import LinkShape
from emulator.config.loading import load_topology
from emulator.runtimes.contract import RegionStatus
from emulator.runtimes.process import ProcessRuntime

PER_SECOND = 200
LOAD_SECONDS = 5.0
SOURCE, TARGET = "us-east", "eu-central"
SCHEDULES = ("periodic", "adaptive")
IDLE_SECONDS = 1.0
"""Time without a message after which the consumer in the other region has received everything."""


@dataclass
class Load:
    """One topic."""

    schedule: str
    acknowledged: set[bytes] = field(default_factory=set)
    published: int = 0
    entries: int = 0
    """Entries in the log of the killed region."""
    redelivered: int = 0

    @property
    def topic(self) -> str:
        return f"persistent://public/default/{self.schedule}"

    @property
    def admin_path(self) -> str:
        return f"/admin/v2/{self.topic.replace('://', '/')}"

    async def publish(self, client: Client) -> None:
        """Publish at a constant rate, without waiting for receipts, until cancelled."""
        producer = await client.producer(self.topic)
        loop, number = asyncio.get_running_loop(), 0
        began = loop.time()
        async with asyncio.TaskGroup() as sending:
            while True:
                sending.create_task(self._publish(producer, number))
                number += 1
                await asyncio.sleep(max(0.0, began + number / PER_SECOND - loop.time()))

    async def _publish(self, producer: Producer, number: int) -> None:
        await producer.send(b"%d" % number)
        self.published += 1

    async def consume(self, consumer: Consumer) -> None:
        """Acknowledge every message at once, until cancelled."""
        while True:
            message = await consumer.receive()
            self.acknowledged.add(message.payload)
            await consumer.acknowledge(message)

    async def continue_in(self, client: Client) -> None:
        """Count the messages that are received again."""
        consumer = await client.subscribe(
            self.topic, "s", initial_position=InitialPosition.EARLIEST, replicated=True
        )
        with contextlib.suppress(TimeoutError):
            while True:
                message = await asyncio.wait_for(consumer.receive(), IDLE_SECONDS)
                self.redelivered += message.payload in self.acknowledged


def ask(url: str, method: str = "GET", body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read()
    return json.loads(text) if text else None


async def _load_until_killed(runtime: ProcessRuntime, load: Load, url: str, seconds: float) -> None:
    """Publish and consume until the region is killed. `url`: its admin port."""
    address = f"{url}{load.admin_path}"
    await asyncio.to_thread(ask, f"{address}/snapshotSchedule?isGlobal=true", "POST", load.schedule)
    async with Client((await region_of(runtime, SOURCE)).service_url) as client:
        consumer = await client.subscribe(
            load.topic, "s", initial_position=InitialPosition.EARLIEST, replicated=True
        )
        tasks = [asyncio.create_task(one) for one in (load.consume(consumer), load.publish(client))]
        await asyncio.sleep(seconds)
        load.entries = (await asyncio.to_thread(ask, f"{address}/internalStats"))["numberOfEntries"]
        published = load.published
        await runtime.kill(SOURCE)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        load.published = published


async def region_of(runtime: ProcessRuntime, name: str) -> RegionStatus:
    return next(region for region in (await runtime.status()).regions if region.name == name)


async def one_fail_over(load: Load, chance: random.Random) -> Load:
    topology = load_topology(Path("topology.yaml"))
    links = tuple(dataclasses.replace(link, shape=LinkShape()) for link in topology.links)
    topology = dataclasses.replace(topology, links=links)
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder:
        runtime = ProcessRuntime.create(topology, Path(folder, "run"))
        await runtime.up()
        try:
            url = (await region_of(runtime, SOURCE)).admin_url
            await _load_until_killed(runtime, load, url, LOAD_SECONDS + chance.random())
            async with Client((await region_of(runtime, TARGET)).service_url) as target:
                await load.continue_in(target)
        finally:
            await runtime.down()
    return load


def table(rounds: int = 8) -> str:
    """All figures as a Markdown table."""
    chance = random.Random(1)
    loads = [
        asyncio.run(one_fail_over(Load(schedule), chance)) for _ in range(rounds) for schedule in SCHEDULES
    ]
    lines = [
        "| schedule | redelivered (median, seconds' worth) | the most of all rounds | added entries | goal |",
        "|---|---|---|---|---|",
    ]
    for schedule in SCHEDULES:
        of_schedule = [load for load in loads if load.schedule == schedule]
        worth = [load.redelivered / PER_SECOND for load in of_schedule]
        added = sum(load.entries for load in of_schedule) / sum(load.published for load in of_schedule) - 1
        goal = "at most 0.3 s, for at most +10 %" if schedule == "adaptive" else ""
        lines.append(
            f"| {schedule} | {statistics.median(worth):.2f} | {max(worth):.2f} | {added:+.1%} | {goal} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 8))
