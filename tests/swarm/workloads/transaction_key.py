"""Programs that replace each other under a transaction key, and other programs that use the key in between.

They read an inbox, process, and write results in one transaction each; they die, freeze and come back while their
region is killed, its disk is slow or fails, and their connections break. In between other programs connect twice at
once, or miss the response to a connect, and request the commit of their transaction long after they were fenced.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.client import Client, ClientError, Transaction
from emulator.client.connection import BrokerConnection
from emulator.config.broker_settings import BrokerSettings
from emulator.model.transaction_names import COORDINATORS, TxnId, coordinator_of
from emulator.wire.commands import (
    NO_EPOCH,
    ConnectCoordinator,
    CoordinatorConnected,
    NewTransaction,
    NewTransactionResponse,
)
from tests.swarm.actors.transaction_history import TaskLines
from tests.swarm.actors.worker import NAME
from tests.swarm.checkers.transaction_tasks import Grant, Work, outbox_of
from tests.swarm.faults import (
    FailingDisk,
    Fault,
    Kill,
    KillClient,
    PauseClient,
    PowerOff,
    Reset,
    SlowDisk,
)
from tests.swarm.plan import Plan, ProducerPlan, WorkerPlan
from tests.swarm.workload import Act, ActContext, Workload
from tests.swarm.workloads.transaction_key_checks import CHECKS
from tests.swarm.workloads.transaction_key_mutants import MUTANTS

INBOX = "inbox"
COUNT = BrokerSettings().transaction_coordinators
TIMEOUT_MS = 30_000


WORKLOAD = Workload(NAME)


@dataclass(frozen=True, slots=True)
class KeyTakeoverAct(Act):
    """A program that connects under the key of workers, publishes in a transaction, and ends it late or never."""

    key: str
    connects_twice: bool
    """True: the program sends two connects at once and receives both responses. False: it aborts its first connection
    before the response, and connects again."""
    begin_delay_seconds: float
    """Time from the connect to the request of a transaction."""
    commit_delay_seconds: float
    """Time from the last message to the commit request."""
    commits: bool

    workload: ClassVar[str] = "come-between"

    async def perform(self, context: ActContext) -> None:
        client = context.client()
        process = f"{context.random.getrandbits(64):016x}"
        number = context.record.tasks.new_process()
        try:
            connection, epoch = await self._connect(context, client, process, number)
            context.note_result("accepted", detail=f"epoch {epoch}")
            await asyncio.sleep(self.begin_delay_seconds)
            await self._publish(context, client, connection, epoch)
        finally:
            await client.close()

    async def _connect(
        self, context: ActContext, client: Client, process: str, number: int
    ) -> tuple[BrokerConnection, int]:
        if not self.connects_twice:
            connection = await self._connection(client)
            connecting = asyncio.create_task(
                self._connect_once(context, client, connection, process, number, is_received=False)
            )
            await asyncio.sleep(context.random.choice((0.001, 0.02, 0.2)) * context.random.random())
            connection.abort()
            with contextlib.suppress(ClientError):
                await connecting
        connection = await self._connection(client)
        requests = [
            self._connect_once(context, client, connection, process, number)
            for _ in range(2 if self.connects_twice else 1)
        ]
        return connection, max(await asyncio.gather(*requests))

    async def _connection(self, client: Client) -> BrokerConnection:
        return await client.connection_for(f"{COORDINATORS}-partition-{coordinator_of(self.key, COUNT)}")

    async def _connect_once(
        self,
        context: ActContext,
        client: Client,
        connection: BrokerConnection,
        process: str,
        number: int,
        *,
        is_received: bool = True,
    ) -> int:
        requested_at, request_id = context.now, client.new_id()
        connect = ConnectCoordinator(request_id, coordinator_of(self.key, COUNT), self.key, NO_EPOCH, process)
        answer = await connection.ask(connect, CoordinatorConnected)
        assert answer.epoch is not None, "the response to a connect with a key has no epoch"
        if is_received:
            grant = Grant(
                context.name, number, (self.region, self.key), answer.epoch, requested_at, context.now
            )
            context.record.tasks.grants.append(grant)
        return answer.epoch

    async def _publish(
        self, context: ActContext, client: Client, connection: BrokerConnection, epoch: int
    ) -> None:
        request_id = client.new_id()
        begin = NewTransaction(request_id, coordinator_of(self.key, COUNT), TIMEOUT_MS)
        begun = await connection.ask(begin, NewTransactionResponse)
        work = Work(context.name, (self.region, self.key), epoch, (begun.most or 0, begun.least or 0))
        context.record.tasks.works.append(work)
        lines = TaskLines(context.record, context.name, self.region)
        lines.begun(work)
        # The requests do not name the key: the coordinator can reject them only by fencing.
        transaction = Transaction(client.coordinators, TxnId(*work.txn), client.service_address)
        producer = await client.producer(outbox_of(self.key))
        lines.opened(producer)
        for text in (f"{context.name}.{index}|{transaction.id.text}|{context.name}" for index in range(2)):
            work.sent[text] = context.now
            await lines.publish(producer, work, text, transaction)
            work.stored.add(text)
        await asyncio.sleep(self.commit_delay_seconds)
        if self.commits:
            work.end_asked = context.now
            with lines.ending(work, commit=True):
                await transaction.commit()
            work.reported = "committed"


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw workers in one or two regions, their faults, and the programs that take over their keys."""
    seconds = plan.break_seconds
    for region in random.sample(plan.regions, 1 if random.random() < 0.8 else min(2, len(plan.regions))):
        for number in range(random.choice((1, 1, 2))):
            plan = _with_task(random, plan, region, f"task-{number}-{region}", seconds)
    return replace(plan, faults=tuple(sorted(plan.faults, key=lambda one: one.at_seconds)))


def feeder(random: Random, plan: Plan, number: int) -> ProducerPlan:
    """Draw the producer that fills the inbox."""
    messages = random.randint(5, 20)
    return ProducerPlan(
        f"feeder-{number}",
        random.choice(plan.regions),
        INBOX,
        messages,
        burst=random.choice((1, 3)),
        pause_seconds=round(plan.break_seconds / messages * random.uniform(0.2, 0.8), 4),
    )


def _with_task(random: Random, plan: Plan, region: str, key: str, seconds: float) -> Plan:
    type_ = random.choice(("SHARED", "SHARED", "FAILOVER", "EXCLUSIVE"))
    cumulative = type_ != "SHARED" and random.random() < 0.5
    count = random.randint(2, 3)
    workers = tuple(
        WorkerPlan(
            f"worker-{number}-{key}",
            region,
            key,
            INBOX,
            place=random.choice((region, region, region, random.choice(plan.regions))),
            begins_seconds=round(number * seconds / count * random.uniform(0.2, 1.0), 3),
            type=type_,
            cumulative=cumulative,
            at_once=1 if cumulative else random.choice((1, 3)),
            think_seconds=random.choice((0.0, 0.05, 0.5)),
            fails=random.choice((0.0, 0.2, 0.4)),
            rest_seconds=random.choice((0.2, 1.0, 3.0)),
            timeout_seconds=random.choice((1.0, 30.0, 30.0)),
            queue=random.choice((1, 5, 20)),
            keeps_clients=number == count - 1,
        )
        for number in range(count)
    )
    names = [one.name for one in workers]
    faults = [_fault(random, region, names, seconds) for _ in range(random.randint(3, 9))]
    acts = [_takeover(random, region, key, seconds) for _ in range(random.choice((0, 1, 2, 3)))]
    if random.random() < 0.4:
        acts += _overlapping_takeovers(random, region, key, seconds)
    return replace(
        plan,
        workers=(*plan.workers, *workers),
        faults=(*plan.faults, *faults),
        acts=(*plan.acts, *acts),
    )


def _takeover(random: Random, region: str, key: str, seconds: float) -> KeyTakeoverAct:
    return KeyTakeoverAct(
        round(random.uniform(0.5, seconds), 3),
        region,
        key,
        connects_twice=random.random() < 0.5,
        begin_delay_seconds=0.0,
        commit_delay_seconds=round(random.choice((0.0, 0.5, 3.0)) * random.random(), 3),
        commits=random.random() < 0.8,
    )


def _overlapping_takeovers(random: Random, region: str, key: str, seconds: float) -> list[KeyTakeoverAct]:
    """Draw two takeovers. The first one requests its commit after the second one acquired the key, and before the
    second one begins a transaction."""
    at = random.uniform(0.5, seconds)
    waits = round(random.uniform(0.5, 1.0), 3)
    return [
        KeyTakeoverAct(round(at, 3), region, key, True, 0.0, waits, True),
        KeyTakeoverAct(round(at + random.uniform(0.1, waits), 3), region, key, True, 2.0, 0.0, True),
    ]


def _fault(random: Random, region: str, workers: list[str], seconds: float) -> Fault:
    """Draw a fault of a worker that holds the key, or of the region that granted it."""
    at = round(random.uniform(0.3, seconds), 3)
    lasts = round(min(random.expovariate(1.0) * random.choice((0.1, 1.0, 3.0)), seconds), 3)
    worker, short = random.choice(workers), round(min(lasts, 1.0), 3)
    kinds: tuple[Fault, ...] = (
        KillClient(at, lasts, worker, random.random() < 0.5),
        KillClient(at, short, worker, random.random() < 0.5),
        PauseClient(at, lasts, worker),
        PauseClient(at, lasts, worker),
        Reset(at, lasts, region, region),
        Kill(at, short, region),
        Kill(at, short, region),
        PowerOff(at, short, region),
        FailingDisk(at, lasts, region, random.choice((0.1, 0.5))),
        SlowDisk(at, lasts, region, random.choice((0.1, 0.5))),
    )
    return random.choice(kinds)


WORKLOAD.checks += CHECKS
WORKLOAD.mutants += MUTANTS
