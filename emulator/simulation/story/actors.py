"""Who takes part in a scenario, in a simulated world: our own client on a host that stands in the region it talks to.

What they do is what the actors with the real client do (`scenarios.producer_actor`, `scenarios.consumer_actor`), but
for the retries below and threads; what they write down has the words of every history, and the checkers' `detail`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

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
)
from emulator.history import attributes_digest, payload_digest
from emulator.scenarios.own_producer import ACCESS_MODES
from emulator.scenarios.workload import ConsumerPart, Counts, Hire, HostPart, Part, ProducerPart, TaskPart
from emulator.simulation.actors import place_of, text_of
from emulator.simulation.host import Host, HostDied
from emulator.simulation.record import Record
from emulator.simulation.story.hosts import OnHost, SimulatedHost, SimulatedMortal
from emulator.simulation.world import World

RETRY_SECONDS = 0.2
LEAVE_SECONDS = 1.0
"""How long an actor that moves on in good order may take to leave."""
POLL_SECONDS = 0.005
"""How often it is looked for room, outcomes and connections."""
BURST = 64
"""Most publishes of an unlimited producer in one breath."""


class SimulatedActor:
    """What producers and consumers have in common: a host in one region after the other."""

    def __init__(self, world: World, record: Record, part: Part) -> None:
        self.region = part.region
        self.problem: str | None = None
        self._world = world
        self._record = record
        self._name = part.name
        self._topic = part.topic
        self._host: Host | None = None
        self._client: Client | None = None
        self._connected = False

    async def begin(self, service_url: str) -> None:
        """The URL is the world's own: actors find regions by their names."""
        self._host = self._world.client_host(f"{self._name}@{self.region}", self.region)
        self._host.start(self._program(self._host), name=self._name)
        await self._until(lambda: self._connected)

    async def move(self, region: str, service_url: str) -> None:
        await self._go(orderly=self._connected)
        self.region = region
        await self.begin(service_url)

    async def leave(self) -> None:
        await self._go(orderly=False)

    async def _go(self, *, orderly: bool) -> None:
        host, client = self._host, self._client
        self._host, self._client, self._connected = None, None, False
        if host is None:
            return
        if orderly and client is not None:
            # Whoever answers may be dead, or cut off.
            with contextlib.suppress(TimeoutError, HostDied):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await host.ask(client.close())
        host.kill()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(POLL_SECONDS)

    def _new_client(self, host: Host, **settings: Any) -> Client:
        chosen = replace(self._world.client_settings, **settings)
        self._client = self._world.client_on(host, (self.region,), chosen)
        return self._client

    def _program(self, host: Host) -> Coroutine[Any, Any, None]:
        raise NotImplementedError

    def _note(self, op: str, outcome: Any, **fields: Any) -> None:
        self._record.note(self._name, op, outcome, region=self.region, topic=self._topic, **fields)


class SimulatedProducer(SimulatedActor):
    """Implements `workload.Actor` for a ProducerPart."""

    def __init__(self, world: World, record: Record, part: ProducerPart) -> None:
        super().__init__(world, record, part)
        self.part = part
        self._outcomes = {"ok": 0, "failed": 0, "unknown": 0}
        self._waiting: dict[int, tuple[str, str, str]] = {}
        """Sequence id -> region, session and text of publishes without an outcome."""
        self._session = ""
        self._asked = 0
        self._publishing = False
        self._told_to_finish = False
        self._next_sequence_id = 0

    @property
    def counts(self) -> Counts:
        return Counts(
            region=self.region,
            connected=self._connected,
            asked=self._asked,
            publishing=self._publishing,
            ok=self._outcomes["ok"],
            failed=self._outcomes["failed"],
            unknown=self._outcomes["unknown"],
        )

    async def finish(self) -> None:
        self._told_to_finish, self._publishing = True, False
        await self._until(lambda: not self.counts.pending)

    async def _go(self, *, orderly: bool) -> None:
        await super()._go(orderly=orderly)
        for number in list(self._waiting):  # a client that is gone takes with it what it waited for
            self._told(number, "unknown", error="the client was closed")

    async def _program(self, host: Host) -> None:
        timeout_ms = self.part.send_timeout_ms
        client = self._new_client(host, send_timeout_seconds=timeout_ms / 1000 if timeout_ms else None)
        while self._client is client:
            producer = await self._connect(client)
            # A region that remembers this producer name tells where its numbering stopped.
            self._next_sequence_id = max(self._next_sequence_id, producer.last_sequence_id + 1)
            self._connected = True
            self._publishing = self._has_more
            with contextlib.suppress(ClientError):  # it can send no more: another one takes over
                await self._publish_with(producer)
                return

    async def _connect(self, client: Client) -> Producer:
        part = self.part
        batching = Batching(delay_ms_max=max(1.0, part.batching_delay_ms)) if part.batching else None
        while True:
            self._note("connect", "asked", producer=self._name)
            try:
                producer = await client.producer(
                    part.topic,
                    name=part.name,
                    access_mode=ACCESS_MODES[part.access],
                    batching=batching,
                    pending_messages_max=part.max_pending + BURST,
                )
            except ClientError as refusal:
                self._note("connect", "unknown", producer=self._name, error=str(refusal))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._session = self._record.new_session(self._name)
                self._note(
                    "connect",
                    "ok",
                    producer=self._name,
                    session=self._session,
                    last_sequence_id=producer.last_sequence_id,
                )
                return producer

    @property
    def _has_more(self) -> bool:
        enough = self.part.messages is not None and self._asked >= self.part.messages
        return not (self._told_to_finish or enough)

    async def _publish_with(self, producer: Producer) -> None:
        rate = self.part.rate_per_second
        at_once, pause_seconds = (BURST, 0.0) if rate is None else (1, 1 / rate)
        while self._has_more:
            for _ in range(at_once):
                if self._has_more and self.counts.pending < self.part.max_pending:
                    self._publish_one(producer)
            self._publishing = self._has_more
            has_room = self.counts.pending < self.part.max_pending
            await asyncio.sleep(pause_seconds if has_room else max(pause_seconds, POLL_SECONDS))

    def _publish_one(self, producer: Producer) -> None:
        number, self._next_sequence_id = self._next_sequence_id, self._next_sequence_id + 1
        text = f"{self._name}/{number}/{self._asked}"
        self._asked += 1
        payload = text.encode().ljust(self.part.message_bytes, b" ")
        self._waiting[number] = (self.region, self._session, text)
        key = f"{self._name}-{number}" if self.part.keyed else None
        said = {
            "payload_digest": payload_digest(payload),
            "attributes_digest": attributes_digest(key),
            "key": key,
        }
        self._note_publish(number, self.region, self._session, text, "asked", **said)
        try:
            future = producer.send_nowait(payload, sequence_id=number, key=key)
        except ClientError as refusal:
            self._told(number, "failed", error=str(refusal))
            raise
        future.add_done_callback(partial(self._answered, number))

    def _answered(self, number: int, done: asyncio.Future[MessageId]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None and not done.cancelled():
            place = done.result()
            self._told(number, "ok", message_id=f"{place.ledger}:{place.entry}:{place.batch_index}")
        else:
            certain = isinstance(error, ClientError) and error.definite
            self._told(number, "failed" if certain else "unknown", error=str(error))

    def _told(self, number: int, outcome: str, **fields: str) -> None:
        self._note_publish(number, *self._waiting.pop(number), outcome, **fields)
        self._outcomes[outcome] += 1

    def _note_publish(
        self, number: int, region: str, session: str, text: str, outcome: Any, **fields: Any
    ) -> None:
        self._record.note(
            self._name,
            "publish",
            outcome,
            region=region,
            topic=self._topic,
            origin_region=region,
            producer=self._name,
            session=session,
            sequence_id=number,
            detail=text,
            **fields,
        )


class SimulatedConsumer(SimulatedActor):
    """Implements `workload.Actor` for a ConsumerPart."""

    def __init__(self, world: World, record: Record, part: ConsumerPart) -> None:
        super().__init__(world, record, part)
        self.part = part
        self._seen: set[tuple[str, str, int]] = set()
        self._repeated = 0

    @property
    def counts(self) -> Counts:
        return Counts(
            region=self.region,
            connected=self._connected,
            received=len(self._seen),
            repeated=self._repeated,
        )

    async def finish(self) -> None:
        await self._go(orderly=True)

    async def _program(self, host: Host) -> None:
        client = self._new_client(host)
        while self._client is client:
            self._note_subscribe("asked")
            try:
                consumer = await self._subscribe(client)
                self._note_subscribe("ok")
                self._connected = True
                while True:
                    message = await consumer.receive()
                    self._received(message)
                    await self._acknowledge(consumer, message)
            except ClientError as refusal:
                if self._client is not client:  # on its way elsewhere
                    return
                self._note_subscribe("unknown", error=str(refusal))
            await asyncio.sleep(RETRY_SECONDS)

    def _subscribe(self, client: Client) -> Coroutine[Any, Any, Consumer]:
        part = self.part
        return client.subscribe(
            part.topic,
            part.subscription,
            type_=ConsumerType[part.type.upper()],
            initial_position=InitialPosition.EARLIEST,
            replicated=part.replicated,
            name=part.name,
            receiver_queue_size=part.receiver_queue,
        )

    def _received(self, message: Message) -> None:
        origin_region = message.replicated_from or self.region
        identity = (origin_region, message.producer_name, message.sequence_id)
        self._note_mine(
            "receive",
            "ok",
            origin_region=origin_region,
            producer=message.producer_name,
            sequence_id=message.sequence_id,
            message_id=place_of(message),
            payload_digest=payload_digest(message.payload),
            detail=text_of(message),
        )
        self._repeated += identity in self._seen
        self._seen.add(identity)

    async def _acknowledge(self, consumer: Consumer, message: Message) -> None:
        """`asked` and no more, as with the real client: it returns before the region has heard of it."""
        how = self.part.acknowledge
        give = consumer.acknowledge_cumulative if how == "cumulative" else consumer.acknowledge
        self._note_mine("acknowledge", "asked", message_id=place_of(message), how=how)
        try:
            await give(message)
        except ClientError as refusal:
            self._note_mine(
                "acknowledge", "unknown", message_id=place_of(message), how=how, error=str(refusal)
            )

    def _note_subscribe(self, outcome: Any, **fields: Any) -> None:
        self._note_mine("subscribe", outcome, replicated=self.part.replicated, initial="earliest", **fields)

    def _note_mine(self, op: str, outcome: Any, **fields: Any) -> None:
        self._note(op, outcome, subscription=self.part.subscription, **fields)


def hire_simulated(world: World, record: Record) -> Hire:
    """Actors that live in `world` and write to `record`."""

    def hire(part: Part) -> SimulatedProducer | SimulatedConsumer | OnHost:
        if isinstance(part, ProducerPart):
            waits = part.access == "wait"
            return OnHost(world, record, part) if waits else SimulatedProducer(world, record, part)
        if isinstance(part, HostPart):
            return SimulatedHost(world, record, part)
        if isinstance(part, TaskPart):
            return SimulatedMortal(world, record, part)
        assert isinstance(part, ConsumerPart), "programs are refused when a story is loaded"
        return SimulatedConsumer(world, record, part)

    return hire
