"""A task that consumes, processes and publishes in transactions, with geoemu's own client. Real processes
(`native_actor.py`) and simulated hosts run this same program.

    message ──▶ begin ──▶ (work, publish) for each message ──▶ acknowledge ──▶ commit
                  ▲                                                             │
                  └──── abort, receive all messages again ◀── any error ────────┘

A task ends when a response shows that a newer task has its transaction key: if it took the key again, it would fence
the newer task (decision 0026).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from emulator.client import (
    Client,
    ClientError,
    Consumer,
    ConsumerType,
    InitialPosition,
    Message,
    MessageId,
    Transaction,
)
from emulator.errors import ServerError
from emulator.run.history_events import Outcome, payload_digest
from emulator.scenarios.actors.native_history import (
    ActorHistory,
    Fenced,
    HistoryRecorder,
    RecordedPublisher,
    message_id_text,
    transaction_fields,
)
from emulator.scenarios.actors.specs import Counts, TaskSpec

T = TypeVar("T")
Receipts = list[asyncio.Future[MessageId]]

RETRY_SECONDS = 0.2
ACKNOWLEDGE_SECONDS = 5.0
"""Time for which a task retries an acknowledgement while its connection is restored."""
PENDING_MAX = 20_000
"""Maximum number of pending publishes: twice the messages of the largest transaction."""


class NativeTask:
    """A running task: processes messages in transactions until it is finished, killed or fenced."""

    def __init__(self, part: TaskSpec, client: Client, recorder: HistoryRecorder) -> None:
        """`client` was created with the transaction key of `part`."""
        self._part = part
        self._client = client
        self._history = ActorHistory(recorder)
        self._seen: set[tuple[str, str, int]] = set()
        """Origins (region, producer, sequence id) of the messages that the task received."""
        self._repeated = 0
        self._processed = 0
        self._fenced = False
        self._consumer: Consumer | None = None
        self._publisher: RecordedPublisher | None = None
        self._ready_or_fenced = asyncio.Event()
        """Set when the task consumes, can publish and has its transaction key, or is fenced."""
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._serve())

    @property
    def counts(self) -> Counts:
        publisher = self._publisher
        return self._history.counts(
            region=self._part.region,
            connected=publisher is not None and publisher.producer.is_connected,
            received=len(self._seen),
            repeated=self._repeated,
            processed=self._processed,
            fenced=self._fenced,
        )

    @property
    def _subscription_fields(self) -> dict[str, Any]:
        part = self._part
        return {"region": part.region, "topic": part.topic, "subscription": part.subscription}

    async def begin(self) -> None:
        """Return when the task consumes, can publish and has fenced the former client of its key; or is fenced."""
        waiting = asyncio.create_task(self._ready_or_fenced.wait())
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()

    async def finish(self) -> None:
        """Commit the current transaction, and close."""
        self._stopping.set()
        await asyncio.wait({self._task})

    async def _serve(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    await self._open_clients()
                    while (message := await self._next_message(None)) is not None:
                        await self._process_from(message)
                except ClientError:
                    await self._close_producer()
                    await asyncio.sleep(RETRY_SECONDS)
        except Fenced:
            self._fenced = True
            self._ready_or_fenced.set()
        finally:
            await self._client.close()

    # Opening.

    async def _open_clients(self) -> None:
        """Take the key, then open the producer and the consumer unless they are open. Taking the key first releases the
        messages that a paused older task holds; a fenced task detects here that it is fenced."""
        if self._part.transaction_key is not None:
            await self._await_unfenced(self._client.coordinators.take_key())
        if self._publisher is None:
            part = self._part
            producer_fields = {"region": part.region, "topic": part.to, "producer": part.name}
            opening = self._client.producer(part.to, name=part.name, pending_messages_max=PENDING_MAX)
            self._publisher = await self._history.open_producer(producer_fields, opening)
        if self._consumer is None:
            fields = {**self._subscription_fields, "replicated": self._part.replicated, "initial": "earliest"}
            self._consumer = await self._history.attempt("subscribe", fields, self._subscribe())
            self._history.write("subscribe", "ok", **fields)
        self._ready_or_fenced.set()

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

    async def _close_producer(self) -> None:
        """Close the producer, which may have failed; `_open_clients` opens another one."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.producer.close()

    # One transaction.

    async def _process_from(self, first: Message) -> None:
        """Process messages from `first` on in one transaction. If it fails, all messages are received again. Raises
        ClientError or Fenced then."""
        try:
            transaction = await self._begin_transaction()
            try:
                await self._await_unfenced(transaction.will_publish_to(self._part.to))
                done, receipts = await self._process_messages(transaction, first)
                await self._await_unfenced(_all_of(receipts))
                await self._acknowledge(transaction, done)
                await self._end_transaction(transaction, commit=True)
                self._processed += len(done)
            except ClientError:
                with contextlib.suppress(ClientError):
                    await self._end_transaction(transaction, commit=False)
                raise
        except ClientError:
            if self._consumer is not None:
                self._consumer.redeliver_unacknowledged()
            raise

    async def _begin_transaction(self) -> Transaction:
        beginning = self._client.new_transaction(self._part.timeout_seconds)
        fields: dict[str, Any] = {"region": self._part.region}
        key = self._part.transaction_key
        if key is not None:
            fields["transaction_key"] = key
        transaction = await self._await_unfenced(
            self._history.attempt("begin_transaction", fields, beginning)
        )
        epoch = {} if key is None else {"key_epoch": self._client.coordinators.epoch}
        self._history.write("begin_transaction", "ok", **transaction_fields(transaction), **fields, **epoch)
        return transaction

    async def _process_messages(
        self, transaction: Transaction, first: Message
    ) -> tuple[list[Message], Receipts]:
        """Process the messages of one transaction. Return them, and the futures of the receipts of their results."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._part.commit_seconds
        done: list[Message] = []
        receipts: Receipts = []
        message: Message | None = first
        while message is not None:
            self._note_received(message, transaction)
            await asyncio.sleep(self._part.message_seconds)
            receipts.append(await self._await_unfenced(self._publish(transaction, message)))
            done.append(message)
            is_complete = len(done) >= self._part.messages_per_transaction or loop.time() >= until
            message = None if is_complete else await self._next_message(until)
        return done, receipts

    async def _next_message(self, until: float | None) -> Message | None:
        """Return the next message; None when the task has to end, or at the deadline `until`."""
        assert self._consumer is not None
        loop = asyncio.get_running_loop()
        receiving = loop.create_task(self._consumer.receive())
        ending = loop.create_task(self._stopping.wait())
        remaining_seconds = None if until is None else max(0.0, until - loop.time())
        try:
            await asyncio.wait(
                {receiving, ending}, timeout=remaining_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            return receiving.result() if receiving.done() else None
        except ClientError:
            self._consumer = None  # a failed consumer cannot reconnect
            raise
        finally:
            receiving.cancel()
            ending.cancel()
            await asyncio.wait({receiving, ending})

    async def _publish(self, transaction: Transaction, message: Message) -> asyncio.Future[MessageId]:
        """Publish the result of a message, with the message's key. Return the future of the receipt."""
        assert self._publisher is not None
        source = "/".join(map(str, self._origin(message)))
        payload = self._publisher.payload(made_of=source)
        return self._publisher.publish_nowait(payload, message.key or source, transaction)

    def _note_received(self, message: Message, transaction: Transaction) -> None:
        origin = self._origin(message)
        self._history.write(
            "receive",
            "ok",
            origin_region=origin[0],
            producer=origin[1],
            sequence_id=origin[2],
            message_id=message_id_text(message.id),
            payload_digest=payload_digest(message.payload),
            detail=message.payload.rstrip(b" ").decode(),
            **transaction_fields(transaction),
            **self._subscription_fields,
        )
        self._repeated += origin in self._seen
        self._seen.add(origin)

    def _origin(self, message: Message) -> tuple[str, str, int]:
        return message.replicated_from or self._part.region, message.producer_name, message.sequence_id

    async def _acknowledge(self, transaction: Transaction, done: Sequence[Message]) -> None:
        consumer, is_cumulative = self._consumer, self._part.acknowledge == "cumulative"
        assert consumer is not None
        fields = {
            **self._subscription_fields,
            "how": self._part.acknowledge,
            **transaction_fields(transaction),
        }

        def record(outcome: Outcome, **more: str) -> None:
            for message in done[-1:] if is_cumulative else done:
                self._history.write(
                    "acknowledge", outcome, message_id=message_id_text(message.id), **fields, **more
                )

        async def attempt() -> None:
            if is_cumulative:
                await consumer.acknowledge_cumulative(done[-1], transaction=transaction)
            else:
                await consumer.acknowledge(*done, transaction=transaction)

        record("asked")
        try:
            # A repeated acknowledgement receives the same response as the first one.
            acknowledging = self._client.retry(attempt, deadline_seconds=ACKNOWLEDGE_SECONDS)
            await self._await_unfenced(acknowledging)
        except (ClientError, Fenced) as refusal:
            record("failed" if refusal.definite else "unknown", error=str(refusal))
            raise

    async def _end_transaction(self, transaction: Transaction, *, commit: bool) -> None:
        ending = self._await_unfenced(transaction.commit() if commit else transaction.abort())
        await self._history.end_transaction(self._part.region, transaction, ending, commit=commit)

    async def _await_unfenced(self, work: Awaitable[T]) -> T:
        """Await `work`. Raises Fenced if the region rejects the task's client epoch as stale, because a newer task has
        the key. An expired transaction is not reported as Fenced: the task itself gets a newer epoch when it
        reconnects."""
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
