"""The program of the word `spread`: a topic with partitions that grows, others beside it, who publishes and reads."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from emulator.admin_calls import Answer, NoAnswer
from emulator.client import (
    Batching,
    Client,
    ClientError,
    Consumer,
    ConsumerType,
    InitialPosition,
    Message,
    MessageId,
    Producer,
    TableView,
)
from emulator.client.partitioned_producer import PartitionedProducer
from emulator.history import payload_digest
from emulator.simulation.actors import place_of, text_of
from emulator.simulation.evidence import full
from emulator.simulation.vocabulary.spread_ledger import Ledger, Published, Standing
from emulator.simulation.vocabulary.word import Act, Stage
from emulator.simulation.world import CLIENT_SETTINGS

NAME = "spread"
PATIENCE_SECONDS = 60.0
"""For what has to come about, once nothing goes wrong any more."""
STEP_SECONDS = 5.0
AGAIN_SECONDS = 0.2
"""Before something that was refused, or not answered, is asked for again."""
LOST, STRANGE, DISORDER, ASTRAY, TABLE, SMALL, STUCK = (
    *("lost: ", "strange: ", "disorder: ", "astray: ", "table: ", "small: ", "stuck: "),
)


@dataclass(frozen=True, slots=True)
class Life:
    """Of a writer, from opening a producer to closing it."""

    begins_seconds: float
    place: str
    """The region in which it publishes."""
    topic: str
    """Behind the program's name; empty: the topic with partitions. other: one that its pattern almost fits."""
    messages: int
    pause_seconds: float
    keys: int
    deletes: float
    """How often a message takes its key away."""
    batching: Batching | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A subscription, and its consumers."""

    subscription: str
    of: str
    """partitions, list or pattern."""
    type_: str
    consumers: int
    queue: int
    asks_seconds: float
    """How often its client asks for partitions and topics."""
    away: tuple[float, float] | None = None
    """When its consumers leave, and for how long."""


@dataclass(frozen=True, slots=True)
class Growth:
    at_seconds: float
    region: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Spread(Act):
    reading: str
    """The region in which it reads."""
    partitions: int
    """At the beginning."""
    growth: tuple[Growth, ...]
    writers: tuple[tuple[Life, ...], ...]
    readings: tuple[Reading, ...]
    keeps_table: bool
    breaks_end_seconds: float
    """From then on nothing goes wrong."""

    word: ClassVar[str] = NAME
    is_waited_for: ClassVar[bool] = True

    @property
    def places(self) -> tuple[str, ...]:
        writing = (life.place for lives in self.writers for life in lives)
        return (self.region, self.reading, *writing, *(one.region for one in self.growth))

    async def perform(self, stage: Stage) -> None:
        await Program(self, stage).run()


class Program:
    """One that runs."""

    def __init__(self, act: Spread, stage: Stage) -> None:
        self.act = act
        self.stage = stage
        self.ledger = Ledger()
        self.base = full(stage.name)
        self._host = stage.world.client_host(stage.name, act.region)
        self._clients = 0
        self._table: TableView | None = None

    async def run(self) -> None:
        act = self.act
        if not await self._has_partitions():
            self._tell(f"{STUCK}{self.base} has no partitions in all regions")
            return
        async with asyncio.TaskGroup() as group:
            following = [
                group.create_task(self._follow(reading, number))
                for reading in act.readings
                for number in range(reading.consumers)
            ]
            if act.keeps_table:
                following.append(group.create_task(self._keep_table()))
            growing = group.create_task(self._grow())
            writing = [
                group.create_task(self._write(f"{self.stage.name}-w{number}", lives))
                for number, lives in enumerate(act.writers)
            ]
            await asyncio.wait([growing, *writing])
            sizes = await self._sizes_in_the_end()
            disagreement = await self._comes_about()
            for task in following:
                task.cancel()
        self._judge(disagreement, sizes)

    # Administering.

    async def _has_partitions(self) -> bool:
        """Every region knows of them before anybody uses the topic: or it would be one without partitions there."""
        wanted = self.act.partitions
        if not await self._insist("PUT", self.act.region, "partitions", wanted, done=(204, 409)):
            return False
        return await self._complete(self.act.region) and await self._have(wanted)

    async def _complete(self, region: str) -> bool:
        """Other clusters hear of partitions by the partitions: a call that was not answered may have made none."""
        return await self._insist("POST", region, "createMissedPartitions", None, done=(204,))

    async def _have(self, wanted: int) -> bool:
        """Whether all regions know of so many."""
        places = dict.fromkeys(self.act.places)
        give_up_at = self._give_up_at()
        while self.stage.now < give_up_at:
            if all([await self._size(place) >= wanted for place in places]):
                return True
            await asyncio.sleep(AGAIN_SECONDS)
        return False

    async def _grow(self) -> None:
        """One after the other; a region that does not know how large the topic is by now is asked again."""
        for growth in self.act.growth:
            await self._sleep_until(growth.at_seconds)
            give_up_at = self._give_up_at()
            while self.stage.now < give_up_at and await self._size(growth.region) < growth.partitions:
                await self._ask("POST", growth.region, "partitions", growth.partitions)
                await asyncio.sleep(AGAIN_SECONDS)
            await self._complete(growth.region)

    async def _sizes_in_the_end(self) -> str:
        """What a region says that does not know how large the topic is; empty: all know."""
        wanted = max([self.act.partitions, *(one.partitions for one in self.act.growth)])
        if await self._have(wanted):
            return ""
        sizes = {place: await self._size(place) for place in dict.fromkeys(self.act.places)}
        return f"{self.base} has {wanted} partitions, and regions say {sizes}"

    async def _insist(
        self, method: str, region: str, what: str, body: int | None, done: tuple[int, ...]
    ) -> bool:
        """Ask until the region says that it is so; False when it never did."""
        give_up_at = self._give_up_at()
        while self.stage.now < give_up_at:
            if await self._ask(method, region, what, body) in done:
                return True
            await asyncio.sleep(AGAIN_SECONDS)
        return False

    async def _ask(self, method: str, region: str, what: str, body: int | None) -> int:
        """The status; 0: no answer."""
        try:
            return (await self._call(method, region, what, body)).status
        except NoAnswer:
            return 0

    async def _size(self, region: str) -> int:
        """How many partitions it says there are; -1: it does not answer."""
        try:
            answer = await self._call("GET", region, "partitions", None)
        except NoAnswer:
            return -1
        return int(answer.json()["partitions"]) if answer.status == 200 else -1

    async def _call(self, method: str, region: str, what: str, body: int | None) -> Answer:
        target = f"/admin/v2/persistent/{self.base.partition('://')[2]}/{what}"
        return await self.stage.world.ask_admin(region, method, target, body, host=self._host)

    # Publishing.

    async def _write(self, name: str, lives: Sequence[Life]) -> None:
        number = 0
        for life in lives:
            await self._sleep_until(life.begins_seconds)
            client = self._client(life.place, asks_seconds=AGAIN_SECONDS)
            try:
                number = await self._publish(client, name, life, number)
            except (ClientError, TimeoutError):
                continue
            finally:
                await client.close()

    async def _publish(self, client: Client, name: str, life: Life, number: int) -> int:
        """The number of the next message."""
        async with asyncio.timeout_at(self._loop_time(self._give_up_at())):
            producer = await self._opened(client, name, life)
            under_way = []
            for _ in range(life.messages):
                under_way.append(self._send(producer, name, life, number))
                number += 1
                await asyncio.sleep(life.pause_seconds)
            await asyncio.gather(*under_way)
        return number

    async def _opened(self, client: Client, name: str, life: Life) -> Producer:
        topic = self._topic(life.topic)
        while True:
            try:
                return await client.producer(topic, name=name, batching=life.batching)
            except ClientError:
                await asyncio.sleep(AGAIN_SECONDS)

    def _topic(self, what: str) -> str:
        """The full name of a topic of the program's."""
        if what == "other":
            return f"{self.base}x"
        return f"{self.base}-{what}" if what else self.base

    def _send(self, producer: Producer, name: str, life: Life, number: int) -> asyncio.Future[None]:
        random = self.stage.random
        # Of a key that is published to in two regions nobody says which message is the last.
        key = f"{name}-{life.place}-{random.randrange(life.keys)}"
        value = b"" if random.random() < life.deletes else f"{name}/{number}".encode()
        topic, partition = producer.topic, -1
        if isinstance(producer, PartitionedProducer):
            partition = java_hash(key) % producer.partitions
            topic = f"{topic}-partition-{partition}"
        one = Published(topic, name, number, key, value, self.stage.now)
        self.ledger.sent[one.name] = one
        self._note(one, life, "asked")
        receipt = producer.send_nowait(value, key=key, sequence_id=number)
        return asyncio.ensure_future(self._answered(one, life, partition, receipt))

    async def _answered(
        self, one: Published, life: Life, partition: int, receipt: asyncio.Future[MessageId]
    ) -> None:
        try:
            place = await receipt
        except ClientError as failure:
            self._note(one, life, "failed" if failure.definite else "unknown")
            return
        if place.partition != partition:
            sentence = f"{one} has the key {one.key}, and was acknowledged in partition {place.partition}"
            self.ledger.astray.append(sentence)
        self.ledger.taken.add(one.name)
        self._note(one, life, "ok", message_id=str(place))

    def _note(self, one: Published, life: Life, outcome: str, **fields: str) -> None:
        self.stage.record.note(
            self.stage.name,
            "publish",
            outcome,  # type: ignore[arg-type]
            region=life.place,
            topic=one.topic,
            origin_region=life.place,
            producer=one.producer,
            sequence_id=one.number,
            session=f"{one.producer}#{life.begins_seconds}",
            payload_digest=payload_digest(one.value),
            detail=one.value.decode(),
            **fields,
        )

    # Consuming.

    async def _follow(self, reading: Reading, number: int) -> None:
        """One consumer, for as long as the program runs."""
        name = f"{self.stage.name}-{reading.subscription}"
        standing = self.ledger.standing.setdefault(
            name, Standing(self._fits(reading.of), reading.type_ != "SHARED")
        )
        client = self._client(self.act.reading, asks_seconds=reading.asks_seconds)
        try:
            while True:
                with contextlib.suppress(ClientError):
                    consumer = await self._subscribed(client, name, reading, standing, number)
                    await self._consume(consumer, standing, reading)
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            await client.close()

    async def _subscribed(
        self, client: Client, name: str, reading: Reading, standing: Standing, number: int
    ) -> Consumer:
        """Whoever comes back wants what is new: what it is owed is the subscription's business. That of a pattern is
        not in the topics yet that came meanwhile."""
        is_new = standing.since is None or reading.of == "pattern"
        consumer = await client.subscribe(
            self._topics(reading.of),
            name,
            type_=ConsumerType[reading.type_],
            initial_position=InitialPosition.EARLIEST if is_new else InitialPosition.LATEST,
            name=f"{name}-{number}",
            receiver_queue_size=reading.queue,
        )
        if standing.since is None:
            standing.since = self.stage.now
        return consumer

    def _topics(self, of: str) -> str | list[str] | re.Pattern[str]:
        if of == "partitions":
            return self.base
        if of == "list":
            return [self.base, self._topic("listed")]
        return re.compile(rf"{re.escape(self.base)}(-[a-z0-9]+)?")

    def _fits(self, of: str) -> Callable[[str], bool]:
        """With code of our own: of a partition its topic counts."""

        def fits(topic: str) -> bool:
            base, _, index = topic.partition("-partition-")
            if of == "partitions" or (of == "list" and base == self.base):
                return base == self.base and index.isdigit()
            if of == "list":
                return topic == self._topic("listed")
            return base == self.base or base.startswith(f"{self.base}-")

        return fits

    async def _consume(self, consumer: Consumer, standing: Standing, reading: Reading) -> None:
        """Until it leaves; then it stays away for a while."""
        leaves = reading.away is not None and self.stage.now < reading.away[0]
        until = self._loop_time(reading.away[0]) if reading.away is not None and leaves else None
        try:
            async with asyncio.timeout_at(until):
                while True:
                    message = await consumer.receive()
                    self._given(consumer, standing, message)
                    await consumer.acknowledge(message)
        except TimeoutError:
            await consumer.close()
            await asyncio.sleep(0.0 if reading.away is None else reading.away[1])
        finally:
            await consumer.close()

    def _given(self, consumer: Consumer, standing: Standing, message: Message) -> None:
        standing.give(message.topic, message.producer_name, message.sequence_id, message.key or "")
        self.stage.record.note(
            self.stage.name,
            "receive",
            "ok",
            region=self.act.reading,
            topic=message.topic,
            subscription=consumer.subscription,
            origin_region=message.replicated_from or self.act.reading,
            producer=message.producer_name,
            sequence_id=message.sequence_id,
            message_id=place_of(message),
            payload_digest=payload_digest(message.payload),
            detail=text_of(message),
        )

    # Keeping a table.

    async def _keep_table(self) -> None:
        client = self._client(self.act.reading, asks_seconds=1.0)
        try:
            while self._table is None:
                try:
                    self._table = await client.table_view(self.base)
                except ClientError:
                    await asyncio.sleep(AGAIN_SECONDS)
            await asyncio.get_running_loop().create_future()
        finally:
            await client.close()

    # In the end.

    async def _comes_about(self) -> str:
        """Wait until everything that is owed is there. What the table says otherwise; empty: nothing."""
        give_up_at = self._give_up_at()
        while self.stage.now < give_up_at:
            if self.ledger.is_given and not self._disagreement():
                return ""
            await asyncio.sleep(AGAIN_SECONDS)
        return self._disagreement()

    def _disagreement(self) -> str:
        if not self.act.keeps_table:
            return ""
        return self.ledger.disagreement(self.base, {} if self._table is None else dict(self._table))

    def _judge(self, disagreement: str, sizes: str) -> None:
        """The first that is wrong is told."""
        ledger = self.ledger
        found = [
            *(f"{STRANGE}{sentence}" for sentence in ledger.strangers()),
            *(f"{DISORDER}{sentence}" for sentence in ledger.disorder()),
            *(f"{ASTRAY}{sentence}" for sentence in ledger.astray),
            *([f"{SMALL}{sizes}"] if sizes else []),
            *(f"{LOST}{sentence}" for sentence in ledger.lost()),
            *([f"{TABLE}{disagreement}"] if disagreement else []),
        ]
        self._tell(found[0] if found else "")

    def _tell(self, found: str) -> None:
        told = found or f"{len(self.ledger.taken)} of {len(self.ledger.sent)} messages"
        self.stage.did("refused" if found else "accepted", topic=self.base, detail=told)

    # What it needs.

    def _client(self, region: str, *, asks_seconds: float) -> Client:
        settings = replace(
            CLIENT_SETTINGS,
            asks_for_partitions=True,
            partitions_interval_seconds=asks_seconds,
            topics_interval_seconds=asks_seconds * 10,
        )
        self._clients += 1
        return self.stage.world.client_on(
            self._host, (region,), settings, instance=f"{self.stage.name}-{self._clients}"
        )

    def _give_up_at(self) -> float:
        return max(self.stage.now, self.act.breaks_end_seconds) + PATIENCE_SECONDS

    async def _sleep_until(self, at_seconds: float) -> None:
        await asyncio.sleep(max(0.0, at_seconds - self.stage.now))

    def _loop_time(self, at_seconds: float) -> float:
        return asyncio.get_running_loop().time() + at_seconds - self.stage.now


def java_hash(text: str) -> int:
    """Java's String.hashCode, without its sign, of text in ASCII: with code of the judges' own."""
    hashed = 0
    for char in text:
        hashed = (hashed * 31 + ord(char)) % 2**32
    return hashed % 2**31
