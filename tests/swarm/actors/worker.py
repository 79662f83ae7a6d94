"""A program with a transaction key: it consumes messages of the inbox, publishes their results and acknowledges the
messages in one transaction. Several programs share a key: the latest one to connect fences the one before.

A program begins a transaction before it requests messages. So the former owner of the key is fenced before the new one
receives its first message.
"""

from __future__ import annotations

import asyncio
import contextlib
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
    Transaction,
)
from emulator.simulation.history import message_id_text
from tests.swarm.actors.clients import RETRY_SECONDS, Actor
from tests.swarm.actors.transaction_history import TaskLines
from tests.swarm.checkers.transaction_tasks import Grant, Task, Work, outbox_of
from tests.swarm.evidence import OperationResult
from tests.swarm.plan import WorkerPlan
from tests.swarm.record import received_fields

if TYPE_CHECKING:
    from tests.swarm.record import Record
    from tests.swarm.world import SwarmWorld

NAME = "hold-key"
HEALED_TIMEOUT_SECONDS = 30.0
"""Transaction timeout after healing: longer than one transaction takes on the slowest link and disk."""
LOOK_SECONDS = 0.5
"""Virtual seconds that a worker waits for messages before it checks `gives_way`."""


class _Unfinished(Exception):
    """Raised after a transaction that was aborted or left open: its messages are consumed again."""


class WorkerActor(Actor):
    def __init__(self, world: SwarmWorld, record: Record, plan: WorkerPlan) -> None:
        super().__init__(world, record, plan.name, plan.region, plan.place or plan.region)
        self.plan = plan
        self.task: Task = (plan.region, plan.key)
        self._process = 0
        self._epoch: int | None = None
        self._lines = TaskLines(record, self.name, plan.region)

    @property
    def gives_way(self) -> bool:
        """Whether the program ends after healing; one program of each key continues."""
        return self.world.healing and not self.plan.keeps_clients

    async def _program(self) -> None:
        if self.host.incarnation == 0:
            await asyncio.sleep(self.plan.begins_seconds)
        while not self.gives_way:
            self._process, self._epoch = self.record.tasks.new_process(), None
            client = self.world.client_on(
                self.host, (self.region,), transaction_key=self.plan.key, instance=str(self._process)
            )
            with contextlib.suppress(ClientError, TimeoutError):
                while not self.gives_way:
                    with contextlib.suppress(_Unfinished):
                        await self._work(client)
            with contextlib.suppress(ClientError, TimeoutError):
                await client.close()
            rest = RETRY_SECONDS if self.world.healing else self.plan.rest_seconds
            await asyncio.sleep(rest * self.random.uniform(0.2, 1.8))

    async def _work(self, client: Client) -> None:
        """Process messages. Raises ClientError on any failure; usually another program has fenced this one."""
        work, transaction = await self._begin(client)
        producer = await client.producer(outbox_of(self.plan.key))
        self._lines.opened(producer)
        consumer = await self._subscribe(client)
        try:
            while not self.gives_way:
                messages = await self._take(consumer)
                if messages:
                    await self._process_all(work, transaction, consumer, producer, messages)
                    work, transaction = await self._begin(client)
                elif self.random.random() < 0.3:
                    await self._read_outbox(client)
        finally:
            with contextlib.suppress(ClientError):
                await consumer.close()
                await producer.close()

    async def _begin(self, client: Client) -> tuple[Work, Transaction]:
        requested_at = self.world.simulation.now
        patience = HEALED_TIMEOUT_SECONDS if self.world.healing else self.plan.timeout_seconds
        transaction = await client.new_transaction(patience)
        epoch = client.coordinators.epoch
        if epoch != self._epoch:
            self._epoch = epoch
            reported = self.world.simulation.now
            self.record.tasks.grants.append(
                Grant(self.name, self._process, self.task, epoch, requested_at, reported)
            )
        work = Work(self.name, self.task, epoch, (transaction.id.most, transaction.id.least))
        self.record.tasks.works.append(work)
        self._lines.begun(work)
        return work, transaction

    async def _subscribe(self, client: Client) -> Consumer:
        self._note("subscribe", "asked", replicated=False, initial="earliest")
        consumer = await client.subscribe(
            self.plan.inbox,
            self.plan.key,
            type_=ConsumerType[self.plan.type],
            initial_position=InitialPosition.EARLIEST,
            name=self.name,
            receiver_queue_size=self.plan.queue,
        )
        self._note("subscribe", "ok", replicated=False, initial="earliest")
        return consumer

    async def _take(self, consumer: Consumer) -> list[Message]:
        """Receive messages and drop duplicates. The region redelivers unacknowledged messages after a lost connection,
        and the transaction would acknowledge those twice."""
        messages: dict[MessageId, Message] = {}
        wanted = self.random.randint(1, self.plan.at_once)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                while len(messages) < wanted:
                    message = await consumer.receive()
                    self._note_received(message)
                    messages[message.id] = message
        return list(messages.values())

    async def _process_all(
        self,
        work: Work,
        transaction: Transaction,
        consumer: Consumer,
        producer: Producer,
        messages: list[Message],
    ) -> None:
        for message in messages:
            await self._process_one(work, transaction, consumer, producer, message)
        if self.plan.think_seconds:
            await asyncio.sleep(self.plan.think_seconds * self.random.random())
        await self._end(work, transaction)

    async def _process_one(
        self,
        work: Work,
        transaction: Transaction,
        consumer: Consumer,
        producer: Producer,
        message: Message,
    ) -> None:
        text = f"{message_id_text(message)}|{transaction.id.text}|{self.name}"
        work.sent[text] = self.world.simulation.now
        await self._lines.publish(producer, work, text, transaction)
        work.stored.add(text)
        with self._lines.acknowledging(
            work,
            topic=self.plan.inbox,
            subscription=self.plan.key,
            message_id=message_id_text(message),
            how="cumulative" if self.plan.cumulative else "individual",
        ):
            if self.plan.cumulative:
                await consumer.acknowledge_cumulative(message, transaction=transaction)
            else:
                await consumer.acknowledge(message, transaction=transaction)

    async def _end(self, work: Work, transaction: Transaction) -> None:
        chance = self.random.random()
        began = work.end_asked = self.world.simulation.now
        if self.world.healing or chance >= self.plan.fails:
            with self._lines.ending(work, commit=True):
                await transaction.commit()
            work.reported = "committed"
            now = self.world.simulation.now
            self.record.operations.append(OperationResult(NAME, "accepted", began, now, self.region))
            return
        if chance < self.plan.fails / 2:
            with self._lines.ending(work, commit=False):
                await transaction.abort()
            work.reported = "aborted"
        raise _Unfinished

    async def _read_outbox(self, client: Client) -> None:
        """Read the outbox from the earliest to the last message with a reader, and record the results."""
        reader = await client.reader(outbox_of(self.plan.key), EARLIEST)
        next_message: set[str] = set()
        try:
            while await reader.has_message():
                text = (await reader.receive()).payload.decode()
                if text in next_message:
                    self.record.tasks.twice.append((self.task, text))
                next_message.add(text)
        finally:
            self.record.tasks.read[self.task] |= next_message
            await reader.close()

    def _note_received(self, message: Message) -> None:
        self._note("receive", "ok", **received_fields(message, self.region))

    def _note(self, op: str, outcome: Any, **fields: Any) -> None:
        fields |= {"region": self.region, "topic": self.plan.inbox, "subscription": self.plan.key}
        self.record.note(self.name, op, outcome, **fields)
