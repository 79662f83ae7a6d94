"""One topic of a region: its log, who publishes to it, who reads it.

Keeps the order of docs/ARCHITECTURE.md, "Durable, visible, applied":
admitted → issued → durable → applied → visible → acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.broker.environment import RegionServices
from emulator.broker.subscription import Subscription
from emulator.broker.tail import StoredEntry, TailCache
from emulator.core.cursor import Cursor
from emulator.core.deduplication import (
    ProducerDeduplication,
    SourceWatermarks,
    Verdict,
    last_sequence_id,
)
from emulator.errors import ProtocolError, ServerError
from emulator.model import Position, TopicName
from emulator.storage.contract import Log
from emulator.wire.codec import SendCommand
from emulator.wire.metadata import EntryInfo

if TYPE_CHECKING:
    from emulator.broker.replicator import Replicator
    from emulator.broker.subscription_sync import SubscriptionSync

logger = logging.getLogger(__name__)

REPLAY_ENTRIES = 1_000
REPLAY_BYTES = 4_194_304


class Publisher(Protocol):
    """Whoever appends to a topic: a client's producer, an inbound replicator, the topic itself (markers)."""

    source_region: str | None
    """The region whose replicator this is; None for everybody else."""
    producer_name: str

    def stored(self, outcomes: Sequence[tuple[PendingPublish, int]]) -> None:
        """These are durable, in the order of their sends; the id is -1 for a duplicate."""
        ...


class PendingPublish:
    """One publish between admitted and acknowledged."""

    __slots__ = ("data", "duplicate", "info", "publisher", "send")

    def __init__(
        self,
        publisher: Publisher,
        send: SendCommand | None,
        data: bytes,
        info: EntryInfo,
        *,
        duplicate: bool,
    ) -> None:
        self.publisher = publisher
        self.send = send
        self.data = data
        self.info = info
        self.duplicate = duplicate


class Topic:
    """Owned by its Region; made by `Topic.load`."""

    def __init__(self, region: RegionServices, name: TopicName, log: Log, *, deduplicates: bool) -> None:
        self.region = region
        self.name = name
        self.full_name = str(name)
        self.log = log
        self.deduplicates = deduplicates
        self.tail = TailCache(log.next_entry_id, region.config.settings.tail_cache_bytes)
        self.deduplication = ProducerDeduplication()
        self.admitted_watermarks = SourceWatermarks()
        """What was admitted from each source region, durable or not: the measure for what is new."""
        self.watermarks = SourceWatermarks()
        """What is durable of each source region: the measure for checkpoints."""
        self.last_data: tuple[int, int] | None = None
        """(entry id, messages in the batch or -1) of the newest entry a consumer may see."""
        self.hidden_ids: list[int] = []
        """Ids of all markers in the log, sorted: they are no backlog."""
        self.restricted: dict[int, tuple[str, tuple[str, ...]]] = {}
        """Entry id -> (origin, the regions its sender named): others never see it (TRAPS 8)."""
        self.producers: dict[str, Publisher] = {}
        """Connected producers by name, inbound replicators included."""
        self.subscriptions: dict[str, Subscription] = {}
        self.replicators: dict[str, Replicator] = {}
        self.sync: SubscriptionSync | None = None
        """Replicated subscriptions (PIP-33); present when the topic is replicated at all."""
        self.closed = False
        self._batch: list[PendingPublish] = []
        """Admitted, not yet issued."""
        self.end_entry_id = log.next_entry_id
        """Exclusive end of what may be read. Invariant: only entries that were applied lie below; the log's own durable
        end may be ahead, when several groups became durable before we heard of the first."""
        self._issued = 0
        """Groups issued and not yet durable."""
        self._last_issued: asyncio.Future[int] | None = None
        self._entries_since_checkpoint = 0

    # Loading.

    @classmethod
    async def load(cls, region: RegionServices, name: TopicName, log: Log, *, deduplicates: bool) -> Topic:
        """Rebuild what is known of the log: the last checkpoint, then every entry after it."""
        topic = cls(region, name, log, deduplicates=deduplicates)
        at = topic._restore_checkpoint()
        while entries := await log.read(at, REPLAY_ENTRIES, REPLAY_BYTES):
            for entry in entries:
                topic._apply(StoredEntry.parse(entry.entry_id, entry.data))
            topic._entries_since_checkpoint += len(entries)
            at = entries[-1].entry_id + 1
        return topic

    @property
    def checkpoint_key(self) -> str:
        return f"topic/{self.full_name}"

    def _restore_checkpoint(self) -> int:
        stored = self.region.store.get(self.checkpoint_key)
        if stored is None:
            return 0
        state = json.loads(stored.value)
        if state["ledger_id"] != self.log.ledger_id:
            return 0
        self.deduplication = ProducerDeduplication.from_json(state["deduplication"])
        self.watermarks = SourceWatermarks.from_json(state["watermarks"])
        self.admitted_watermarks = SourceWatermarks.from_json(state["watermarks"])
        self.last_data = tuple(state["last_data"]) if state["last_data"] else None
        self.hidden_ids = state["hidden_ids"]
        self.restricted = {
            int(entry_id): (origin, tuple(names)) for entry_id, (origin, names) in state["restricted"].items()
        }
        next_entry_id: int = state["next_entry_id"]
        return next_entry_id

    def _checkpoint(self) -> None:
        """Let a restart begin here. Says only what is durable, so it may be written at any time."""
        self._entries_since_checkpoint = 0
        state = {
            "ledger_id": self.log.ledger_id,
            "next_entry_id": self.end_entry_id,
            "deduplication": self.deduplication.to_json(),
            "watermarks": self.watermarks.to_json(),
            "last_data": self.last_data,
            "hidden_ids": self.hidden_ids,
            "restricted": self.restricted,
        }
        self.region.put_in_background(self.checkpoint_key, json.dumps(state).encode())

    # Publishing.

    def publish(self, publisher: Publisher, send: SendCommand, data: bytes, info: EntryInfo) -> None:
        """Admit one entry into the current batch; `flush` issues it. ProtocolError when it is refused."""
        duplicate = not self._is_new(publisher, send, info)
        self._batch.append(PendingPublish(publisher, send, data, info, duplicate=duplicate))

    def publish_marker(self, publisher: Publisher, data: bytes, info: EntryInfo) -> None:
        """Append a marker of our own."""
        self._batch.append(PendingPublish(publisher, None, data, info, duplicate=False))
        self.flush()

    def _is_new(self, publisher: Publisher, send: SendCommand, info: EntryInfo) -> bool:
        if publisher.source_region is not None:
            return self._is_new_from(publisher.source_region, info.source_position)
        if not self.deduplicates:
            return True
        highest = last_sequence_id(send.sequence_id, send.highest_sequence_id, info.num_messages)
        is_inner_chunk = info.is_chunk and info.chunk_id != info.num_chunks - 1
        verdict = self.deduplication.check(
            publisher.producer_name, send.sequence_id, highest, is_chunk_not_last=is_inner_chunk
        )
        if verdict is not Verdict.ACCEPT:
            return False
        if not is_inner_chunk:
            self.deduplication.pushed(publisher.producer_name, highest)
        return True

    def _is_new_from(self, region: str, position: Position | None) -> bool:
        if position is None:
            raise ProtocolError(
                ServerError.PersistenceError, f"replicated entry from {region} lacks its source position"
            )
        if not self.admitted_watermarks.accepts(region, position):
            return False
        self.admitted_watermarks.advance(region, position)
        return True

    def flush(self) -> None:
        """Issue everything admitted as one group."""
        batch, self._batch = self._batch, []
        if not batch or self.closed:
            return
        fresh = [publish.data for publish in batch if not publish.duplicate]
        if fresh:
            self._issued += 1
            future = self.log.append(fresh)
        elif self._issued and self._last_issued is not None:
            # Acknowledge duplicates only after everything issued before them: wait behind it.
            self._issued += 1
            future = self._last_issued
        else:
            self._acknowledge(batch, [])
            return
        self._last_issued = future
        future.add_done_callback(lambda done: self._stored(batch, done))

    async def issued_so_far(self) -> None:
        """Wait until everything issued before has its outcome."""
        if self._issued and self._last_issued is not None:
            await asyncio.wait([self._last_issued])

    async def settled(self) -> None:
        """After `close`: wait until whatever was under way has its outcome. What is loaded before that is not what the
        store will hold: an append that is still under way would be stored behind our back."""
        await self.issued_so_far()
        for subscription in self.subscriptions.values():
            await subscription.settled()
        for replicator in self.replicators.values():
            await replicator.settled()

    def _stored(self, batch: list[PendingPublish], done: asyncio.Future[int]) -> None:
        self._issued -= 1
        failure = done.exception()
        if self.closed:
            return
        if failure is not None:
            self.failed(failure)
            return
        entries: list[StoredEntry] = []
        next_id = done.result()
        for publish in batch:
            if not publish.duplicate:
                entry = StoredEntry(next_id, publish.data, publish.info)
                self._apply(entry)
                entries.append(entry)
                next_id += 1
        if entries:
            self.tail.extend(entries)
            self.end_entry_id = next_id
        self._acknowledge(batch, entries)
        self._notify(entries)

    def _apply(self, entry: StoredEntry) -> None:
        """An entry is durable: count it. The same code for the live end and for the replay after a restart."""
        info = entry.info
        if info.source_position is not None and info.replicated_from is not None:
            self.watermarks.advance(info.replicated_from, info.source_position)
            self.admitted_watermarks.advance(info.replicated_from, info.source_position)
        if info.marker_type is not None:
            self.hidden_ids.append(entry.entry_id)
            return
        if info.replicate_to:
            origin = info.replicated_from or self.region.config.region
            self.restricted[entry.entry_id] = (origin, info.replicate_to)
        self.last_data = (entry.entry_id, info.num_messages if info.is_batch else -1)
        is_inner_chunk = info.is_chunk and info.chunk_id != info.num_chunks - 1
        if self.deduplicates and info.replicated_from is None and not is_inner_chunk:
            last = last_sequence_id(info.sequence_id, info.highest_sequence_id, info.num_messages)
            self.deduplication.persisted(info.producer_name, last)

    def _acknowledge(self, batch: list[PendingPublish], entries: list[StoredEntry]) -> None:
        """Tell each publisher, in the order of its sends."""
        outcomes: dict[Publisher, list[tuple[PendingPublish, int]]] = {}
        fresh = iter(entries)
        for publish in batch:
            entry_id = -1 if publish.duplicate else next(fresh).entry_id
            outcomes.setdefault(publish.publisher, []).append((publish, entry_id))
        for publisher, its_outcomes in outcomes.items():
            publisher.stored(its_outcomes)

    def _notify(self, entries: list[StoredEntry]) -> None:
        """The entries are visible: let whoever waits for them have them."""
        self.pump()
        if self.sync is not None and entries:
            self.sync.entries_stored(entries)
        self._entries_since_checkpoint += len(entries)
        if self._entries_since_checkpoint >= self.region.config.settings.state_checkpoint_entries:
            self._checkpoint()

    def pump(self) -> None:
        """Let consumers and replicators go on."""
        for subscription in list(self.subscriptions.values()):
            subscription.pump()
        for replicator in self.replicators.values():
            replicator.pump()

    def create_subscription(self, name: str, cursor: Cursor, *, durable: bool = True) -> Subscription:
        """Add a subscription that does not exist yet. Not durable before its `persisted` returns."""
        assert name not in self.subscriptions
        subscription = Subscription(self, name, cursor, durable=durable)
        self.subscriptions[name] = subscription
        return subscription

    def replicate_subscription(self, subscription: Subscription) -> None:
        """From now on the subscription's position is carried to the other regions (PIP-33)."""
        if not subscription.cursor.replicated:
            subscription.move(lambda cursor: cursor.set_replicated(True))
        if self.sync is not None:
            self.sync.subscription_added(subscription)

    # Reading.

    @property
    def last_position(self) -> Position:
        """Of the newest applied entry, marker or not; (ledger, -1) when there is none."""
        return Position(self.log.ledger_id, self.end_entry_id - 1)

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Read from the tail or the store. StorageError when the store fails."""
        cached = self.tail.read(from_entry_id, entries_max)
        if cached is not None:
            return cached
        entries = await self.log.read(from_entry_id, entries_max, bytes_max)
        return [
            StoredEntry.parse(entry.entry_id, entry.data)
            for entry in entries
            if entry.entry_id < self.end_entry_id
        ]

    def hears(self, region: str) -> bool:
        """Whether that region's replicator is connected to this topic: only then can its answers arrive."""
        return any(publisher.source_region == region for publisher in self.producers.values())

    # Leaving.

    def close(self, why: str) -> None:
        """Stop serving this topic. Whatever is in flight stays unanswered: clients reconnect and send it again."""
        if self.closed:
            return
        self.closed = True
        logger.info("topic %s closed: %s", self.full_name, why)
        for replicator in self.replicators.values():
            replicator.close()
        if self.sync is not None:
            self.sync.close()
        for subscription in list(self.subscriptions.values()):
            subscription.close()

    def failed(self, failure: BaseException) -> None:
        """The store did not keep something of this topic, so what we have in memory may be wrong."""
        if not self.closed:
            self.region.topic_failed(self.full_name, failure)
