"""Components of the acts of `priority-levels`: consumers that accept messages only while they are open, and a
publisher."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from math import inf

from emulator.client import Client, ClientError, Consumer, ConsumerType, InitialPosition, Message, Producer
from emulator.simulation.history import text_of
from emulator.simulation.world import CLIENT_SETTINGS
from tests.swarm.checkers.key_shared_sittings import Sitting
from tests.swarm.record import received_fields
from tests.swarm.workload import ActContext
from tests.swarm.workloads.expiring_program import STEP_SECONDS

SUBSCRIPTION = "ranked"


@dataclass(frozen=True, slots=True)
class Place:
    """The region, topic and subscription type of one program."""

    region: str
    topic: str
    type: str
    partitions: int
    """Number of partitions; 0: the topic is not partitioned."""


@dataclass(frozen=True, slots=True)
class Seat:
    """The plan of one consumer. Times are seconds from the start of the checked period."""

    level: int
    queue: int
    holds: int
    """Number of received messages that the consumer keeps unacknowledged."""
    joins: float = 0.0
    leaves: float | None = None
    shut: tuple[float, float] | None = None
    """Period (from, to) in which the consumer accepts no messages; None: there is none."""


class Taker:
    """A consumer that receives every message at once while it is open, and none while it is shut."""

    def __init__(self, place: Place, context: ActContext, seat: Seat, number: int, incarnation: str) -> None:
        self._place, self._stage, self._seat = place, context, seat
        self.sitting = Sitting(f"{context.name}-{number}", seat.level, seat.queue)
        host = context.world.client_host(context.name, place.region)
        settings = replace(CLIENT_SETTINGS, asks_for_partitions=bool(place.partitions))
        self._client = context.world.client_on(
            host, (place.region,), settings, instance=f"{incarnation}{number}"
        )
        self._consumer: Consumer | None = None
        self._taking: asyncio.Task[None] | None = None
        self._held: list[Message] = []
        self.by_partition: list[tuple[float, int, str]] = []
        """(time, partition, payload) of each delivery."""

    async def join(self) -> None:
        self._consumer = await self._client.subscribe(
            self._place.topic,
            SUBSCRIPTION,
            type_=ConsumerType[self._place.type],
            initial_position=InitialPosition.EARLIEST,
            name=self.sitting.name,
            priority_level=self._seat.level,
            receiver_queue_size=self._seat.queue,
        )
        self.sitting.began = self._stage.now
        self.open()

    def open(self) -> None:
        if self._consumer is not None and self._taking is None and self.sitting.ended > self._stage.now:
            self.sitting.open.append((self._stage.now, inf))
            self._taking = asyncio.ensure_future(self._take(self._consumer))

    def shut(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
            self.sitting.open[-1] = (self.sitting.open[-1][0], self._stage.now)

    async def leave(self) -> None:
        self.sitting.ended = min(self.sitting.ended, self._stage.now)
        self.shut()
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(STEP_SECONDS):
                await self._client.close()

    async def _take(self, consumer: Consumer) -> None:
        with contextlib.suppress(ClientError):
            while True:
                message = await consumer.receive()
                self._note(message)
                self._held.append(message)
                if len(self._held) > self._seat.holds:
                    await consumer.acknowledge(self._held.pop(0))

    def _note(self, message: Message) -> None:
        now, text = self._stage.now, text_of(message)
        self.sitting.taken.append((now, text))
        self.by_partition.append((now, message.id.partition, text))
        self._stage.record.note(
            self.sitting.name,
            "receive",
            "ok",
            region=self._place.region,
            topic=message.topic,
            subscription=SUBSCRIPTION,
            **received_fields(message, self._place.region),
        )


class Publisher:
    """Publishes to a topic, or to each of its partitions in turn."""

    def __init__(self, place: Place, client: Client, context: ActContext, incarnation: str) -> None:
        self._place, self._client, self._stage, self._incarnation = place, client, context, incarnation
        self._producers: dict[str, Producer] = {}
        self._requested = 0
        self.taken: dict[str, float] = {}
        """Text of each message with a receipt -> time of the receipt."""

    async def publish(self) -> None:
        self._requested += 1
        place, text = self._place, f"{self._stage.name}/{self._incarnation}/{self._requested}"
        topic = place.topic
        if place.partitions:
            topic = f"{topic}-partition-{self._requested % place.partitions}"
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(STEP_SECONDS):
                if topic not in self._producers:
                    name = f"{self._stage.name}-{self._incarnation}"
                    self._producers[topic] = await self._client.producer(topic, name=name)
                await self._producers[topic].send(text.encode())
                self.taken[text] = self._stage.now
