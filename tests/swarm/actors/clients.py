"""The programs of a simulated run: producers, consumers and readers that record each request and its response.

Each program runs on its own host and may be killed at any moment. After a restart it continues from its persistent
state, like an application. The fields of the actor are that state; local variables are lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from emulator.client import (
    EARLIEST,
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
from emulator.simulation.evidence import full
from emulator.simulation.history import message_id_text, text_of
from emulator.simulation.host import HostState
from tests.swarm.plan import ConsumerPlan, ProducerPlan, ReaderPlan
from tests.swarm.record import received_fields

if TYPE_CHECKING:
    from tests.swarm.record import Record
    from tests.swarm.world import SwarmWorld

RETRY_SECONDS = 0.2
ACK_PAUSE_SECONDS = 0.3
LEAVE_SECONDS = 1.0
"""Virtual seconds that a consumer may take to close its client before it subscribes in another region."""


class Actor:
    """A simulated client program. `begin` starts its process, `kill` ends it; both can be repeated."""

    def __init__(self, world: SwarmWorld, record: Record, name: str, region: str, place: str) -> None:
        self.world = world
        self.record = record
        self.name = name
        self.region = region
        self.host = world.client_host(name, place)
        self.is_wanted = False
        self.random = world.simulation.random(f"actor {name}")

    def begin(self) -> None:
        if not self.is_wanted:
            self.is_wanted = True
            self.host.start(self._program(), name=self.name)

    def kill(self, *, silently: bool = False) -> None:
        self.is_wanted = False
        if silently:
            self.host.power_off()
        else:
            self.host.kill()

    def pause(self) -> None:
        self.host.pause()

    def resume(self) -> None:
        self.host.resume()

    def _program(self) -> Coroutine[Any, Any, None]:
        raise NotImplementedError


class ProducerActor(Actor):
    def __init__(self, world: SwarmWorld, record: Record, plan: ProducerPlan) -> None:
        super().__init__(world, record, plan.name, plan.region, plan.place or plan.region)
        self.plan = plan
        self.finished = False
        """Whether every message has an outcome."""
        self._outbox: dict[int, tuple[str, tuple[str, ...]]] = {}
        """Messages without a definite outcome: sequence id -> (text, `replicate_to`), in order of sequence ids."""
        self._next_number = 0
        self._requested = 0
        self._session = ""

    @property
    def waiting(self) -> list[str]:
        """Texts of messages that have no outcome yet."""
        return [text for text, _ in self._outbox.values()]

    async def _program(self) -> None:
        client = self.world.client_on(self.host, (self.region,))
        while not self.finished:
            with contextlib.suppress(ClientError):
                producer = await client.producer(
                    self.plan.topic, name=self.name, batching=self.plan.batching, pending_messages_max=10_000
                )
                self._session = self.record.new_session(self.name)
                self._note_connected(producer)
                await self._publish_with(producer)
                await producer.close()
                self.finished = not self._outbox and self._requested >= self.plan.messages
            await asyncio.sleep(RETRY_SECONDS)
        await client.close()

    async def _publish_with(self, producer: Producer) -> None:
        waiting = self._send_again(producer)
        while self._requested < self.plan.messages:
            for _ in range(min(self.plan.burst, self.plan.messages - self._requested)):
                waiting.append(self._send_new(producer))
            await asyncio.sleep(self.plan.pause_seconds * self.random.uniform(0.1, 1.9))
        if pending := [future for future in waiting if not future.done()]:
            await asyncio.wait(pending)
        if not self.plan.keeps_outbox:
            self._outbox.clear()

    def _send_again(self, producer: Producer) -> list[asyncio.Future[MessageId]]:
        if self.plan.keeps_outbox:
            return [
                self._send(producer, number, text, regions)
                for number, (text, regions) in sorted(self._outbox.items())
            ]
        self._outbox.clear()
        if self.world.replication_rules.deduplicates(full(self.plan.topic)):
            self._next_number = producer.last_sequence_id + 1
        return []

    def _send_new(self, producer: Producer) -> asyncio.Future[MessageId]:
        number, self._next_number = self._next_number, self._next_number + 1
        self._requested += 1
        text = f"{self.name}/{number}/{self._requested}"
        return self._send(producer, number, text, self._chosen_regions())

    def _chosen_regions(self) -> tuple[str, ...]:
        names = sorted(self.world.replication_rules.regions(full(self.plan.topic)))
        if self.random.random() >= self.plan.choosy or len(names) < 2:
            return ()
        return tuple(sorted(self.random.sample(names, self.random.randint(1, len(names) - 1))))

    def _send(
        self, producer: Producer, number: int, text: str, regions: tuple[str, ...]
    ) -> asyncio.Future[MessageId]:
        self._outbox[number] = (text, regions)
        payload, session = text.encode().ljust(self.plan.payload_bytes, b" "), self._session
        key = self.plan.key
        request = {
            "payload_digest": payload_digest(payload),
            "attributes_digest": attributes_digest(key),
            "replicate_to": list(regions) or None,
        }
        self._note(number, text, session, "asked", **request)
        future = producer.send_nowait(payload, key=key, sequence_id=number, replicate_to=regions)
        future.add_done_callback(partial(self._answered, number, text, session))
        if self.plan.repeats and self.random.random() < self.plan.repeats:
            self._note(number, text, session, "asked", **request)
            again = producer.send_nowait(payload, key=key, sequence_id=number, replicate_to=regions)
            again.add_done_callback(partial(self._answered, number, text, session))
        return future

    def _answered(self, number: int, text: str, session: str, done: asyncio.Future[MessageId]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None and not done.cancelled():
            self._outbox.pop(number, None)
            place = done.result()
            self._note(
                number, text, session, "ok", message_id=f"{place.ledger}:{place.entry}:{place.batch_index}"
            )
        else:
            certain = isinstance(error, ClientError) and error.definite
            self._note(number, text, session, "failed" if certain else "unknown", error=str(error))

    def _note_connected(self, producer: Producer) -> None:
        self.record.note(
            self.name,
            "connect",
            "ok",
            region=self.region,
            topic=self.plan.topic,
            producer=self.name,
            session=self._session,
            last_sequence_id=producer.last_sequence_id,
        )

    def _note(self, number: int, text: str, session: str, outcome: Any, **fields: Any) -> None:
        self.record.note(
            self.name,
            "publish",
            outcome,
            region=self.region,
            topic=self.plan.topic,
            origin_region=self.region,
            producer=self.name,
            session=session,
            sequence_id=number,
            detail=text,
            **fields,
        )


class ConsumerActor(Actor):
    """A consumer that can move: `move` continues it in another region, on another host."""

    def __init__(self, world: SwarmWorld, record: Record, plan: ConsumerPlan) -> None:
        super().__init__(world, record, f"{plan.name}@{plan.region}", plan.region, plan.region)
        self.plan = plan
        self.visited: list[str] = []
        """Regions in which the consumer has subscribed, each once, in order of the first subscription."""
        self.consumer: Consumer | None = None
        """The open consumer; None: not subscribed."""
        self.known_ids: list[MessageId] = []
        """Ids of the messages received in the current region."""
        self._unanswered: Message | None = None
        """The newest received message that is not yet acknowledged cumulatively."""
        self._held: list[Message] = []
        self._client: Client | None = None
        self._destination: str | None = None
        """The region that the consumer is moving to; None: it is not moving."""

    def move(self, region: str) -> None:
        """Continue in another region, after closing the client or after a kill; a random choice."""
        if region == (self._destination or self.region):
            return
        self._destination = region
        if self.host.state is HostState.UP and self.random.random() < 0.5:
            self.host.start(self._leave(), name="leave")
            self.world.simulation.at(self.world.simulation.now + LEAVE_SECONDS, self._arrive, region)
        else:
            self._arrive(region)

    def forget_held(self) -> None:
        """Forget the unacknowledged messages, like an application before a seek: the region redelivers them."""
        self._held.clear()
        self._unanswered = None

    def hurry(self) -> None:
        """Complete a move that is under way immediately."""
        if self._destination is not None:
            self._arrive(self._destination)

    def _arrive(self, region: str) -> None:
        if region != self._destination:
            return  # A later `move` chose another region.
        self._destination = None
        was_wanted = self.is_wanted
        self.kill()
        self.known_ids.clear()
        self.region = region
        self.host = self.world.client_host(f"{self.plan.name}@{region}", region)
        if was_wanted:
            self.begin()

    async def _leave(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _program(self) -> None:
        self.consumer = None  # a killed process did not close its consumer
        self._client = client = self.world.client_on(self.host, (self.region,))
        while True:
            with contextlib.suppress(ClientError):
                wanted = self._wanted()
                self._note("subscribe", "asked", **wanted)
                consumer = await self._subscribe(client)
                self._note("subscribe", "ok", **wanted)
                if self.region not in self.visited:
                    self.visited.append(self.region)
                await self._consume(consumer)
            if client.closed:
                return
            await asyncio.sleep(RETRY_SECONDS)

    def _wanted(self) -> dict[str, Any]:
        ranges = {"detail": ranges_text(self.plan.key_ranges)} if self.plan.key_ranges else {}
        return {"replicated": self.plan.replicated, "initial": "earliest", **ranges}

    def _subscribe(self, client: Client) -> Coroutine[Any, Any, Consumer]:
        plan = self.plan
        return client.subscribe(
            plan.topic,
            plan.subscription,
            type_=ConsumerType[plan.type],
            initial_position=InitialPosition.EARLIEST,
            replicated=plan.replicated,
            name=plan.consumer_name or plan.name,
            receiver_queue_size=plan.queue,
            key_ranges=plan.key_ranges,
            out_of_order=plan.out_of_order,
        )

    async def _consume(self, consumer: Consumer) -> None:
        self._held.clear()
        self.consumer = consumer
        self._unanswered = None
        owes = self.plan.holds or self.plan.cumulative
        acknowledging = asyncio.create_task(self._acknowledge_late(consumer)) if owes else None
        try:
            while True:
                message = await consumer.receive()
                self._received(message)
                if self.plan.think_seconds:
                    await asyncio.sleep(self.plan.think_seconds * self.random.random())
                await self._answer(consumer, message)
        finally:
            self.consumer = None
            if acknowledging is not None:
                acknowledging.cancel()
            with contextlib.suppress(ClientError):
                await consumer.close()

    async def _answer(self, consumer: Consumer, message: Message) -> None:
        plan, draw = self.plan, self.random.random
        if plan.refuses and not self.world.healing and draw() < plan.refuses:
            consumer.negative_acknowledge(message)
        elif plan.holds and not self.world.healing:
            self._held.append(message)
            if len(self._held) > plan.holds:
                await self._acknowledge(consumer, self._take_held())
        elif plan.cumulative:
            self._unanswered = message
            if self.world.healing or draw() < 0.4:
                await self._acknowledge(consumer, message)
        else:
            await self._acknowledge(consumer, message)

    async def _acknowledge_late(self, consumer: Consumer) -> None:
        """Acknowledge held messages after a pause, until the task is cancelled."""
        while True:
            await asyncio.sleep(ACK_PAUSE_SECONDS)
            with contextlib.suppress(ClientError):
                while self._held:
                    await self._acknowledge(consumer, self._take_held())
                    if not self.world.healing:
                        break
                if self.world.healing and self._unanswered is not None:
                    await self._acknowledge(consumer, self._unanswered)

    def _take_held(self) -> Message:
        return self._held.pop(self.random.randrange(len(self._held)))

    async def _acknowledge(self, consumer: Consumer, message: Message) -> None:
        confirmed = self.random.random() < self.plan.confirmed
        if message is self._unanswered:
            self._unanswered = None
        self._note_ack(message, "asked")
        give = consumer.acknowledge_cumulative if self.plan.cumulative else consumer.acknowledge
        try:
            await give(message, confirmed=confirmed)
        except ClientError as failure:
            self._note_ack(message, "failed" if failure.definite else "unknown", error=str(failure))
            return
        if confirmed:
            self._note_ack(message, "ok")

    def _note_ack(self, message: Message, outcome: Any, **fields: Any) -> None:
        how = "cumulative" if self.plan.cumulative else "individual"
        self._note("acknowledge", outcome, message_id=message_id_text(message), how=how, **fields)

    def _received(self, message: Message) -> None:
        self.known_ids.append(message.id)
        self._note("receive", "ok", **received_fields(message, self.region))

    def _note(self, op: str, outcome: Any, **fields: Any) -> None:
        self.record.note(
            self.plan.name,
            op,
            outcome,
            region=self.region,
            topic=self.plan.topic,
            subscription=self.plan.subscription,
            **fields,
        )


class ReaderActor(Actor):
    """A reader that reads from the earliest message after every start."""

    def __init__(self, world: SwarmWorld, record: Record, plan: ReaderPlan) -> None:
        super().__init__(world, record, plan.name, plan.region, plan.region)
        self.plan = plan

    async def _program(self) -> None:
        client = self.world.client_on(self.host, (self.region,))
        reader_number = 0
        while True:
            reader_number += 1
            with contextlib.suppress(ClientError):
                reader = await client.reader(self.plan.topic, EARLIEST, receiver_queue_size=self.plan.queue)
                while True:
                    self._read(await reader.receive(), f"{self.host.incarnation}.{reader_number}")
            await asyncio.sleep(RETRY_SECONDS)

    def _read(self, message: Message, reader_number: str) -> None:
        self.record.note(
            f"{self.name} {reader_number}",
            "read",
            "ok",
            region=self.region,
            topic=self.plan.topic,
            origin_region=message.replicated_from or self.region,
            producer=message.producer_name,
            sequence_id=message.sequence_id,
            message_id=message_id_text(message),
            detail=text_of(message),
        )


def ranges_text(ranges: Iterable[tuple[int, int]]) -> str:
    """Return key ranges in the format of histories: `first..last,first..last`."""
    return ",".join(f"{first}..{last}" for first, last in ranges)
