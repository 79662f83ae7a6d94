"""A host that owns topics and waits for the topics of other hosts, with geoemu's own client. Real processes
(`native_actor.py`) and simulated hosts run this same program.

The messages that owners publish to a topic are a write-ahead log: a new owner that reads the log from the beginning
continues from the same state (PIP-68's example).

    introduction   the new owner, its priority and epoch (PIP-440: it SHOULD be published), and
                   the number of messages that it read
    heartbeat      the next number, under one of KEYS keys; the state is the last number of each key
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from emulator.client import EARLIEST, AccessMode, Client, ClientError, Producer, ProducerState, Transaction
from emulator.scenarios.actors.native_history import (
    ActorHistory,
    HistoryRecorder,
    RecordedPublisher,
    transaction_fields,
)
from emulator.scenarios.actors.specs import Counts, HostSpec

RETRY_SECONDS = 0.2
TRANSACTION_SECONDS: Final = 10.0
KEYS = 16


class State:
    """The state of one topic: the result of the messages that its owners in one region wrote."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.messages = 0
        """Number of messages read or written."""

    @property
    def next_number(self) -> int:
        return 1 + max(self.values.values(), default=-1)

    @property
    def digest(self) -> str:
        """A hash of the state; equal states have equal hashes."""
        return hashlib.blake2b(json.dumps(sorted(self.values.items())).encode(), digest_size=8).hexdigest()

    def apply(self, payload: bytes) -> None:
        """Apply the next message of the log. A message that no owner wrote does not change the values."""
        self.messages += 1
        match read(payload):
            case {"kind": "heartbeat", "number": int(number)}:
                self.values[key_of(number)] = number


def key_of(number: int) -> str:
    return f"key-{number % KEYS}"


def read(payload: bytes) -> Mapping[str, Any]:
    """Return the fields of a payload that an owner wrote; empty for any other payload."""
    try:
        written = json.loads(payload)
    except ValueError:
        return {}
    return written if isinstance(written, dict) else {}


def introduction(priority: int, epoch: int | None, state: State) -> dict[str, Any]:
    return {
        "kind": "introduction",
        "priority": priority,
        "epoch": epoch,
        "read": state.messages,
        "state": state.digest,
    }


def heartbeat(number: int) -> dict[str, Any]:
    return {"kind": "heartbeat", "number": number}


class NativeHost:
    """A running host, with its claims to all its topics."""

    def __init__(self, part: HostSpec, client: Client, recorder: HistoryRecorder) -> None:
        self._part = part
        self._client = client
        self._history = ActorHistory(recorder)
        self._claims: dict[str, TopicClaim] = {}
        self._leaving = False

    @property
    def counts(self) -> Counts:
        claims = self._claims.values()
        holds = tuple(claim.topic for claim in claims if claim.holds)
        waits = sum(claim.is_queued for claim in claims)
        return self._history.counts(
            region=self._part.region,
            connected=bool(holds or waits),
            publishing=bool(claims) and not self._leaving,
            holds=holds,
            waits=waits,
        )

    async def begin(self) -> None:
        """Claim the host's own topics. Return when it owns, or waits for, each of them."""
        await self._claim(self._part.own)

    async def join_queues(self) -> None:
        """Claim all other topics. Return when the host owns, or waits for, each of them."""
        await self._claim(topic for topic in self._part.topics if topic not in self._claims)

    async def _claim(self, topics: Iterable[str]) -> None:
        claims = [TopicClaim(self._part, topic, self._client, self._history) for topic in topics]
        self._claims.update((claim.topic, claim) for claim in claims)
        await asyncio.gather(*(claim.owned_or_queued.wait() for claim in claims))

    async def finish(self) -> None:
        """Leave every wait queue first, so that the host becomes the owner of no further topic; then give up its
        topics."""
        self._leaving = True
        is_queued = [claim for claim in self._claims.values() if not claim.holds]
        await asyncio.gather(*(claim.leave() for claim in is_queued))
        await asyncio.gather(*(claim.leave() for claim in self._claims.values()))
        await self._client.close()


class TopicClaim:
    """The claim of one host to one topic: waits for exclusive access, then publishes as the owner."""

    def __init__(self, part: HostSpec, topic: str, client: Client, history: ActorHistory) -> None:
        self.topic = topic
        self.owned_or_queued = asyncio.Event()
        """Set when the host owns the topic or is in its wait queue."""
        self.is_queued = False
        self._part = part
        self._priority = part.priority_of(topic)
        self._client = client
        self._history = history
        self._publisher: RecordedPublisher | None = None
        self._introduced = False
        self._reports = ReportPublisher(part, topic, client, history) if part.reports_to is not None else None
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._serve())

    @property
    def holds(self) -> bool:
        """Whether the host owns the topic: the region has stored its introduction, and the producer is connected."""
        return self._introduced and self._publisher is not None and self._publisher.producer.is_connected

    async def leave(self) -> None:
        """Leave the wait queue or give up the topic, and end the claim."""
        self._stopping.set()
        if not self._introduced:
            self._task.cancel()
        await asyncio.wait({self._task})

    async def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                self._publisher = await self._request_ownership()
                await self._publish_as_owner(self._publisher)
            except ClientError:
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                await self._close_producer()

    async def _request_ownership(self) -> RecordedPublisher:
        fields = {"region": self._part.region, "topic": self.topic, "producer": self._part.name}
        opening = self._client.producer(
            self.topic,
            name=self._part.name,
            access_mode=AccessMode.WAIT_FOR_EXCLUSIVE,
            priority=self._priority,
            on_state_change=self._state_changed,
        )
        try:
            return await self._history.open_producer(fields, opening)
        finally:
            self.is_queued = False

    def _state_changed(self, _: Producer, state: ProducerState) -> None:
        self.is_queued = state is ProducerState.WAITING
        if self.is_queued:
            self.owned_or_queued.set()

    async def _publish_as_owner(self, publisher: RecordedPublisher) -> None:
        epoch = publisher.producer.topic_epoch
        state = await self._rebuild_state() if self._part.rebuilds else State()
        await publisher.publish(publisher.payload(**introduction(self._priority, epoch, state)))
        self._introduced = True
        self.owned_or_queued.set()
        while not await self._stops_within(1 / self._part.heartbeats_per_second):
            number = state.next_number
            payload = publisher.payload(**heartbeat(number))
            if self._reports is None:
                await publisher.publish(payload, key_of(number))
            else:
                await self._reports.publish(number, epoch, publisher, payload)
            state.apply(payload)

    async def _stops_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    async def _rebuild_state(self) -> State:
        """Return the state that earlier owners wrote in this region. The log is complete, because no other producer may
        write any more."""
        state = State()
        reader = await self._client.reader(self.topic, EARLIEST)
        try:
            while await reader.has_message():
                message = await reader.receive()
                if message.replicated_from is None:
                    state.apply(message.payload)
        finally:
            await reader.close()
        return state

    async def _close_producer(self) -> None:
        publisher, self._publisher, self._introduced = self._publisher, None, False
        if publisher is not None:
            await publisher.producer.close()


class ReportPublisher:
    """Publishes the reports of one host about one of its topics to another topic."""

    def __init__(self, part: HostSpec, topic: str, client: Client, history: ActorHistory) -> None:
        assert part.reports_to is not None, "the host's specification has `reports_to`"
        name = f"{part.name}-reports-{part.topics.index(topic) + 1}"
        self._fields = {"region": part.region, "topic": part.reports_to, "producer": name}
        self._client = client
        self._history = history
        self._publisher: RecordedPublisher | None = None

    async def publish(
        self, number: int, epoch: int | None, owner: RecordedPublisher, heartbeat_payload: bytes
    ) -> None:
        """Publish a report and the heartbeat of that number in one transaction. Raises ClientError if it does not
        commit, or its outcome is unknown."""
        if self._publisher is None:
            opening = self._client.producer(self._fields["topic"], name=self._fields["producer"])
            self._publisher = await self._history.open_producer(self._fields, opening)
        report = self._publisher.payload(kind="report", number=number, epoch=epoch)
        transaction = await self._begin()
        try:
            await self._publisher.publish(report, key_of(number), transaction)
            await owner.publish(heartbeat_payload, key_of(number), transaction)
            await self._end(transaction, commit=True)
        except ClientError:
            with contextlib.suppress(ClientError):
                await self._end(transaction, commit=False)
            raise

    async def _begin(self) -> Transaction:
        region = {"region": self._fields["region"]}
        beginning = self._client.new_transaction(TRANSACTION_SECONDS)
        transaction = await self._history.attempt("begin_transaction", region, beginning)
        self._history.write("begin_transaction", "ok", **transaction_fields(transaction), **region)
        return transaction

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        ending = transaction.commit() if commit else transaction.abort()
        await self._history.end_transaction(self._fields["region"], transaction, ending, commit=commit)
