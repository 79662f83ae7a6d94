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
"""A send that takes no longer was sent once: our client waits longer than that before it connects again."""
SETTLE_SECONDS = 1.0
"""Without any publish or delivery, in a run without faults."""
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
    """About how long each takes for a message."""

    def __str__(self) -> str:
        return f"{self.subscription} ({self.type}) in {self.region}"


class ReceivedMessage(NamedTuple):
    place: str
    number: int
    consumer: int

    @property
    def life(self) -> str:
        """Of the topic there: its ledger. What is sent again to a region that died no region can tell from what is
        new."""
        return self.place.partition(":")[0]


@dataclass(slots=True)
class Notes:
    """What the program knows."""

    sent: set[int] = field(default_factory=set)
    """Numbers that it asked to be published."""
    swift: set[int] = field(default_factory=set)
    """Those that were certainly sent once."""
    heard: dict[Listener, list[ReceivedMessage]] = field(default_factory=dict)

    def wrong(self) -> str:
        """What received that must not be; empty: nothing."""
        for listener, heard in self.heard.items():
            if reported := self._wrong_for(heard):
                return f"{listener} {reported}"
        return ""

    def _wrong_for(self, heard: list[ReceivedMessage]) -> str:
        places = Counter(one.place for one in heard)
        numbers = Counter((one.life, one.number) for one in heard)
        last: dict[tuple[str, int], int] = {}
        for one in heard:
            place, number, consumer = one
            times = max(places[place], numbers[one.life, number] if number in self.swift else 0)
            before = last.get((one.life, consumer), -1)
            if number not in self.sent:
                return f"received {number}, which no client sent"
            if times > 1:
                return f"received {number} {times} times, once at {place}"
            if number in self.swift:
                if number < before:
                    return f"received {number} after {before}"
                last[one.life, consumer] = number
        return ""


@dataclass(frozen=True, slots=True)
class NonPersistentProgram(OwnTopicProgram):
    """It publishes while things go wrong, and once more when nothing does; then everything is counted."""

    listeners: tuple[Listener, ...]
    burst: int
    """So many at once."""

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
        """For ever."""
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
        """As soon as the region takes it."""
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
        """What is not as the counts say; empty: nothing."""
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
        """Return the totals once every publish is delivered and none is pending. None: that never happens."""
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
        """Of each listener: what it received and what was dropped for it, on the way and where it listens."""
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
        """Empty: no response."""
        host = context.world.client_host(context.name, self.region)
        target = f"/admin/v2/non-persistent/public/default/{context.name}/stats"
        try:
            answer = await context.world.ask_admin(region, "GET", target, host=host)
        except NoHttpResponse:
            return {}
        return dict(answer.json()) if answer.status == 200 else {}

    def _left(self, context: ActContext) -> str:
        """What the disks have of it."""
        for name, region in context.world.regions.items():
            for key in (*region.disk.logs, *region.disk.values):
                if context.name in key:
                    return f"{name} has {key}"
        return ""

    def _report(self, context: ActContext, reported: str) -> None:
        context.note_result("refused", topic=self.topic(context), detail=reported)
