"""Key_Shared beside Shared, and five hundred consumers of one subscription beside one.

    python -m benchmarks.key_shared [ROUNDS]

Messages of 500 keys, our own clients in one program, an acknowledgement for each message; the compared cases run in
turn. The program shares the machine with the region and uses more of it, so the result has the region's CPU time per
message in addition to the rate, which depends on both. A drain has two consumers and a backlog. A crowd subscribes
before the first message, so the cost of a message consists of publish, dispatch and acknowledgement.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from dataclasses import dataclass

from benchmarks.brokers import RunningBroker, geoemu, processor_seconds
from benchmarks.load_generator import new_topic
from emulator.client import Client, Consumer, ConsumerType, InitialPosition

MESSAGES = 30_000
KEYS = 500
AT_ONCE = 1_000
CROWD = 500
CROWD_QUEUE = 100


@dataclass(frozen=True)
class Took:
    rate: float
    broker_us: float
    """Processor time of the region per message."""


class Work:
    """The messages that all consumers together have to receive."""

    def __init__(self, broker: RunningBroker) -> None:
        self.left = MESSAGES
        self.done = asyncio.Event()
        self._broker = broker
        self._began, self._used = time.perf_counter(), processor_seconds(broker.pid)

    async def take(self, consumer: Consumer) -> None:
        while True:
            message = await consumer.receive()
            await consumer.acknowledge(message)
            self.left -= 1
            if not self.left:
                self.done.set()

    async def took(self) -> Took:
        await self.done.wait()
        seconds, used = time.perf_counter() - self._began, processor_seconds(self._broker.pid) - self._used
        return Took(MESSAGES / seconds, used * 1e6 / MESSAGES)


async def _publish(client: Client, topic: str) -> None:
    producer = await client.producer(topic, pending_messages_max=AT_ONCE)
    for first in range(0, MESSAGES, AT_ONCE):
        numbers = range(first, first + AT_ONCE)
        await asyncio.gather(*(producer.send(b"x" * 100, key=f"key-{one % KEYS}") for one in numbers))


async def _drain(broker: RunningBroker, type_: ConsumerType) -> Took:
    topic, earliest = new_topic(), InitialPosition.EARLIEST
    async with Client(broker.service_url) as client:
        await _publish(client, topic)
        work = Work(broker)
        both = [await client.subscribe(topic, "s", type_=type_, initial_position=earliest) for _ in range(2)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work.take(one)) for one in both]
            took = await work.took()
            for task in tasks:
                task.cancel()
    return took


async def _crowd(broker: RunningBroker, type_: ConsumerType, consumers: int) -> Took:
    topic = new_topic()
    async with Client(broker.service_url) as client:
        first = await client.subscribe(topic, "s", type_=type_)
        rest = [
            await client.subscribe(topic, "s", type_=type_, receiver_queue_size=CROWD_QUEUE)
            for _ in range(consumers - 1)
        ]
        work = Work(broker)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work.take(one)) for one in (first, *rest)]
            await _publish(client, topic)
            took = await work.took()
            for task in tasks:
                task.cancel()
    return took


async def _round(broker: RunningBroker) -> dict[str, Took]:
    return {
        "drain, Shared": await _drain(broker, ConsumerType.SHARED),
        "drain, Key_Shared": await _drain(broker, ConsumerType.KEY_SHARED),
        "one consumer, Shared": await _crowd(broker, ConsumerType.SHARED, 1),
        f"{CROWD} consumers, Shared": await _crowd(broker, ConsumerType.SHARED, CROWD),
        "one consumer, Key_Shared": await _crowd(broker, ConsumerType.KEY_SHARED, 1),
        f"{CROWD} consumers, Key_Shared": await _crowd(broker, ConsumerType.KEY_SHARED, CROWD),
    }


def table(rounds: int = 3) -> str:
    """As Markdown: medians, and the ratio to the row above."""
    with geoemu() as broker:
        taken = [asyncio.run(_round(broker)) for _ in range(rounds)]
    rows = [
        "| load | messages/s | µs of processor in the region | rate, to the row above | goal |",
        "|---|---|---|---|---|",
    ]
    above = 0.0
    for number, what in enumerate(taken[0]):
        rate, used = (
            statistics.median(getattr(one[what], field) for one in taken) for field in ("rate", "broker_us")
        )
        ratio = f"{rate / above:.2f}" if number % 2 else ""
        goal = "at least 0.7" if number == 1 else ""
        rows.append(f"| {what} | {rate:,.0f} | {used:.1f} | {ratio} | {goal} |")
        above = rate
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
