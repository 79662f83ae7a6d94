"""Acts of the workload `topic-termination`: topics that are terminated, deleted without force, or deleted as unused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar

from emulator.client import Client, ClientError, Consumer, InitialPosition, Producer
from emulator.core.policies.lifetime import DeleteMode
from emulator.errors import ServerError
from emulator.net.http import NoHttpResponse
from tests.swarm.topics import DELETED
from tests.swarm.workload import ActContext
from tests.swarm.workloads.expiring_program import (
    CONVERGENCE_SECONDS,
    STEP_SECONDS,
    SUBSCRIPTION,
    OwnTopicProgram,
)

NAME = "finish"
AFTER, BEHIND, LOST, TAKEN, STAYS = "after: ", "behind: ", "lost: ", "taken: ", "stays: "
USED = 412
"""HTTP status of a region that rejects a deletion because the topic is in use."""


@dataclass(slots=True)
class Receipts:
    """The publishes of a program."""

    taken: dict[bytes, float] = field(default_factory=dict)
    """Payload of each message with a receipt -> time of the send."""
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class TerminatingProgram(OwnTopicProgram):
    """Base class of programs whose topic may exist in other regions after it was deleted in this one."""

    workload: ClassVar[str] = NAME

    def topic(self, context: ActContext) -> str:
        return f"{DELETED}{context.name}"

    async def publish_one(
        self, client: Client, producer: Producer | None, context: ActContext, to: Receipts
    ) -> Producer | None:
        """Publish one message with this producer; None: with a new one. Return the producer; None: it failed and was
        closed."""
        number, sent = to.attempts, context.now
        to.attempts += 1
        payload = f"{context.name}/{number}".encode()
        try:
            async with asyncio.timeout(STEP_SECONDS):
                if producer is None:
                    producer = await client.producer(self.topic(context), name=f"{context.name}-{number}")
                await producer.send(payload)
                to.taken[payload] = sent
        except (ClientError, TimeoutError):
            if producer is not None:
                await self._close_producer(producer)
            return None
        return producer

    async def _close_producer(self, producer: Producer) -> None:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await producer.close()
        except (ClientError, TimeoutError):
            return

    async def lost(self, client: Client, context: ActContext, subscription: str, receipts: Receipts) -> str:
        """Return a sentence with messages that have a receipt and are not delivered; empty: none."""
        earliest, wanted = InitialPosition.EARLIEST, set(receipts.taken)
        consumer = await client.subscribe(self.topic(context), subscription, initial_position=earliest)
        missing = wanted - await self.everything(consumer, context, wanted)
        await consumer.close()
        return f"{min(missing).decode()} and {len(missing) - 1} more of {len(wanted)}" if missing else ""

    async def is_gone(self, context: ActContext) -> bool:
        """Whether the topic is deleted before the deadline."""
        give_up_at = context.now + CONVERGENCE_SECONDS
        while context.now < give_up_at:
            try:
                if await self.stats(context, self.reading) is None:
                    return True
            except NoHttpResponse:
                pass
            await asyncio.sleep(0.5)
        return False

    def tell(self, context: ActContext, reported: str) -> None:
        context.note_result("refused", topic=self.topic(context), detail=reported)


@dataclass(frozen=True, slots=True)
class Termination(TerminatingProgram):
    """A program that terminates its topic and continues to publish to it."""

    ends_at_seconds: float

    async def perform(self, context: ActContext) -> None:
        client, receipts = self.reader(context), Receipts()
        try:
            await (await self.subscribed(client, context, SUBSCRIPTION)).close()
            publishing = asyncio.ensure_future(self._publish(client, context, receipts))
            await asyncio.sleep(max(0.0, self.ends_at_seconds - context.now))
            last = await self._terminate(context)
            ended = context.now
            await publishing
            await self.wait_for_repair(context)
            if last is not None:
                refusal = await self._refusal(client, context)
                if lost := await self.lost(client, context, SUBSCRIPTION, receipts):
                    self.tell(context, f"{LOST}{lost}")
                else:
                    self._check(context, receipts, ended, last, refusal)
        finally:
            await client.close()

    async def _publish(self, client: Client, context: ActContext, receipts: Receipts) -> None:
        producer = None
        while context.now < self.faults_end_seconds:
            producer = await self.publish_one(client, producer, context, receipts)
            await asyncio.sleep(self.pause_seconds)

    async def _terminate(self, context: ActContext) -> int | None:
        """Return the entry id of the last message in the response. None: no response."""
        host = context.world.client_host(context.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(context).partition('://')[2]}/terminate"
        give_up_at = max(context.now, self.faults_end_seconds) + CONVERGENCE_SECONDS
        while context.now < give_up_at:
            try:
                answer = await context.world.ask_admin(self.reading, "POST", target, host=host)
                if answer.status == 200:
                    return int(answer.json()["entryId"])
            except NoHttpResponse:
                pass
            await asyncio.sleep(0.2)
        return None

    async def _refusal(self, client: Client, context: ActContext) -> ServerError | None:
        """Return the error that a new producer receives; None: it is accepted."""
        try:
            producer = await client.producer(self.topic(context), name=f"{context.name}-late")
        except ClientError as failure:
            return failure.code
        await producer.close()
        return None

    def _check(
        self, context: ActContext, receipts: Receipts, ended: float, last: int, refusal: ServerError | None
    ) -> None:
        after = [payload for payload, sent in receipts.taken.items() if sent > ended]
        next_message = (one.message_id or "" for one in context.record.events if one.topic == context.name)
        behind = [place for place in next_message if place and int(place.split(":")[1]) > last]
        if after:
            self.tell(context, f"{AFTER}{min(after).decode()} and {len(after) - 1} more were accepted")
        elif refusal is not ServerError.TopicTerminatedError:
            self.tell(context, f"{AFTER}a producer receives {refusal and refusal.name}")
        elif behind:
            self.tell(context, f"{BEHIND}{behind[0]} and {len(behind) - 1} more, {last} was returned")
        else:
            context.note_result("accepted", topic=self.topic(context))


@dataclass(frozen=True, slots=True)
class Unforced(TerminatingProgram):
    """A program that deletes its topic without force, first while it is in use, and again when it is unused."""

    async def perform(self, context: ActContext) -> None:
        client, receipts = self.reader(context), Receipts()
        try:
            consumer = await self.subscribed(client, context, SUBSCRIPTION)
            producer = None
            while receipts.attempts < self.messages or context.now < self.faults_end_seconds:
                producer = await self.publish_one(client, producer, context, receipts)
                await asyncio.sleep(self.pause_seconds)
            wanted = set(receipts.taken)
            arrived = await self.everything(consumer, context, wanted)
            status = await self.ask(context, "DELETE", "")
            if status != USED:
                self.tell(context, f"{TAKEN}it is in use, and its deletion returns {status}")
            elif wanted - arrived:
                self.tell(context, f"{LOST}{min(wanted - arrived).decode()}")
            else:
                await self._leave_and_delete(consumer, producer, context)
        finally:
            await client.close()

    async def _leave_and_delete(
        self, consumer: Consumer, producer: Producer | None, context: ActContext
    ) -> None:
        await consumer.close()
        if producer is not None:
            await producer.close()
        # Replicators of other regions count as use of the topic, as upstream.
        is_alone = len(context.world.regions) == 1
        if is_alone and not (
            await self.retry_until_done(context, "DELETE", "") and await self.is_gone(context)
        ):
            self.tell(context, f"{STAYS}it is unused, and its deletion is rejected")
        else:
            context.note_result("accepted", topic=self.topic(context))


@dataclass(frozen=True, slots=True)
class Unused(TerminatingProgram):
    """A program that finally unsubscribes from its topic, which has a policy to delete topics without subscriptions."""

    seconds: int

    async def perform(self, context: ActContext) -> None:
        client, receipts = self.reader(context), Receipts()
        try:
            consumer = await self.subscribed(client, context, SUBSCRIPTION)
            if not await self.retry_until_done(
                context, "POST", "/inactiveTopicPolicies?isGlobal=true", self._policy(), done=(204,)
            ):
                return
            producer = None
            for _ in range(self.messages):
                producer = await self.publish_one(client, producer, context, receipts)
                await asyncio.sleep(self.pause_seconds)
            if producer is not None:
                await self._close_producer(producer)
            await consumer.close()
            await self.wait_for_repair(context)
            await asyncio.sleep(2 * self.seconds)  # the topic still has a subscription
            if lost := await self.lost(client, context, SUBSCRIPTION, receipts):
                self.tell(context, f"{LOST}{lost}")
                return
            await (await self.subscribed(client, context, SUBSCRIPTION)).unsubscribe()
            await self._go(context)
        finally:
            await client.close()

    def _policy(self) -> Any:
        return {
            "inactiveTopicDeleteMode": DeleteMode.NO_SUBSCRIPTIONS.value,
            "maxInactiveDurationSeconds": self.seconds,
            "deleteWhileInactive": True,
        }

    async def _go(self, context: ActContext) -> None:
        # Regions of other clusters do not have the policy, and their replicators continue to use the topic.
        must_go = len(context.world.topology.clusters) == 1
        if must_go and not await self.is_gone(context):
            self.tell(context, f"{STAYS}unused for {CONVERGENCE_SECONDS:g} s, the policy is {self.seconds} s")
        else:
            context.note_result("accepted", topic=self.topic(context))
