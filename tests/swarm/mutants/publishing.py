"""Mutants of topics: they acknowledge, deliver or load entries before the entries are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from emulator.broker.topic.new_entries import NewEntries
from emulator.broker.topic.pending_publish import CheckedEntry, Pending, PendingGroup, PendingPublish
from emulator.broker.topic.stored_entry import StoredEntry
from emulator.broker.topic.topic import Topic
from emulator.core.admission import ClientProducer, Publisher
from emulator.core.topic.deduplication import ProducerDeduplication, PublishVerdict
from emulator.errors import StorageFenced
from emulator.wire.codec_hot.publishing import SendCommand
from emulator.wire.message_metadata import scan_entry
from tests.swarm.mutant import Mutants, topic

MUTANTS = Mutants()


class _Mute:
    """A publisher that drops its response, because the mutant has already sent one."""

    publisher: Publisher = ClientProducer("mute", "nowhere")

    def stored(self, publishes: object) -> None:
        pass


@MUTANTS.mutant("receipt-before-durable", "INV-1", patch=topic)
class _ReceiptBeforeDurable(Topic):
    """A receipt is sent when a publish is issued, not when it is durable."""

    def flush(self) -> None:
        reported: dict[Any, list[Pending]] = {}
        for publish in self.publishing.batch:
            if not isinstance(publish, PendingPublish) or publish.send is not None:
                reported.setdefault(publish.attachment, []).append(publish)
                publish.attachment = _Mute()
        super().flush()
        for publisher, publishes in reported.items():
            # The connection registers pending publishes only after it has processed the current chunk of bytes.
            asyncio.get_running_loop().call_soon(publisher.stored, publishes)


@MUTANTS.mutant("former-session-ignored", "INV-1", patch=topic)
class _OverlooksFormerLives(Topic):
    """A producer that reconnects does not learn about pending writes of its former session."""

    async def issued_so_far(self) -> None:
        pass

    async def settled(self) -> None:
        await Topic.issued_so_far(self)
        for subscription in self.subscriptions.values():
            await subscription.settled()
        for replicator in self.replicators.values():
            await replicator.settled()


class _AcknowledgesDuplicatesAtOnce(_OverlooksFormerLives):
    """A topic that acknowledges duplicates at once. It also removes a second safeguard against duplicates: a producer
    that reconnects waits for the pending publishes of its former connection."""

    def flush(self) -> None:
        batch, self.publishing.batch = self.publishing.batch, []
        self._acknowledge([publish for publish in batch if publish.duplicate])
        self.publishing.batch = [publish for publish in batch if not publish.duplicate]
        super().flush()


class _SaysWhatWasAdmitted(ProducerDeduplication):
    """Deduplication that reports a last sequence id to reconnecting clients that includes publishes not yet durable."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._admitted: dict[str, int] = {}

    def admit(
        self, name: str, sequence_id: int, highest_sequence_id: int, *, is_chunk_not_last: bool = False
    ) -> PublishVerdict:
        verdict = super().admit(name, sequence_id, highest_sequence_id, is_chunk_not_last=is_chunk_not_last)
        if verdict is PublishVerdict.ACCEPT and not is_chunk_not_last:
            self._admitted[name] = max(highest_sequence_id, self._admitted.get(name, -1))
        return verdict

    def last_sequence_id(self, name: str) -> int:
        return max(super().last_sequence_id(name), self._admitted.get(name, -1))


def _fresh(batch: Sequence[Pending]) -> list[PendingPublish]:
    return [one for one in batch if isinstance(one, PendingPublish) and not one.duplicate]


def _alone(publish: Pending) -> list[Pending]:
    """Return the publishes of a group one by one."""
    if isinstance(publish, PendingPublish):
        return [publish]
    sequence_ids = publish.sequence_ids if isinstance(publish, PendingGroup) else [0] * len(publish.entries)
    return [
        PendingPublish(
            publish.attachment,
            SendCommand(0, sequence_id),
            data,
            CheckedEntry(scan_entry(data)),
            None,
            duplicate=False,
        )
        for sequence_id, data in zip(sequence_ids, publish.entries, strict=True)
    ]


@MUTANTS.mutant("visible-before-durable", "INV-13", "INV-3", "INV-5", "INV-2", "INV-6", patch=topic)
class _VisibleBeforeDurable(Topic):
    """Consumers and replicators see an entry before it is durable."""

    def flush(self) -> None:
        self.publishing.batch = list(chain.from_iterable(map(_alone, self.publishing.batch)))
        fresh = _fresh(self.publishing.batch)
        first = self.state.readable_end
        super().flush()
        if fresh and not self.closed:
            self.reading.cache.extend(NewEntries(self._numbered(first, fresh)))
            self.state.stored_end = first + len(fresh)
            self.pump()

    def _stored(self, batch: list[Pending], done: asyncio.Future[int]) -> None:
        self.publishing.issued -= 1
        failure = done.exception()
        if self.closed:
            return
        if failure is not None:
            self.failed(failure)
            return
        fresh = _fresh(batch)
        entries = self._numbered(done.result(), fresh)
        for publish, entry in zip(fresh, entries, strict=True):
            publish.entry_id = entry.entry_id
            self.state.fold(entry.entry_id, entry.info)
        self._acknowledge(batch)
        self._notify(NewEntries(entries))

    def _numbered(self, first: int, fresh: Sequence[PendingPublish]) -> list[StoredEntry]:
        return [
            StoredEntry(entry_id, one.data, one.info, one.marker) for entry_id, one in enumerate(fresh, first)
        ]


@MUTANTS.mutant("reload-during-appends", "INV-2", "INV-5", "INV-8", "INV-9", "INV-4", patch=topic)
class _ReloadDuringAppends(Topic):
    """A topic is loaded again while appends to it are pending."""

    async def settled(self) -> None:
        pass


@MUTANTS.mutant("fenced-but-acknowledged", "INV-1", "INV-2", patch=topic)
class _FencedButAcknowledged(Topic):
    """A region acknowledges appends that failed because it was fenced."""

    def _stored(self, batch: list[Pending], done: asyncio.Future[int]) -> None:
        fenced = done.exception()
        if self.closed or not isinstance(fenced, StorageFenced):
            super()._stored(batch, done)
            return
        would_be: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        would_be.set_result(self.state.readable_end)
        super()._stored(batch, would_be)
        self.failed(fenced)


MUTANTS.mutant(
    "duplicate-acknowledged-early",
    "INV-10",
    "INV-1",
    "INV-2",
    safeguard="A duplicate is acknowledged while the original is still being written.",
)(
    lambda overrides: replace(
        overrides.with_parts(deduplication=_SaysWhatWasAdmitted), topic=_AcknowledgesDuplicatesAtOnce
    )
)
