"""Programs that compete for exclusive access to a partitioned topic: they wait, fence each other, hold it, leave and
return, while the topic is compacted. Its owner has all partitions and no other producer has one, so owners follow
each other in the same order in every partition; and the compacted topic has the values of the last owner.

Each program has a topic of its own. What was taken it knows itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.client import EARLIEST, AccessMode, Client, ClientError, Producer
from emulator.simulation.world import CLIENT_SETTINGS
from tests.swarm.mutant import parts
from tests.swarm.plan import Plan
from tests.swarm.topics import TRANSACTED
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.compaction import KeepsTheFirst
from tests.swarm.workloads.exclusive_access_mutants import keeps_publishing
from tests.swarm.workloads.expiring_program import CONVERGENCE_SECONDS, STEP_SECONDS, OwnTopicProgram

NAME = "own-all"
WORKLOAD = Workload(NAME)
KEYS = 12
MIXED, LOST, SHUT, OTHER = "mixed: ", "lost: ", "shut: ", "other: "
CREATED = (204, 409)
COMPACTING = (204, 409)
Log = list[tuple[str, bytes]]
"""(key, payload) of each message of one partition in one region, in order."""


class Receipts:
    """The payloads with a receipt, by partition."""

    def __init__(self, partitions: int) -> None:
        self.taken: list[set[bytes]] = [set() for _ in range(partitions)]


@dataclass(frozen=True, slots=True)
class PartitionedExclusiveProgram(OwnTopicProgram):
    """Several clients that compete for exclusive access in `region`; the logs are read there and in `elsewhere`."""

    partitions: int
    claimants: tuple[AccessMode, ...]
    elsewhere: str

    workload: ClassVar[str] = NAME

    @property
    def places(self) -> tuple[str, ...]:
        return (self.region, self.elsewhere)

    def topic(self, context: ActContext) -> str:
        return f"{TRANSACTED}{context.name}"

    async def perform(self, context: ActContext) -> None:
        if not await self.retry_until_done(context, "PUT", "/partitions", self.partitions, done=CREATED):
            return
        receipts = Receipts(self.partitions)
        claims = [self._claim(context, number, mode, receipts) for number, mode in enumerate(self.claimants)]
        await asyncio.gather(*claims, self._compact(context))
        await self.wait_for_repair(context)
        reported = await self._checked(context, receipts)
        count = sum(map(len, receipts.taken))
        context.note_result(
            "refused" if reported else "accepted",
            topic=self.topic(context),
            detail=reported or f"{count} messages",
        )

    def client_for(self, region: str, context: ActContext, instance: str) -> Client:
        """Return a client that requests the number of partitions of topics."""
        host = context.world.client_host(context.name, self.region)
        settings = replace(CLIENT_SETTINGS, asks_for_partitions=True)
        return context.world.client_on(host, (region,), settings, instance=instance)

    # Claiming and owning the topic.

    async def _claim(self, context: ActContext, number: int, mode: AccessMode, receipts: Receipts) -> None:
        """Request exclusive access and publish, repeatedly until the faults end."""
        client = self.client_for(self.region, context, f"claimant-{number}")
        incarnation = 0
        try:
            while context.now < self.faults_end_seconds:
                incarnation += 1
                producer = await self._won(client, context, f"{context.name}-{number}-{incarnation}", mode)
                if producer is not None:
                    await self._own(producer, context, receipts)
                await asyncio.sleep(context.random.uniform(0.05, 0.5))
        finally:
            await client.close()

    async def _won(self, client: Client, context: ActContext, name: str, mode: AccessMode) -> Producer | None:
        try:
            async with asyncio.timeout(context.random.uniform(1.0, STEP_SECONDS)):
                return await client.producer(self.topic(context), name=name, access_mode=mode)
        except (ClientError, TimeoutError):
            return None

    async def _own(self, producer: Producer, context: ActContext, receipts: Receipts) -> None:
        """Publish until access is lost, the messages are sent, or the timeout expires; then close the producer."""
        try:
            async with asyncio.timeout(STEP_SECONDS):
                for number in range(context.random.randint(1, self.messages)):
                    key = f"key-{context.random.randrange(KEYS)}"
                    payload = f"{producer.name}/{number}".encode()
                    place = await producer.send(payload, key=key)
                    receipts.taken[place.partition].add(payload)
                    await asyncio.sleep(self.pause_seconds)
        except (ClientError, TimeoutError):
            pass
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await producer.close()
        except (ClientError, TimeoutError):
            return

    async def _compact(self, context: ActContext) -> None:
        while context.now < self.faults_end_seconds:
            await self.ask(context, "PUT", "/compaction")
            await asyncio.sleep(context.random.uniform(0.3, 2.0))

    # After the faults.

    async def _checked(self, context: ActContext, receipts: Receipts) -> str:
        client = self.client_for(self.region, context, "last")
        try:
            async with asyncio.timeout(CONVERGENCE_SECONDS):
                mode = AccessMode.WAIT_FOR_EXCLUSIVE
                producer = await client.producer(
                    self.topic(context), name=f"{context.name}-last", access_mode=mode
                )
                await producer.close()
        except TimeoutError:
            return f"{SHUT}no producer owns it, and one has waited for {CONVERGENCE_SECONDS:g} s"
        finally:
            await client.close()
        for region in dict.fromkeys(self.places):
            reported = await self._look(context, region, receipts)
            if reported:
                return reported
        return ""

    async def _look(self, context: ActContext, region: str, receipts: Receipts) -> str:
        client = self.client_for(region, context, f"look-{region}")
        try:
            logs = [
                await self._log(client, f"{self.topic(context)}-partition-{index}", taken)
                for index, taken in enumerate(receipts.taken)
            ]
            for index, (log, taken) in enumerate(zip(logs, receipts.taken, strict=True)):
                if missing := taken - {payload for _, payload in log}:
                    return f"{LOST}{min(missing).decode()} is not in partition {index} in {region}"
            if mixed := _mixed(logs):
                return f"{MIXED}{mixed} in {region}"
            return await self._compared(client, context, region, logs)
        finally:
            await client.close()

    async def _log(self, client: Client, topic: str, wanted: set[bytes]) -> Log:
        log: Log = []
        try:
            reader = await client.reader(topic, EARLIEST)
        except ClientError:
            return log  # another cluster creates a partition only with its first message
        while True:
            missing = wanted - {payload for _, payload in log}
            try:
                async with asyncio.timeout(CONVERGENCE_SECONDS if missing else STEP_SECONDS):
                    message = await reader.receive()
            except TimeoutError:
                return log
            log.append((message.key or "", message.payload))

    async def _compared(self, client: Client, context: ActContext, region: str, logs: list[Log]) -> str:
        """Compact the topic once more, and compare the compacted view of each partition with its log."""
        if region == self.region:
            await self.retry_until_done(context, "PUT", "/compaction", done=COMPACTING)
            await asyncio.sleep(STEP_SECONDS)
        for index, log in enumerate(logs):
            if not log:
                continue
            topic = f"{self.topic(context)}-partition-{index}"
            view = await client.table_view(topic)
            said, meant = dict(view.items()), dict(log)
            await view.close()
            if said != meant:
                key = min(set(said.items()) ^ set(meant.items()))[0]
                return f"{OTHER}{key} is {said.get(key)!r} in {region}, and {meant.get(key)!r} in the log"
        return ""


def _owner(payload: bytes) -> bytes:
    return payload.partition(b"/")[0]


def _mixed(logs: list[Log]) -> str:
    """Return a sentence with two owners whose messages alternate, or whose order differs between partitions; empty:
    there are none."""
    before: dict[tuple[bytes, bytes], int] = {}
    for index, log in enumerate(logs):
        owners = list(dict.fromkeys(_owner(payload) for _, payload in log))
        blocks = [one for at, (_, one) in enumerate(log) if at == 0 or _owner(one) != _owner(log[at - 1][1])]
        if len(blocks) > len(owners):
            return f"owners took turns in partition {index}: {b' '.join(blocks).decode()}"
        for at, first in enumerate(owners):
            for second in owners[at + 1 :]:
                if (second, first) in before:
                    other = before[second, first]
                    said = f"{first.decode()} is before {second.decode()} in partition {index}"
                    return f"{said}, and after it in partition {other}"
                before[first, second] = index
    return ""


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    return replace(plan, acts=(*plan.acts, *(_program(random, plan) for _ in range(random.randint(1, 2)))))


def _program(random: Random, plan: Plan) -> PartitionedExclusiveProgram:
    seconds, region = plan.break_seconds, random.choice(plan.regions)
    modes = (
        AccessMode.WAIT_FOR_EXCLUSIVE,
        AccessMode.WAIT_FOR_EXCLUSIVE,
        AccessMode.EXCLUSIVE_WITH_FENCING,
        AccessMode.EXCLUSIVE,
    )
    return PartitionedExclusiveProgram(
        round(random.uniform(0.1, seconds * 0.2), 3),
        region,
        region,
        random.choice((3, 10, 30)),
        random.choice((0.01, 0.05, 0.2)),
        seconds + 1.0,
        random.choice((1, 2, 4)),
        tuple(random.choice(modes) for _ in range(random.randint(2, 4))),
        random.choice(plan.regions),
    )


# INV-117


WORKLOAD.reports("all-partitions-or-none", "INV-117", MIXED, "it had two owners")
WORKLOAD.reports("owners-messages-not-lost", "INV-117", LOST, "a message of an owner is missing")
WORKLOAD.reports("next-owner-gets-all-partitions", "INV-117", SHUT, "no owner")
WORKLOAD.reports("compaction-keeps-last-owner", "INV-33", OTHER, "its compacted view differs")
WORKLOAD.mutant(
    "fenced-owner-publishes-to-partition",
    "INV-117",
    safeguard="A producer that lost a partition continues to publish to it.",
)(keeps_publishing)
WORKLOAD.mutant(
    "compaction-keeps-first-owner",
    "INV-33",
    safeguard="Compaction keeps the first owner's value of a key, not the last owner's.",
)(parts(latest_of_keys=KeepsTheFirst))
