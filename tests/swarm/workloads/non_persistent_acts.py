"""Acts of the workload `non-persistent`: a program that publishes to a non-persistent topic, its consumers, and the
messages that they received."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from emulator.client import Client, ClientError, Consumer, ConsumerType, Producer
from emulator.net.http import NoHttpResponse
from tests.swarm.workload import ActContext
from tests.swarm.workloads.expiring_program import CONVERGENCE_SECONDS, STEP_SECONDS, OwnTopicProgram

NAME = "pass-by"
SWIFT_SECONDS = 0.03
"""Longest duration of a send that the client certainly sent only once: its reconnect backoff is longer."""
SETTLE_SECONDS = 1.0
"""Time after a publish in which all its deliveries complete without faults."""
GIVEN = "given: "
UNCOUNTED = "uncounted: "
LEFT = "left: "


@dataclass(frozen=True, slots=True)
class Listener:
    """The consumers of one subscription in one region."""

    region: str
    subscription: str
    type: str
    consumers: int
    queue: int
    think_seconds: float
    """Longest processing time of a message."""

    def __str__(self) -> str:
        return f"{self.subscription} ({self.type}) in {self.region}"


class ReceivedMessage(NamedTuple):
    place: str
    number: int
    consumer: int

    @property
    def incarnation(self) -> str:
        """The ledger of the topic in the region. A region that was restarted cannot recognise messages sent again."""
        return self.place.partition(":")[0]


@dataclass(slots=True)
class Notes:
    """The publishes and deliveries that a program recorded."""

    sent: set[int] = field(default_factory=set)
    """Numbers of all published messages."""
    swift: set[int] = field(default_factory=set)
    """Numbers of messages that were certainly sent only once."""
    heard: dict[Listener, list[ReceivedMessage]] = field(default_factory=dict)

    def wrong(self) -> str:
        """Return a sentence with a wrong delivery; empty: there is none."""
        for listener, heard in self.heard.items():
            if reported := self._wrong_for(heard):
                return f"{listener} {reported}"
        return ""

    def _wrong_for(self, heard: list[ReceivedMessage]) -> str:
        places = Counter(one.place for one in heard)
        numbers = Counter((one.incarnation, one.number) for one in heard)
        last: dict[tuple[str, int], int] = {}
        for one in heard:
            place, number, consumer = one
            times = max(places[place], numbers[one.incarnation, number] if number in self.swift else 0)
            before = last.get((one.incarnation, consumer), -1)
            if number not in self.sent:
                return f"received {number}, which no client sent"
            if times > 1:
                return f"received {number} {times} times, once at {place}"
            if number in self.swift:
                if number < before:
                    return f"received {number} after {before}"
                last[one.incarnation, consumer] = number
        return ""


@dataclass(frozen=True, slots=True)
class NonPersistentProgram(OwnTopicProgram):
    """A program that publishes during faults, and again after them, and then compares counts of messages."""

    listeners: tuple[Listener, ...]
    burst: int
    """Number of messages sent concurrently."""

    workload: ClassVar[str] = NAME

    def topic(self, context: ActContext) -> str:
        return f"non-persistent://public/default/{context.name}"

    async def perform(self, context: ActContext) -> None:
        notes, clients = Notes(), [self.client_for(self.region, context, "writer")]
        listening = []
        for listener in dict.fromkeys(self.listeners):
            clients.append(self._listening_in(listener.region, context, f"{listener}"))
            notes.heard[listener] = []
            listening += [
                asyncio.ensure_future(
                    self._listen(clients[-1], context, listener, number, notes.heard[listener])
                )
                for number in range(listener.consumers)
            ]
        try:
            await self._publish_and_count(clients[0], context, notes)
        finally:
            for one in listening:
                one.cancel()
            for client in clients:
                await client.close()

    def _listening_in(self, region: str, context: ActContext, instance: str) -> Client:
        """Open a client on a host in that region: it is not affected by faults of links between regions."""
        host = context.world.client_host(f"{context.name}@{region}", region)
        host.network.loop = context.world.client_host(context.name, self.region).loop
        return context.world.client_on(host, (region,), instance=instance)

    async def _listen(
        self,
        client: Client,
        context: ActContext,
        listener: Listener,
        consumer: int,
        heard: list[ReceivedMessage],
    ) -> None:
        """Consume and record deliveries until the task is cancelled."""
        taken = await self._taken(client, context, listener)
        while True:
            message = await taken.receive()
            place = f"{message.id.ledger}:{message.id.entry}:{message.id.batch_index}"
            heard.append(ReceivedMessage(place, int(message.payload.rpartition(b"/")[2]), consumer))
            if context.random.random() < 0.2:
                taken.negative_acknowledge(message)
            if listener.think_seconds:
                await asyncio.sleep(listener.think_seconds * context.random.random())

    async def _taken(self, client: Client, context: ActContext, listener: Listener) -> Consumer:
        """Subscribe, and repeat the request until it succeeds."""
        while True:
            try:
                return await client.subscribe(
                    self.topic(context),
                    listener.subscription,
                    type_=ConsumerType[listener.type],
                    receiver_queue_size=listener.queue,
                )
            except ClientError:
                await asyncio.sleep(0.2)

    async def _publish_and_count(self, client: Client, context: ActContext, notes: Notes) -> None:
        producer = await client.producer(self.topic(context), name=context.name)
        while context.now < self.faults_end_seconds and len(notes.sent) < self.messages:
            await asyncio.gather(*(self._send(producer, context, notes) for _ in range(self.burst)))
            await asyncio.sleep(self.pause_seconds * self.burst)
        await self.wait_for_repair(context)
        reported = await self._counted(producer, context, notes)
        if wrong := notes.wrong():
            self._report(context, f"{GIVEN}{wrong}")
        elif reported:
            self._report(context, f"{UNCOUNTED}{reported}")
        elif left := self._left(context):
            self._report(context, f"{LEFT}{left}")
        else:
            context.note_result("accepted", topic=self.topic(context))

    async def _send(self, producer: Producer, context: ActContext, notes: Notes) -> None:
        number, began = len(notes.sent), context.now
        notes.sent.add(number)
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await producer.send(self._payload(context, number), key=f"key-{number % 3}")
        except (ClientError, TimeoutError):
            return
        if context.now - began <= SWIFT_SECONDS:
            notes.swift.add(number)

    def _payload(self, context: ActContext, number: int) -> bytes:
        return f"{context.name}/{number}".encode()

    # Counting after the faults end.

    async def _counted(self, producer: Producer, context: ActContext, notes: Notes) -> str:
        """Return a sentence with a listener whose received and dropped messages differ from those sent; empty: none."""
        before = await self._from_when_all_hear(producer, context, notes)
        if before is None:
            return "nothing arrives any more"
        first, sent = len(notes.sent), 0
        while sent < self.messages:
            count = min(self.burst, self.messages - sent)
            sends = [
                producer.send(self._payload(context, first + sent + number), key=f"key-{number % 3}")
                for number in range(count)
            ]
            notes.sent |= set(range(first + sent, first + sent + count))
            await asyncio.gather(*sends)
            sent += count
            await asyncio.sleep(self.pause_seconds)
        give_up_at = context.now + CONVERGENCE_SECONDS
        while wrong := self._difference(before, await self._totals(context, notes), sent):
            if context.now > give_up_at:
                return wrong
            await asyncio.sleep(0.2)
        return ""

    async def _from_when_all_hear(
        self, producer: Producer, context: ActContext, notes: Notes
    ) -> Mapping[Listener, int] | None:
        """Return the totals once every listener receives or drops each publish; None: not before the deadline."""
        give_up_at = context.now + 2 * CONVERGENCE_SECONDS
        before = await self._totals(context, notes)
        while context.now < give_up_at:
            await self._send(producer, context, notes)
            await asyncio.sleep(SETTLE_SECONDS)
            now = await self._totals(context, notes)
            if not self._difference(before, now, 1):
                return now
            before = now
        return None

    def _difference(self, before: Mapping[Listener, int], after: Mapping[Listener, int], sent: int) -> str:
        for listener in dict.fromkeys(self.listeners):
            if listener not in before or listener not in after:
                return f"{listener}: the number of dropped messages is unknown"
            count = after[listener] - before[listener]
            if count != sent:
                return f"of {sent} messages {listener} received {count}, including those counted as dropped"
        return ""

    async def _totals(self, context: ActContext, notes: Notes) -> dict[Listener, int]:
        """Return the number of messages of each listener: received, dropped by the replicator, dropped by dispatch."""
        totals = {}
        stats = {
            region: await self._stats(context, region)
            for region in dict.fromkeys((self.region, self.reading))
        }
        for listener in dict.fromkeys(self.listeners):
            subscription = stats[listener.region].get("subscriptions", {}).get(listener.subscription)
            on_the_way: Any = {"msgDropCount": 0}
            if listener.region != self.region:
                on_the_way = stats[self.region].get("replication", {}).get(listener.region)
            if subscription is not None and on_the_way is not None:
                dropped = subscription["msgDropCount"] + on_the_way["msgDropCount"]
                totals[listener] = len(notes.heard[listener]) + dropped
        return totals

    async def _stats(self, context: ActContext, region: str) -> dict[str, Any]:
        """Return the topic's stats in the region; empty: no response."""
        host = context.world.client_host(context.name, self.region)
        target = f"/admin/v2/non-persistent/public/default/{context.name}/stats"
        try:
            answer = await context.world.ask_admin(region, "GET", target, host=host)
        except NoHttpResponse:
            return {}
        return dict(answer.json()) if answer.status == 200 else {}

    def _left(self, context: ActContext) -> str:
        """Return a sentence with a log or value of the topic on a disk; empty: there is none."""
        for name, region in context.world.regions.items():
            for key in (*region.medium.logs, *region.medium.values):
                if context.name in key:
                    return f"{name} has {key}"
        return ""

    def _report(self, context: ActContext, reported: str) -> None:
        context.note_result("refused", topic=self.topic(context), detail=reported)
