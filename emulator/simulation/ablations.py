"""Takes one safeguard away and shows that the swarm notices.

An ablation gives a world another part than the one that ships, at a seam: a rule or a state machine of the broker
(`emulator.broker.parts`), the shell of a topic, a medium. The code itself has no switches, and no name is patched. A
swarm that finds nothing is only worth something if it would have found this.

To add one: the careless part, and an `Ablation` in ABLATIONS. `geoemu simulate --without NAME` runs it by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from emulator.broker.keeper import StateKeeper
from emulator.broker.topic.publishing import PendingPublish
from emulator.broker.topic.tail import StoredEntry
from emulator.broker.topic.topic import Topic
from emulator.core.admission import Client, Publisher
from emulator.core.cursor import Cursor
from emulator.core.cursor_parts import CursorParts, PartName
from emulator.core.deduplication import ProducerDeduplication, SourceWatermarks, Verdict
from emulator.core.dispatch import Limits, Read, Shared, SingleActive, Strategy, SubscriptionType
from emulator.core.replication import Forwarding, ReplicationProgress, forwarding
from emulator.core.snapshots import PENDING_MAX, Effect, SnapshotController
from emulator.core.subscription_updates import Applied, apply_update
from emulator.core.topic_state import TopicState
from emulator.errors import StorageError, StorageFenced
from emulator.markers import SnapshotRequest
from emulator.model import Position
from emulator.simulation.ablation import Ablation, parts, topic
from emulator.simulation.disk import DiskStore, SimulatedDisk
from emulator.simulation.medium import Medium, Write
from emulator.simulation.remote_log import RemoteLog, RemoteStore
from emulator.simulation.seams import AS_SHIPPED, Seams
from emulator.simulation.store import SimulatedLog
from emulator.simulation.vocabulary import WORDS

# Publishing.


class _Mute:
    """A publisher that was told already."""

    publisher: Publisher = Client("mute", "nowhere")

    def stored(self, publishes: object) -> None:
        pass


class _AcknowledgesAtOnce(Topic):
    def flush(self) -> None:
        told: dict[Any, list[PendingPublish]] = {}
        for publish in self._batch:
            if publish.send is not None:
                told.setdefault(publish.attachment, []).append(publish)
                publish.attachment = _Mute()
        super().flush()
        for publisher, publishes in told.items():
            # Behind the chunk of bytes that is being read: only then does a connection know what it owes answers for.
            asyncio.get_running_loop().call_soon(publisher.stored, publishes)


class _OverlooksFormerLives(Topic):
    async def issued_so_far(self) -> None:
        pass

    async def settled(self) -> None:
        await Topic.issued_so_far(self)
        for subscription in self.subscriptions.values():
            await subscription.settled()
        for replicator in self.replicators.values():
            await replicator.settled()


class _AcknowledgesDuplicatesAtOnce(_OverlooksFormerLives):
    """A producer that comes back waits for what its former life has under way, which leaves no duplicates of it. That
    second safeguard must go too."""

    def flush(self) -> None:
        batch, self._batch = self._batch, []
        self._acknowledge([publish for publish in batch if publish.duplicate])
        self._batch = [publish for publish in batch if not publish.duplicate]
        super().flush()


class _SaysWhatWasAdmitted(ProducerDeduplication):
    """What a client that goes on behind the last number is told counts what is not durable."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._admitted: dict[str, int] = {}

    def admit(
        self, name: str, sequence_id: int, highest_sequence_id: int, *, is_chunk_not_last: bool = False
    ) -> Verdict:
        verdict = super().admit(name, sequence_id, highest_sequence_id, is_chunk_not_last=is_chunk_not_last)
        if verdict is Verdict.ACCEPT and not is_chunk_not_last:
            self._admitted[name] = max(highest_sequence_id, self._admitted.get(name, -1))
        return verdict

    def last_sequence_id(self, name: str) -> int:
        return max(super().last_sequence_id(name), self._admitted.get(name, -1))


class _ShowsAtOnce(Topic):
    """Visible before durable, under the ids it will probably have."""

    def flush(self) -> None:
        fresh = [publish for publish in self._batch if not publish.duplicate]
        first = self.end_entry_id
        super().flush()
        if fresh and not self.closed:
            self.tail.extend(self._numbered(first, fresh))
            self.state.stored_end = first + len(fresh)
            self.pump()

    def _stored(self, batch: list[PendingPublish], done: asyncio.Future[int]) -> None:
        self._issued -= 1
        failure = done.exception()
        if self.closed:
            return
        if failure is not None:
            self.failed(failure)
            return
        fresh = [publish for publish in batch if not publish.duplicate]
        entries = self._numbered(done.result(), fresh)
        for publish, entry in zip(fresh, entries, strict=True):
            publish.entry_id = entry.entry_id
            self.state.fold(entry.entry_id, entry.info)
        self._acknowledge(batch)
        self._notify(entries)

    def _numbered(self, first: int, fresh: Sequence[PendingPublish]) -> list[StoredEntry]:
        return [StoredEntry(first + index, one.data, one.info, one.marker) for index, one in enumerate(fresh)]


class _DoesNotWait(Topic):
    async def settled(self) -> None:
        pass


class _AcknowledgesWhoeverOwnsIt(Topic):
    """What was refused for the sake of a newer owner is acknowledged too, under the ids it would have had."""

    def _stored(self, batch: list[PendingPublish], done: asyncio.Future[int]) -> None:
        fenced = done.exception()
        if self.closed or not isinstance(fenced, StorageFenced):
            super()._stored(batch, done)
            return
        would_be: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        would_be.set_result(self.end_entry_id)
        super()._stored(batch, would_be)
        self.failed(fenced)


# Deduplication.


class _KnowsThisLifeOnly(ProducerDeduplication):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seen: set[str] = set()

    def admit(
        self, name: str, sequence_id: int, highest_sequence_id: int, *, is_chunk_not_last: bool = False
    ) -> Verdict:
        verdict = super().admit(name, sequence_id, highest_sequence_id, is_chunk_not_last=is_chunk_not_last)
        if verdict is Verdict.ACCEPT and not is_chunk_not_last:
            self._seen.add(name)
        return verdict

    def persisted(self, name: str, highest_sequence_id: int) -> None:
        if name in self._seen:
            super().persisted(name, highest_sequence_id)


class _AcceptsEverything(SourceWatermarks):
    def accepts(self, source_region: str, position: Position) -> bool:
        return True


class _ChecksOutWhatWasAdmitted(TopicState):
    def head(self, ledger_id: int) -> bytes:
        durable, self.watermarks = self.watermarks, self.admitted_watermarks
        try:
            return super().head(ledger_id)
        finally:
            self.watermarks = durable


# Replication.


def _forward_everything(
    remote: str, replicated_from: str | None, replicate_to: tuple[str, ...], marker_type: int | None
) -> Forwarding:
    return forwarding(remote, None, replicate_to, marker_type)


class _GoesOnFromNext(ReplicationProgress):
    def reset(self) -> None:
        next_entry_id = self.next_entry_id
        super().reset()
        self.next_entry_id = next_entry_id


# Subscriptions.


class _AnswersAtOnce(StateKeeper):
    def now(self) -> asyncio.Future[None]:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        written.set_result(None)
        self.soon(WRITE_DELAY_SECONDS)
        return written


WRITE_DELAY_SECONDS = 0.02


class _TrustingSingleActive(SingleActive):
    def is_overtaken(self, read: Read) -> bool:
        return False


class _TrustingShared(Shared):
    def is_overtaken(self, read: Read) -> bool:
        return False


class _ForgetsItLeads(CursorParts):
    @classmethod
    def load(cls, head: bytes, parts: Mapping[PartName, bytes]) -> CursorParts:
        loaded = super().load(head, parts)
        loaded.cursor.ahead_of_peers = False
        return loaded


class _EndlessSnapshots(SnapshotController):
    def request_stored(self, request: SnapshotRequest, last_position: Position) -> list[Effect]:
        news = SnapshotRequest(f"{request.snapshot_id}?", request.source_region)
        answers = super().request_stored(news, last_position)
        return super().request_stored(request, last_position) if answers else []


class _ImpatientSnapshots(SnapshotController):
    def _lose_patience(self) -> None:
        self._room = PENDING_MAX

    def _is_under_way(self, last_data_position: Position) -> bool:
        return False


def _strategy_that_trusts_reads(type_: SubscriptionType, cursor: Cursor, limits: Limits) -> Strategy:
    return (_TrustingShared if type_ is SubscriptionType.SHARED else _TrustingSingleActive)(cursor, limits)


def _go_where_told(
    cursor: Cursor, own_position_entry: int, last_entry_id: int, unseen: Iterable[int]
) -> Applied:
    """Forward as ever, but backward too. (What lies before where it goes is acknowledged already.)"""
    if own_position_entry >= min(cursor.mark_delete, last_entry_id):
        return apply_update(cursor, own_position_entry, last_entry_id, unseen)
    cursor.seek(own_position_entry + 1)
    return Applied.MOVED


# Media.


class _TrustsTornTails(SimulatedDisk):
    async def open_store(self) -> DiskStore:
        self.faults = replace(self.faults, trusts_torn_tail=True)
        return await super().open_store()


class _FailsAlone(SimulatedLog):
    def failed(self, error: StorageError) -> None:
        """Its next user has it read afresh; its present one goes on."""
        self._store.forget(self.name)


class _EachByItself(Medium):
    def apply(self, group: Sequence[Write], owner: int) -> list[Any]:
        """Each write as if nothing before it had failed."""
        outcomes = []
        for write in group:
            if isinstance(write.lane, SimulatedLog):
                write.lane.broken = None
            outcomes += super().apply([write], owner)
        return outcomes


class _FailsAloneOnDisk(DiskStore):
    log_type = _FailsAlone


class _FailsAloneElsewhere(RemoteStore):
    log_type = _FailsAlone


class _UnpoisonedDisk(_EachByItself, SimulatedDisk):
    def make_store(self, owner: int) -> DiskStore:
        return _FailsAloneOnDisk(self, owner)


class _UnpoisonedRemoteLog(_EachByItself, RemoteLog):
    def make_store(self, owner: int) -> RemoteStore:
        return _FailsAloneElsewhere(self, owner)


class _NoFence(RemoteLog):
    def fence(self, write: Write, owner: int) -> StorageFenced | None:
        return None


class _BlindStore(RemoteStore):
    def look(self) -> None:
        pass


class _NeverLookedAt(RemoteLog):
    def make_store(self, owner: int) -> RemoteStore:
        return _BlindStore(self, owner)


class _TakesFailuresForDefinite(RemoteStore):
    async def open_log(self, name: str, *, create: bool = True) -> SimulatedLog | None:
        """Whatever failed is taken not to be there."""
        failed = self._logs.get(name)
        if failed is None or failed.broken is None or failed.gone is not None:
            return await super().open_log(name, create=create)
        again = self._logs[name] = self.log_type(self, failed.durable)
        again.next_entry_id, again.size_bytes = failed.next_entry_id, failed.size_bytes
        return again


class _NotReadAgain(RemoteLog):
    def make_store(self, owner: int) -> RemoteStore:
        return _TakesFailuresForDefinite(self, owner)


OF_THE_BROKER = (
    Ablation(
        "receipt-before-durable",
        "A receipt is sent when a publish is issued, not when it is durable.",
        ("INV-1",),
        topic(_AcknowledgesAtOnce),
    ),
    Ablation(
        "receiver-forgets-sources",
        "A region does not remember which positions of another region it has.",
        ("INV-2", "INV-4", "INV-6"),
        parts(watermarks=_AcceptsEverything),
    ),
    Ablation(
        "deduplication-not-rebuilt",
        "After a restart a region knows nothing of what producers sent before it.",
        ("INV-2",),
        parts(deduplication=_KnowsThisLifeOnly),
    ),
    Ablation(
        "checkpoint-claims-undurable",
        "A checkpoint of the source positions contains what was only admitted.",
        ("INV-2", "INV-6"),
        parts(topic_state=_ChecksOutWhatWasAdmitted),
    ),
    Ablation(
        "loops",
        "A replicator forwards what came from another region.",
        ("INV-3", "INV-2", "INV-6", "INV-4"),
        parts(forwarding=_forward_everything),
    ),
    Ablation(
        "torn-tail-trusted",
        "Recovery serves what a crash left of an append.",
        ("INV-3", "INV-15"),
        lambda seams: replace(seams, disk=_TrustsTornTails),
    ),
    Ablation(
        "log-not-poisoned",
        "After an append failed, those behind it are stored.",
        ("INV-4", "INV-1", "INV-2"),
        lambda seams: replace(seams, disk=_UnpoisonedDisk, remote_log=_UnpoisonedRemoteLog),
    ),
    Ablation(
        "one-round-snapshots",
        "A snapshot is used after one round of answers, however many regions there are.",
        ("INV-5",),
        parts(snapshots=partial(SnapshotController, rounds=1)),
    ),
    Ablation(
        "lead-forgotten",
        "After a restart a subscription does not know that its consumers are ahead of what other regions were told.",
        ("INV-17",),
        parts(cursor_parts=_ForgetsItLeads),
    ),
    Ablation(
        "snapshots-without-patience",
        "Snapshots are begun at every interval, however many wait for answers and however many came too late.",
        ("INV-17", "INV-19"),
        parts(snapshots=_ImpatientSnapshots),
    ),
    Ablation(
        "afterthought-calls-for-another",
        "A snapshot that was begun without news makes other regions begin one in turn.",
        ("INV-19",),
        parts(snapshots=_EndlessSnapshots),
    ),
    Ablation(
        "update-acknowledges-unseen",
        "An update acknowledges messages that its source never received.",
        ("INV-5",),
        parts(never_reaches=lambda *_, **__: False),
    ),
    Ablation(
        "overtaken-read-used",
        "The dispatcher uses a read that a rewind has overtaken.",
        ("INV-5",),
        parts(strategy_for=_strategy_that_trusts_reads),
    ),
    Ablation(
        "resume-from-next",
        "After a lost link a replicator goes on behind what it sent, not behind what is confirmed.",
        ("INV-6", "INV-2"),
        parts(replication_progress=_GoesOnFromNext),
    ),
    Ablation(
        "update-moves-backward",
        "An update puts mark-delete where it says, even if that is behind.",
        ("INV-8", "INV-9"),
        parts(apply_update=_go_where_told),
    ),
    Ablation(
        "acknowledgement-before-durable",
        "An acknowledgement is answered before the cursor is durable.",
        ("INV-9",),
        parts(keeper=_AnswersAtOnce),
    ),
    Ablation(
        "duplicate-acknowledged-early",
        "A duplicate is acknowledged while what it repeats is still being written.",
        ("INV-10", "INV-1", "INV-2"),
        lambda seams: replace(
            seams.with_parts(deduplication=_SaysWhatWasAdmitted), topic=_AcknowledgesDuplicatesAtOnce
        ),
    ),
    Ablation(
        "former-life-overlooked",
        "A producer that comes back is not told of what its former life has under way.",
        ("INV-1",),
        topic(_OverlooksFormerLives),
    ),
    Ablation(
        "visible-before-durable",
        "Consumers and replicators see an entry before it is durable.",
        ("INV-13", "INV-3", "INV-5", "INV-2", "INV-6"),
        topic(_ShowsAtOnce),
    ),
    Ablation(
        "fence-ignored",
        "A log that lies elsewhere stores what an older owner sends.",
        ("INV-11",),
        lambda seams: replace(seams, remote_log=_NoFence),
    ),
    Ablation(
        "fenced-but-acknowledged",
        "A region acknowledges what was refused because it is not the owner any more.",
        ("INV-1", "INV-2"),
        topic(_AcknowledgesWhoeverOwnsIt),
    ),
    Ablation(
        "owner-never-looks",
        "A region that writes nothing does not look whether it is still the owner of its log.",
        ("INV-11",),
        lambda seams: replace(seams, remote_log=_NeverLookedAt),
    ),
    Ablation(
        "lost-answer-taken-for-failure",
        "After a lost answer a log is taken to hold what it is known to hold, and not read again.",
        ("INV-2", "INV-1", "INV-4", "INV-6", "INV-13"),
        lambda seams: replace(seams, remote_log=_NotReadAgain),
    ),
    Ablation(
        "reload-does-not-wait",
        "A topic is loaded again while appends to it are still under way.",
        ("INV-2", "INV-5", "INV-8", "INV-9", "INV-4"),
        topic(_DoesNotWait),
    ),
)

ABLATIONS = (*OF_THE_BROKER, *(one for word in WORDS for one in word.ablations))

BY_NAME = {ablation.name: ablation for ablation in ABLATIONS}


def seams_without(name: str | None) -> Seams:
    """What a world is made of when that ablation is applied; as shipped without a name."""
    return AS_SHIPPED if name is None else BY_NAME[name].break_(AS_SHIPPED)
