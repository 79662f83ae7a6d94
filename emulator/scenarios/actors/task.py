"""A task that reads, processes and writes in transactions: with our own client, on whatever loop and network that has.
Real processes (`host_actor.py`) and simulated hosts run this same program.

    message ──▶ begin ──▶ (work, publish) for each message ──▶ acknowledge ──▶ commit
                  ▲                                                             │
                  └───── abort, have all of it again ◀──── anything else ───────┘

A task that learns that a newer one has its transaction key ends its work: if it asked for the key anew, it would fence
that one (decision 0026).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from emulator.client import (
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
from emulator.errors import ServerError
from emulator.run.history_events import Outcome
from emulator.scenarios.actor_models.specs import Counts, TaskSpec
from emulator.scenarios.actors.task_history import TaskNotes
from emulator.scenarios.actors.writer import HistoryRecorder

T = TypeVar("T")
Receipts = list[asyncio.Future[MessageId]]

RETRY_SECONDS = 0.2
ACKNOWLEDGE_SECONDS = 5.0
"""How long it tries to acknowledge while its connection comes back."""
PENDING_MAX = 20_000
"""Twice the messages of the largest transaction."""


class Fenced(Exception):
    """A newer task has its transaction key."""


class TaskAtWork:
    """One life of a task."""

    def __init__(self, part: TaskSpec, client: Client, notes: HistoryRecorder) -> None:
        """`client` has the part's transaction key."""
        self._part = part
        self._client = client
        self._notes = TaskNotes(part, notes)
        self._processed = 0
        self._fenced = False
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._settled = asyncio.Event()
        """It reads and can write, and has its key."""
        self._ending = asyncio.Event()
        self._task = asyncio.create_task(self._serve())

    @property
    def counts(self) -> Counts:
        notes = self._notes
        return Counts(
            region=self._part.region,
            connected=self._producer is not None and self._producer.is_connected,
            asked=notes.asked,
            ok=notes.outcomes["ok"],
            failed=notes.outcomes["failed"],
            unknown=notes.outcomes["unknown"],
            received=len(notes.seen),
            repeated=notes.repeated,
            processed=self._processed,
            fenced=self._fenced,
        )

    async def begin(self) -> None:
        """Return when it reads, can write, and has fenced the previous owner of its key."""
        settled = asyncio.create_task(self._settled.wait())
        await asyncio.wait({settled, self._task}, return_when=asyncio.FIRST_COMPLETED)
        settled.cancel()
        if self._task.done():
            self._task.result()

    async def finish(self) -> None:
        """Commit what it has in hand, and close."""
        self._ending.set()
        await asyncio.wait({self._task})

    async def _serve(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    await self._open()
                    while (message := await self._next(None)) is not None:
                        await self._process_from(message)
                except ClientError:
                    await self._retire()
                    await asyncio.sleep(RETRY_SECONDS)
        except Fenced:
            self._fenced = True
            self._settled.set()
        finally:
            await self._client.close()

    # Opening.

    async def _open(self) -> None:
        """Open what is not open. The key comes first: a frozen task would keep the messages that this one has to
        process, and a fenced task learns of it here."""
        if self._part.transaction_key is not None:
            await self._unless_fenced(self._client.coordinators.take_key())
        if self._producer is None:
            opening = self._client.producer(
                self._part.to, name=self._part.name, pending_messages_max=PENDING_MAX
            )
            self._producer = await self._notes.asking("connect", self._notes.writing, opening)
            self._notes.connected(self._producer.last_sequence_id)
        if self._consumer is None:
            self._consumer = await self._notes.asking("subscribe", self._notes.subscribing, self._subscribe())
            self._notes.subscribed()
        self._settled.set()

    async def _subscribe(self) -> Consumer:
        part = self._part
        return await self._client.subscribe(
            part.topic,
            part.subscription,
            type_=ConsumerType[part.type.upper()],
            initial_position=InitialPosition.EARLIEST,
            replicated=part.replicated,
            name=part.name,
        )

    async def _retire(self) -> None:
        """Another producer takes over: this one may be unable to go on."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()

    # One transaction.

    async def _process_from(self, first: Message) -> None:
        """All of it counts, or it is done again. ClientError, Fenced."""
        try:
            transaction = await self._begin()
            try:
                await self._unless_fenced(transaction.will_publish_to(self._part.to))
                done, receipts = await self._work(transaction, first)
                await self._unless_fenced(_all_of(receipts))
                await self._acknowledge(transaction, done)
                await self._end(transaction, commit=True)
                self._processed += len(done)
            except ClientError:
                with contextlib.suppress(ClientError):
                    await self._end(transaction, commit=False)
                raise
        except ClientError:
            if self._consumer is not None:
                self._consumer.redeliver_unacknowledged()
            raise

    async def _begin(self) -> Transaction:
        beginning = self._client.new_transaction(self._part.timeout_seconds)
        asking = self._notes.asking("begin_transaction", self._notes.beginning, beginning)
        transaction = await self._unless_fenced(asking)
        self._notes.begun(transaction, self._client.coordinators.epoch)
        return transaction

    async def _work(self, transaction: Transaction, first: Message) -> tuple[list[Message], Receipts]:
        """What was processed, and the receipts that are awaited."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._part.commit_seconds
        done: list[Message] = []
        receipts: Receipts = []
        message: Message | None = first
        while message is not None:
            self._notes.received(message, transaction)
            await asyncio.sleep(self._part.message_seconds)
            receipts.append(await self._unless_fenced(self._publish(transaction, message)))
            done.append(message)
            is_over = len(done) >= self._part.messages_per_transaction or loop.time() >= until
            message = None if is_over else await self._next(until)
        return done, receipts

    async def _next(self, until: float | None) -> Message | None:
        """The next message; None when it has to end, or at the deadline."""
        assert self._consumer is not None
        loop = asyncio.get_running_loop()
        receiving = loop.create_task(self._consumer.receive())
        ending = loop.create_task(self._ending.wait())
        left = None if until is None else max(0.0, until - loop.time())
        try:
            await asyncio.wait({receiving, ending}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else None
        except ClientError:
            self._consumer = None  # it cannot come back
            raise
        finally:
            receiving.cancel()
            ending.cancel()
            await asyncio.wait({receiving, ending})

    async def _publish(self, transaction: Transaction, message: Message) -> asyncio.Future[MessageId]:
        assert self._producer is not None
        number = self._producer.last_sequence_id + 1
        payload, key, said = self._notes.publishes(message, transaction, number)
        try:
            receipt = self._producer.send_nowait(
                payload, key=key, sequence_id=number, transaction=transaction
            )
        except ClientError as refusal:
            self._notes.not_sent(said, refusal)
            raise
        self._notes.sent(said, receipt)
        return receipt

    async def _acknowledge(self, transaction: Transaction, done: Sequence[Message]) -> None:
        consumer, is_cumulative = self._consumer, self._part.acknowledge == "cumulative"
        assert consumer is not None
        named = done[-1:] if is_cumulative else done
        self._notes.acknowledges(named, transaction, "asked")

        async def attempt() -> None:
            if is_cumulative:
                await consumer.acknowledge_cumulative(done[-1], transaction=transaction)
            else:
                await consumer.acknowledge(*done, transaction=transaction)

        try:
            # The same acknowledgement again is answered like the first one.
            asking = self._client.retry(attempt, deadline_seconds=ACKNOWLEDGE_SECONDS)
            await self._unless_fenced(asking)
        except (ClientError, Fenced) as refusal:
            outcome: Outcome = "failed" if getattr(refusal, "definite", True) else "unknown"
            self._notes.acknowledges(named, transaction, outcome, error=str(refusal))
            raise

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        self._notes.ends(transaction, "asked", commit=commit)
        try:
            await self._unless_fenced(transaction.commit() if commit else transaction.abort())
        except (ClientError, Fenced) as refusal:
            is_certain = commit and getattr(refusal, "definite", True)
            outcome: Outcome = "failed" if is_certain else "unknown"
            self._notes.ends(transaction, outcome, commit=commit, error=str(refusal))
            raise
        self._notes.ends(transaction, "ok", commit=commit)

    async def _unless_fenced(self, work: Awaitable[T]) -> T:
        """Fenced when a newer task has the key: this one comes back with an epoch that is not the newest any more. That
        a transaction expired is not reported: a task that reconnects fences itself."""
        try:
            return await work
        except ClientError as refusal:
            is_stale = refusal.code is ServerError.NotAllowedError and " is stale" in str(refusal)
            if self._part.transaction_key is not None and is_stale:
                raise Fenced(str(refusal)) from None
            raise


async def _all_of(receipts: Sequence[asyncio.Future[MessageId]]) -> None:
    await asyncio.wait(receipts)
    for receipt in receipts:
        receipt.result()
