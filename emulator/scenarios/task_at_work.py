"""A task that reads, processes and writes in transactions: with our own client, on whatever loop and network that has.
Real processes (`host_actor.py`) and simulated hosts run this same program.

    message ──▶ begin ──▶ (work, publish) for each message ──▶ acknowledge ──▶ commit
                  ▲                                                             │
                  └───── abort, have all of it again ◀──── anything else ───────┘

A task that learns that a newer one has its transaction key ends its work: if it asked for the key anew, it would fence
that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, TypeVar

from emulator.client import (
    Client,
    ClientError,
    Consumer,
    ConsumerType,
    ExpiredTransaction,
    InitialPosition,
    Message,
    MessageId,
    Producer,
    Transaction,
)
from emulator.errors import ServerError
from emulator.history import Outcome, attributes_digest, payload_digest, transaction_text
from emulator.scenarios.notes import Notes
from emulator.scenarios.workload import Counts, TaskPart

T = TypeVar("T")

RETRY_SECONDS = 0.2
ACKNOWLEDGE_SECONDS = 5.0
"""How long it tries to acknowledge while its connection comes back."""


class Fenced(Exception):
    """A newer task has its transaction key."""


class TaskAtWork:
    """One life of a task."""

    def __init__(self, part: TaskPart, client: Client, notes: Notes) -> None:
        """`client` has the part's transaction key."""
        self._part = part
        self._client = client
        self._notes = notes
        self._outcomes: dict[Outcome, int] = {"ok": 0, "failed": 0, "unknown": 0}
        self._asked = self._processed = self._repeated = 0
        self._seen: set[tuple[str, str, int]] = set()
        self._fenced = False
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._session = ""
        self._settled = asyncio.Event()
        """It reads and can write, and has its key."""
        self._ending = asyncio.Event()
        self._task = asyncio.create_task(self._serve())

    @property
    def counts(self) -> Counts:
        return Counts(
            region=self._part.region,
            connected=self._producer is not None and self._producer.is_connected,
            asked=self._asked,
            ok=self._outcomes["ok"],
            failed=self._outcomes["failed"],
            unknown=self._outcomes["unknown"],
            received=len(self._seen),
            repeated=self._repeated,
            processed=self._processed,
            fenced=self._fenced,
        )

    async def begin(self) -> None:
        """Ends when it reads, can write, and has fenced whoever had its key."""
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
        """Whatever is not open. The key first: who has it must not be given what this one is to process."""
        if self._part.transaction_key is not None and not self._settled.is_set():
            await self._unless_fenced(self._client.coordinators.take_key())
        if self._producer is None:
            self._producer = await self._open_producer()
        if self._consumer is None:
            self._consumer = await self._subscribe()
        self._settled.set()

    async def _open_producer(self) -> Producer:
        place = {"region": self._part.region, "topic": self._part.to, "producer": self._part.name}
        producer = await self._noted(
            "connect",
            place,
            self._client.producer(self._part.to, name=self._part.name, pending_messages_max=20_000),
        )
        self._session = self._notes.new_session()
        told = {"session": self._session, "last_sequence_id": producer.last_sequence_id}
        self._notes.write("connect", "ok", **told, **place)
        return producer

    async def _subscribe(self) -> Consumer:
        part = self._part
        said = {**self._reading, "replicated": part.replicated, "initial": "earliest"}
        subscribing = self._client.subscribe(
            part.topic,
            part.subscription,
            type_=ConsumerType[part.type.upper()],
            initial_position=InitialPosition.EARLIEST,
            replicated=part.replicated,
            name=part.name,
        )
        consumer = await self._noted("subscribe", said, subscribing)
        self._notes.write("subscribe", "ok", **said)
        return consumer

    async def _noted(self, op: str, said: dict[str, Any], work: Awaitable[T]) -> T:
        """Ask, and write down a refusal."""
        self._notes.write(op, "asked", **said)
        try:
            return await work
        except ClientError as refusal:
            self._notes.write(op, "unknown", error=str(refusal), **said)
            raise

    async def _retire(self) -> None:
        """Another producer, and if need be another consumer, take over."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()

    @property
    def _reading(self) -> dict[str, str]:
        part = self._part
        return {"region": part.region, "topic": part.topic, "subscription": part.subscription}

    # One transaction.

    async def _process_from(self, first: Message) -> None:
        """All of it counts, or it is done again. ClientError, Fenced."""
        transaction = await self._unless_fenced(self._begin())
        try:
            assert self._consumer is not None
            await self._unless_fenced(transaction.will_publish_to(self._part.to))
            done, receipts = await self._work(transaction, first)
            await self._unless_fenced(_all_of(receipts))
            await self._acknowledge(transaction, done)
            await self._end(transaction, commit=True)
            self._processed += len(done)
        except ClientError:
            with contextlib.suppress(ClientError):
                await self._end(transaction, commit=False)
            self._have_again()
            raise

    async def _begin(self) -> Transaction:
        key = self._part.transaction_key
        said = {"region": self._part.region} | ({} if key is None else {"transaction_key": key})
        try:
            transaction = await self._noted(
                "begin_transaction", said, self._client.new_transaction(self._part.timeout_seconds)
            )
        except ClientError:
            self._have_again()
            raise
        told: dict[str, Any] = {} if key is None else {"key_epoch": self._client.coordinators.epoch}
        self._notes.write(
            "begin_transaction", "ok", transaction=transaction_text(transaction.id), **said, **told
        )
        return transaction

    async def _work(
        self, transaction: Transaction, first: Message
    ) -> tuple[list[Message], list[asyncio.Future[MessageId]]]:
        """What was processed, and the receipts that are awaited."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._part.commit_seconds
        done: list[Message] = []
        receipts: list[asyncio.Future[MessageId]] = []
        message: Message | None = first
        while message is not None:
            self._note_received(message, transaction)
            await asyncio.sleep(self._part.message_seconds)
            receipts.append(await self._unless_fenced(self._publish(transaction, message)))
            done.append(message)
            is_over = len(done) >= self._part.messages_per_transaction or loop.time() >= until
            message = None if is_over else await self._next(until)
        return done, receipts

    async def _next(self, until: float | None) -> Message | None:
        """The next message; None when it is told to end, or when the time is over."""
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

    def _note_received(self, message: Message, transaction: Transaction) -> None:
        origin = (message.replicated_from or self._part.region, message.producer_name, message.sequence_id)
        self._notes.write(
            "receive",
            "ok",
            origin_region=origin[0],
            producer=origin[1],
            sequence_id=origin[2],
            message_id=_place(message.id),
            payload_digest=payload_digest(message.payload),
            transaction=transaction_text(transaction.id),
            detail=message.payload.rstrip(b" ").decode(),
            **self._reading,
        )
        self._repeated += origin in self._seen
        self._seen.add(origin)

    async def _publish(self, transaction: Transaction, message: Message) -> asyncio.Future[MessageId]:
        """What it made of a message, with that one's key."""
        assert self._producer is not None
        number = self._producer.last_sequence_id + 1
        source = (
            f"{message.replicated_from or self._part.region}/{message.producer_name}/{message.sequence_id}"
        )
        identity = {"origin_region": self._part.region, "producer": self._part.name, "sequence_id": number}
        payload = json.dumps({**identity, "made_of": source}, separators=(",", ":")).encode()
        key = message.key or source
        said = {
            "region": self._part.region,
            "topic": self._part.to,
            "producer": self._part.name,
            "session": self._session,
            "sequence_id": number,
            "transaction": transaction_text(transaction.id),
            "detail": payload.decode(),
        }
        digests = {"payload_digest": payload_digest(payload), "attributes_digest": attributes_digest(key)}
        self._notes.write("publish", "asked", key=key, **digests, **said)
        self._asked += 1
        try:
            sent = self._producer.send_nowait(payload, key=key, sequence_id=number, transaction=transaction)
        except ClientError as refusal:
            self._told(said, "failed", error=str(refusal))
            raise
        sent.add_done_callback(partial(self._answered, said))
        return sent

    def _answered(self, said: dict[str, Any], done: asyncio.Future[MessageId]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None and not done.cancelled():
            place = done.result()
            # A repetition has no place of its own.
            told = {"message_id": _place(place)} if place.ledger >= 0 else {}
            self._told(said, "ok", **told)
        else:
            certain = isinstance(error, ClientError) and error.definite
            self._told(said, "failed" if certain else "unknown", error=str(error))

    def _told(self, said: dict[str, Any], outcome: Outcome, **fields: str) -> None:
        self._notes.write("publish", outcome, **fields, **said)
        self._outcomes[outcome] += 1

    async def _acknowledge(self, transaction: Transaction, done: Sequence[Message]) -> None:
        consumer, how = self._consumer, self._part.acknowledge
        assert consumer is not None
        said = {**self._reading, "how": how, "transaction": transaction_text(transaction.id)}
        named = done[-1:] if how == "cumulative" else done
        for message in named:
            self._notes.write("acknowledge", "asked", message_id=_place(message.id), **said)

        async def attempt() -> None:
            if how == "cumulative":
                await consumer.acknowledge_cumulative(done[-1], transaction=transaction)
            else:
                await consumer.acknowledge(*done, transaction=transaction)

        try:
            # The same acknowledgement again is answered like the first one.
            asking = self._client.persist(attempt, deadline_seconds=ACKNOWLEDGE_SECONDS)
            await self._unless_fenced(asking)
        except (ClientError, Fenced) as refusal:
            outcome: Outcome = "failed" if getattr(refusal, "definite", True) else "unknown"
            for message in named:
                self._notes.write(
                    "acknowledge", outcome, message_id=_place(message.id), error=str(refusal), **said
                )
            raise

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        said = {
            "region": self._part.region,
            "transaction": transaction_text(transaction.id),
            "action": "commit" if commit else "abort",
        }
        self._notes.write("end_transaction", "asked", **said)
        try:
            await self._unless_fenced(transaction.commit() if commit else transaction.abort())
        except Fenced as fenced:
            self._notes.write("end_transaction", "failed" if commit else "unknown", error=str(fenced), **said)
            raise
        except ClientError as refusal:
            outcome: Outcome = "failed" if refusal.definite and commit else "unknown"
            self._notes.write("end_transaction", outcome, error=str(refusal), **said)
            raise
        self._notes.write("end_transaction", "ok", **said)

    def _have_again(self) -> None:
        """What was received and did not count."""
        if self._consumer is not None:
            self._consumer.redeliver_unacknowledged()

    async def _unless_fenced(self, work: Awaitable[T]) -> T:
        """Fenced when a newer task has the key. The region says so of the transaction; or of the connection, when this
        one comes back with an epoch that is not the newest any more."""
        try:
            return await work
        except ExpiredTransaction as expired:
            raise Fenced(str(expired)) from None
        except ClientError as refusal:
            is_stale = refusal.code is ServerError.NotAllowedError and " is stale" in str(refusal)
            if self._part.transaction_key is not None and is_stale:
                raise Fenced(str(refusal)) from None
            raise


async def _all_of(receipts: Sequence[asyncio.Future[MessageId]]) -> None:
    await asyncio.wait(receipts)
    for receipt in receipts:
        receipt.result()


def _place(message_id: MessageId) -> str:
    return f"{message_id.ledger}:{message_id.entry}:{message_id.batch_index}"
