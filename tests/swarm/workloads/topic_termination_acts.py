"""Acts of the workload `topic-termination`: topics that are terminated, deleted without force, or deleted as unused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar

from emulator.client import Client, ClientError, Consumer, InitialPosition, Producer
from emulator.core.policies.inactivity import DeleteMode
from emulator.errors import ServerError
from emulator.net.http import NoAnswer
from tests.swarm.topics import DELETED
from tests.swarm.workload import Stage
from tests.swarm.workloads.expiring_program import PATIENCE_SECONDS, STEP_SECONDS, SUBSCRIPTION, Mortal

NAME = "finish"
AFTER, BEHIND, LOST, TAKEN, STAYS = "after: ", "behind: ", "lost: ", "taken: ", "stays: "
USED = 412
"""What a region answers that does not delete a topic because it is in use."""


@dataclass(slots=True)
class Receipts:
    """What a region took."""

    taken: dict[bytes, float] = field(default_factory=dict)
    """By payload: when it was sent."""
    asked: int = 0


@dataclass(frozen=True, slots=True)
class Finishing(Mortal):
    """What all of them have in common: topics that other regions may have when this one has none."""

    workload: ClassVar[str] = NAME

    def topic(self, stage: Stage) -> str:
        return f"{DELETED}{stage.name}"

    async def publish_one(
        self, client: Client, producer: Producer | None, stage: Stage, to: Receipts
    ) -> Producer | None:
        """With this producer, or a new one; None: there is none to go on with."""
        number, sent = to.asked, stage.now
        to.asked += 1
        payload = f"{stage.name}/{number}".encode()
        try:
            async with asyncio.timeout(STEP_SECONDS):
                if producer is None:
                    producer = await client.producer(self.topic(stage), name=f"{stage.name}-{number}")
                await producer.send(payload)
                to.taken[payload] = sent
        except (ClientError, TimeoutError):
            if producer is not None:
                await self._let_go(producer)
            return None
        return producer

    async def _let_go(self, producer: Producer) -> None:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await producer.close()
        except (ClientError, TimeoutError):
            return

    async def lost(self, client: Client, stage: Stage, subscription: str, receipts: Receipts) -> str:
        """What was taken and does not come; empty: nothing."""
        earliest, wanted = InitialPosition.EARLIEST, set(receipts.taken)
        consumer = await client.subscribe(self.topic(stage), subscription, initial_position=earliest)
        missing = wanted - await self.everything(consumer, stage, wanted)
        await consumer.close()
        return f"{min(missing).decode()} and {len(missing) - 1} more of {len(wanted)}" if missing else ""

    async def is_gone(self, stage: Stage) -> bool:
        """Within reasonable time."""
        give_up_at = stage.now + PATIENCE_SECONDS
        while stage.now < give_up_at:
            try:
                if await self.stats(stage, self.reading) is None:
                    return True
            except NoAnswer:
                pass
            await asyncio.sleep(0.5)
        return False

    def tell(self, stage: Stage, told: str) -> None:
        stage.did("refused", topic=self.topic(stage), detail=told)


@dataclass(frozen=True, slots=True)
class Termination(Finishing):
    """It publishes again and again, also when it knows that the topic has been terminated."""

    ends_at_seconds: float

    async def perform(self, stage: Stage) -> None:
        client, receipts = self.reader(stage), Receipts()
        try:
            await (await self.subscribed(client, stage, SUBSCRIPTION)).close()
            publishing = asyncio.ensure_future(self._publish(client, stage, receipts))
            await asyncio.sleep(max(0.0, self.ends_at_seconds - stage.now))
            last = await self._terminate(stage)
            ended = stage.now
            await publishing
            await self.calm(stage)
            if last is not None:
                refusal = await self._refusal(client, stage)
                if lost := await self.lost(client, stage, SUBSCRIPTION, receipts):
                    self.tell(stage, f"{LOST}{lost}")
                else:
                    self._check(stage, receipts, ended, last, refusal)
        finally:
            await client.close()

    async def _publish(self, client: Client, stage: Stage, receipts: Receipts) -> None:
        producer = None
        while stage.now < self.breaks_end_seconds:
            producer = await self.publish_one(client, producer, stage, receipts)
            await asyncio.sleep(self.pause_seconds)

    async def _terminate(self, stage: Stage) -> int | None:
        """Return the entry id of the last message in the response. None: no response."""
        host = stage.world.client_host(stage.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(stage).partition('://')[2]}/terminate"
        give_up_at = max(stage.now, self.breaks_end_seconds) + PATIENCE_SECONDS
        while stage.now < give_up_at:
            try:
                answer = await stage.world.ask_admin(self.reading, "POST", target, host=host)
                if answer.status == 200:
                    return int(answer.json()["entryId"])
            except NoAnswer:
                pass
            await asyncio.sleep(0.2)
        return None

    async def _refusal(self, client: Client, stage: Stage) -> ServerError | None:
        """Return the error that a new producer receives; None: it is accepted."""
        try:
            producer = await client.producer(self.topic(stage), name=f"{stage.name}-late")
        except ClientError as failure:
            return failure.code
        await producer.close()
        return None

    def _check(
        self, stage: Stage, receipts: Receipts, ended: float, last: int, refusal: ServerError | None
    ) -> None:
        after = [payload for payload, sent in receipts.taken.items() if sent > ended]
        given = (one.message_id or "" for one in stage.record.events if one.topic == stage.name)
        behind = [place for place in given if place and int(place.split(":")[1]) > last]
        if after:
            self.tell(stage, f"{AFTER}{min(after).decode()} and {len(after) - 1} more were accepted")
        elif refusal is not ServerError.TopicTerminatedError:
            self.tell(stage, f"{AFTER}a producer receives {refusal and refusal.name}")
        elif behind:
            self.tell(stage, f"{BEHIND}{behind[0]} and {len(behind) - 1} more, {last} was returned")
        else:
            stage.did("accepted", topic=self.topic(stage))


@dataclass(frozen=True, slots=True)
class Unforced(Finishing):
    """An administrator deletes a topic without force while it is in use, and again when it is not."""

    async def perform(self, stage: Stage) -> None:
        client, receipts = self.reader(stage), Receipts()
        try:
            consumer = await self.subscribed(client, stage, SUBSCRIPTION)
            producer = None
            while receipts.asked < self.messages or stage.now < self.breaks_end_seconds:
                producer = await self.publish_one(client, producer, stage, receipts)
                await asyncio.sleep(self.pause_seconds)
            wanted = set(receipts.taken)
            came = await self.everything(consumer, stage, wanted)
            status = await self.ask(stage, "DELETE", "")
            if status != USED:
                self.tell(stage, f"{TAKEN}it is in use, and its deletion returns {status}")
            elif wanted - came:
                self.tell(stage, f"{LOST}{min(wanted - came).decode()}")
            else:
                await self._leave_and_delete(consumer, producer, stage)
        finally:
            await client.close()

    async def _leave_and_delete(self, consumer: Consumer, producer: Producer | None, stage: Stage) -> None:
        await consumer.close()
        if producer is not None:
            await producer.close()
        # Other regions' replicators use it as well, as upstream.
        is_alone = len(stage.world.regions) == 1
        if is_alone and not (await self.insist(stage, "DELETE", "") and await self.is_gone(stage)):
            self.tell(stage, f"{STAYS}it is unused, and its deletion is rejected")
        else:
            stage.did("accepted", topic=self.topic(stage))


@dataclass(frozen=True, slots=True)
class Unused(Finishing):
    """A policy deletes unused topics. This one has a subscription at first, and none later."""

    seconds: int

    async def perform(self, stage: Stage) -> None:
        client, receipts = self.reader(stage), Receipts()
        try:
            consumer = await self.subscribed(client, stage, SUBSCRIPTION)
            if not await self.insist(
                stage, "POST", "/inactiveTopicPolicies?isGlobal=true", self._policy(), done=(204,)
            ):
                return
            producer = None
            for _ in range(self.messages):
                producer = await self.publish_one(client, producer, stage, receipts)
                await asyncio.sleep(self.pause_seconds)
            if producer is not None:
                await self._let_go(producer)
            await consumer.close()
            await self.calm(stage)
            await asyncio.sleep(2 * self.seconds)  # it has a subscription all the while
            if lost := await self.lost(client, stage, SUBSCRIPTION, receipts):
                self.tell(stage, f"{LOST}{lost}")
                return
            await (await self.subscribed(client, stage, SUBSCRIPTION)).unsubscribe()
            await self._go(stage)
        finally:
            await client.close()

    def _policy(self) -> Any:
        return {
            "inactiveTopicDeleteMode": DeleteMode.NO_SUBSCRIPTIONS.value,
            "maxInactiveDurationSeconds": self.seconds,
            "deleteWhileInactive": True,
        }

    async def _go(self, stage: Stage) -> None:
        # Regions of other clusters have no such policy, and their replicators go on using it.
        must_go = len(stage.world.topology.clusters) == 1
        if must_go and not await self.is_gone(stage):
            self.tell(stage, f"{STAYS}unused for {PATIENCE_SECONDS:g} s, the policy is {self.seconds} s")
        else:
            stage.did("accepted", topic=self.topic(stage))
