"""The actors of a simulated scenario: geoemu's own client, on a host in the region to which it is connected.

They behave like the actors with the real client (`scenarios.actors.pulsar_producer`, `.pulsar_consumer`), except for
threads and the retries below. Their histories have the common format, and the `detail` that the checkers need.
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
from emulator.run.history_events import attributes_digest, payload_digest
from emulator.scenarios.actors.exclusive_producer import ACCESS_MODES
from emulator.scenarios.actors.pulsar_producer import PartitionSender, choose
from emulator.scenarios.actors.specs import (
    ActorSpec,
    ConsumerSpec,
    Counts,
    CreateActor,
    HostSpec,
    ProducerSpec,
    TaskSpec,
)
from emulator.simulation.history import SimulatedHistory, message_id_text, text_of
from emulator.simulation.host import Host, HostDied
from emulator.simulation.scenarios.hosts import HostedActor, SimulatedHost, SimulatedRestartableActor
from emulator.simulation.world import World

RETRY_SECONDS = 0.2
LEAVE_SECONDS = 1.0
"""Time that closing the client may take when a connected actor moves, or a consumer finishes."""
POLL_SECONDS = 0.005
"""Interval at which an actor checks for connections, outcomes and room for further publishes."""
BURST = 64
"""Maximum number of publishes that a producer without a rate sends without a pause."""


class SimulatedActor:
    """The common part of producers and consumers: a client on a simulated host, which moves from region to region."""

    def __init__(self, world: World, history: SimulatedHistory, part: ActorSpec) -> None:
        self.region = part.region
        self.problem: str | None = None
        self._world = world
        self._history = history
        self._name = part.name
        self._host: Host | None = None
        self._client: Client | None = None
        self._connected = False

    async def begin(self, service_url: str) -> None:
        """Start the actor in its region, and wait until it is connected. The URL is not used: actors connect to regions
        by name."""
        self._host = self._world.client_host(f"{self._name}@{self.region}", self.region)
        self._host.start(self._program(self._host), name=self._name)
        await self._wait_until(lambda: self._connected)

    async def move(self, region: str, service_url: str) -> None:
        await self._disconnect(orderly=self._connected)
        self.region = region
        await self.begin(service_url)

    async def leave(self) -> None:
        await self._disconnect(orderly=False)

    async def _disconnect(self, *, orderly: bool) -> None:
        host, client = self._host, self._client
        self._host, self._client, self._connected = None, None, False
        if host is None:
            return
        if orderly and client is not None:
            # The region may be dead, or the link cut.
            with contextlib.suppress(TimeoutError, HostDied):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await host.ask(client.close())
        host.kill()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(POLL_SECONDS)

    def _new_client(self, host: Host, **settings: Any) -> Client:
        changed = replace(self._world.client_settings, **settings)
        self._client = self._world.client_on(host, (self.region,), changed)
        return self._client

    def _program(self, host: Host) -> Coroutine[Any, Any, None]:
        raise NotImplementedError

    def _note(self, op: str, outcome: Any, *, topic: str, **fields: Any) -> None:
        self._history.note(self._name, op, outcome, region=self.region, topic=topic, **fields)


class SimulatedProducer(SimulatedActor):
    """Implements `actors.specs.Actor` for a ProducerSpec."""

    def __init__(self, world: World, history: SimulatedHistory, part: ProducerSpec) -> None:
        super().__init__(world, history, part)
        self.part = part
        self._outcomes = {"ok": 0, "failed": 0, "unknown": 0}
        self._pending_publishes: dict[tuple[str, int], tuple[str, str, str]] = {}
        """Publishes without an outcome: (topic, sequence id) -> (region, session, text)."""
        self._senders = [PartitionSender[Producer](topic) for topic in part.topics]
        self._requested = 0
        self._publishing = False
        self._finishing = False

    @property
    def counts(self) -> Counts:
        return Counts(
            region=self.region,
            connected=self._connected,
            asked=self._requested,
            publishing=self._publishing,
            ok=self._outcomes["ok"],
            failed=self._outcomes["failed"],
            unknown=self._outcomes["unknown"],
        )

    async def finish(self) -> None:
        self._finishing, self._publishing = True, False
        await self._wait_until(lambda: not self.counts.pending)

    async def _disconnect(self, *, orderly: bool) -> None:
        await super()._disconnect(orderly=orderly)
        for message in list(self._pending_publishes):  # a closed client receives no receipts for them
            self._record_outcome(message, "unknown", error="the client was closed")

    async def _program(self, host: Host) -> None:
        timeout_ms = self.part.send_timeout_ms
        client = self._new_client(host, send_timeout_seconds=timeout_ms / 1000 if timeout_ms else None)
        while self._client is client:
            for sender in self._senders:
                await self._connect(client, sender)
            self._connected = True
            self._publishing = self._has_more
            with contextlib.suppress(ClientError):  # the client has failed: connect again
                await self._publish()
                return
            for sender in self._senders if self.part.partitions else ():
                assert sender.producer is not None
                await sender.producer.close()  # the next producers need the name

    async def _connect(self, client: Client, sender: PartitionSender[Producer]) -> None:
        part, fields = self.part, {"producer": self._name, "topic": sender.topic}
        batching = Batching(delay_ms_max=max(1.0, part.batching_delay_ms)) if part.batching else None
        while True:
            self._note("connect", "asked", **fields)
            try:
                producer = await client.producer(
                    sender.topic,
                    name=part.name,
                    access_mode=ACCESS_MODES[part.access],
                    batching=batching,
                    pending_messages_max=part.max_pending + BURST,
                )
            except ClientError as refusal:
                self._note("connect", "unknown", error=str(refusal), **fields)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                session, last = self._history.new_session(self._name), producer.last_sequence_id
                sender.opened(producer, session, last)
                self._note("connect", "ok", session=session, last_sequence_id=last, **fields)
                return

    @property
    def _has_more(self) -> bool:
        enough = self.part.messages is not None and self._requested >= self.part.messages
        return not (self._finishing or enough)

    async def _publish(self) -> None:
        rate = self.part.rate_per_second
        burst, pause_seconds = (BURST, 0.0) if rate is None else (1, 1 / rate)
        while self._has_more:
            for _ in range(burst):
                if self._has_more and self.counts.pending < self.part.max_pending:
                    self._publish_one()
            self._publishing = self._has_more
            has_room = self.counts.pending < self.part.max_pending
            await asyncio.sleep(pause_seconds if has_room else max(pause_seconds, POLL_SECONDS))

    def _publish_one(self) -> None:
        key_number = self._requested if self.part.partitions else self._senders[0].next_sequence_id
        key = f"{self._name}-{key_number}" if self.part.keyed else None
        sender = choose(self._senders, key, self._requested)
        assert sender.producer is not None
        number = sender.number()
        message, text = (sender.topic, number), f"{self._name}/{number}/{self._requested}"
        self._requested += 1
        payload = text.encode().ljust(self.part.message_bytes, b" ")
        self._pending_publishes[message] = (self.region, sender.session, text)
        fields = {
            "payload_digest": payload_digest(payload),
            "attributes_digest": attributes_digest(key),
            "key": key,
        }
        self._note_publish(message, self.region, sender.session, text, "asked", **fields)
        try:
            future = sender.producer.send_nowait(payload, sequence_id=number, key=key)
        except ClientError as refusal:
            self._record_outcome(message, "failed", error=str(refusal))
            raise
        future.add_done_callback(partial(self._receipt_arrived, message))

    def _receipt_arrived(self, message: tuple[str, int], done: asyncio.Future[MessageId]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None and not done.cancelled():
            id_ = done.result()
            self._record_outcome(message, "ok", message_id=f"{id_.ledger}:{id_.entry}:{id_.batch_index}")
        else:
            is_definite = isinstance(error, ClientError) and error.definite
            self._record_outcome(message, "failed" if is_definite else "unknown", error=str(error))

    def _record_outcome(self, message: tuple[str, int], outcome: str, **fields: str) -> None:
        self._note_publish(message, *self._pending_publishes.pop(message), outcome, **fields)
        self._outcomes[outcome] += 1

    def _note_publish(
        self, message: tuple[str, int], region: str, session: str, text: str, outcome: Any, **fields: Any
    ) -> None:
        self._history.note(
            self._name,
            "publish",
            outcome,
            region=region,
            topic=message[0],
            origin_region=region,
            producer=self._name,
            session=session,
            sequence_id=message[1],
            detail=text,
            **fields,
        )


class SimulatedConsumer(SimulatedActor):
    """Implements `actors.specs.Actor` for a ConsumerSpec."""

    def __init__(self, world: World, history: SimulatedHistory, part: ConsumerSpec) -> None:
        super().__init__(world, history, part)
        self.part = part
        self._seen: set[tuple[str, str, str, int]] = set()
        self._repeated = 0
        self._subscribed: set[str] = set()
        """Topics whose subscription has succeeded in the current region."""

    @property
    def counts(self) -> Counts:
        return Counts(
            region=self.region,
            connected=self._connected,
            received=len(self._seen),
            repeated=self._repeated,
        )

    async def finish(self) -> None:
        await self._disconnect(orderly=True)

    async def _program(self, host: Host) -> None:
        client = self._new_client(host)
        self._subscribed.clear()
        first, *others = self.part.topics
        tasks = [host.loop.create_task(self._consume(client, topic)) for topic in others]
        await self._consume(client, first)
        await asyncio.gather(*tasks)

    async def _consume(self, client: Client, topic: str) -> None:
        while self._client is client:
            self._note_subscribe(topic, "asked")
            try:
                consumer = await self._subscribe(client, topic)
                self._note_subscribe(topic, "ok")
                self._subscribed.add(topic)
                self._connected = len(self._subscribed) == len(self.part.topics)
                while True:
                    message = await consumer.receive()
                    if not self._received(topic, message):
                        await self._acknowledge(consumer, message)
            except ClientError as refusal:
                if self._client is not client:  # it is moving to another region
                    return
                self._note_subscribe(topic, "unknown", error=str(refusal))
            await asyncio.sleep(RETRY_SECONDS)

    def _subscribe(self, client: Client, topic: str) -> Coroutine[Any, Any, Consumer]:
        part = self.part
        return client.subscribe(
            topic,
            part.subscription,
            type_=ConsumerType[part.type.upper()],
            initial_position=InitialPosition.EARLIEST,
            replicated=part.replicated,
            name=part.name,
            receiver_queue_size=part.receiver_queue,
        )

    def _received(self, topic: str, message: Message) -> bool:
        """Record a delivery, and return whether the actor leaves the message unacknowledged."""
        origin_region = message.replicated_from or self.region
        identity = (topic, origin_region, message.producer_name, message.sequence_id)
        self._note_subscription_event(
            "receive",
            "ok",
            topic=topic,
            origin_region=origin_region,
            producer=message.producer_name,
            sequence_id=message.sequence_id,
            message_id=message_id_text(message),
            payload_digest=payload_digest(message.payload),
            detail=text_of(message),
        )
        is_repeated = identity in self._seen
        self._repeated += is_repeated
        self._seen.add(identity)
        return not is_repeated and len(self._seen) == self.part.leaves_unacknowledged

    async def _acknowledge(self, consumer: Consumer, message: Message) -> None:
        """Acknowledge a message, and record only `asked` unless it fails: like the real client, whose call returns
        before the region has received the acknowledgement."""
        how = self.part.acknowledge
        acknowledge = consumer.acknowledge_cumulative if how == "cumulative" else consumer.acknowledge
        fields = {"topic": consumer.topic, "message_id": message_id_text(message), "how": how}
        self._note_subscription_event("acknowledge", "asked", **fields)
        try:
            await acknowledge(message)
        except ClientError as refusal:
            self._note_subscription_event("acknowledge", "unknown", error=str(refusal), **fields)

    def _note_subscribe(self, topic: str, outcome: Any, **fields: Any) -> None:
        options = {"replicated": self.part.replicated, "initial": "earliest"}
        self._note_subscription_event("subscribe", outcome, topic=topic, **options, **fields)

    def _note_subscription_event(self, op: str, outcome: Any, **fields: Any) -> None:
        self._note(op, outcome, subscription=self.part.subscription, **fields)


def simulated_actors(world: World, history: SimulatedHistory) -> CreateActor:
    """Return the factory of actors that run in `world` and write to `history`."""

    def create_actor(part: ActorSpec) -> SimulatedProducer | SimulatedConsumer | HostedActor:
        if isinstance(part, ProducerSpec):
            waits = part.access == "wait"
            return HostedActor(world, history, part) if waits else SimulatedProducer(world, history, part)
        if isinstance(part, HostSpec):
            return SimulatedHost(world, history, part)
        if isinstance(part, TaskSpec):
            return SimulatedRestartableActor(world, history, part)
        assert isinstance(part, ConsumerSpec), "programs are rejected when a scenario is loaded"
        return SimulatedConsumer(world, history, part)

    return create_actor
