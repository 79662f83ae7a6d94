"""A publish between admitted and acknowledged, the attachment that it belongs to, and the appends of a region that are
not durable yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import NewType, Protocol

from emulator.broker.topic.new_entries import EntryGroup
from emulator.config.region import RegionConfig
from emulator.core.admission import EntrySizeLimits, Publisher
from emulator.core.topic.state import TopicState
from emulator.model.markers import Marker
from emulator.wire.codec_hot.publishing import SendCommand
from emulator.wire.codec_hot.replica_groups import ReplicaGroup
from emulator.wire.codec_hot.send_groups import SendGroup
from emulator.wire.entry import replication_bytes_max
from emulator.wire.frames import COMMAND_BYTES_MAX, FRAME_PADDING_BYTES
from emulator.wire.message_metadata import EntryInfo

CheckedEntry = NewType("CheckedEntry", EntryInfo)
"""Metadata of an entry that passed `core.admission.check`, or that the region itself writes. Only code after that
check, and `Topic.append_own`, cast to this type."""


def limits_of(config: RegionConfig) -> EntrySizeLimits:
    """Return the entry size limits of a region. Every entry, in its replicated form, must fit into a frame of other
    regions (A3), because any topic may become replicated. Regions that replicate to each other must have the same
    `max_message_bytes`."""
    return _limits_of(config.settings.max_message_bytes, config.region)


@lru_cache(maxsize=16)
def _limits_of(message_bytes_max: int, region: str) -> EntrySizeLimits:
    """Return the limits of all topics of a region, which share them."""
    frame_bytes = message_bytes_max + FRAME_PADDING_BYTES
    return EntrySizeLimits(
        payload_bytes=message_bytes_max,
        entry_bytes=frame_bytes - COMMAND_BYTES_MAX - replication_bytes_max(region),
        batch_bytes=message_bytes_max,
    )


class Attachment(Protocol):
    """Something that appends to a topic: a client's producer, a peer's replicator, or the topic itself (markers)."""

    publisher: Publisher

    def stored(self, publishes: Sequence[Pending]) -> None:
        """Handle publishes that became durable, and duplicates of durable ones, in the order of their sends."""
        ...


class PendingPublish:
    """One publish between admitted and acknowledged."""

    __slots__ = (
        "attachment",
        "data",
        "duplicate",
        "entry_id",
        "info",
        "marker",
        "messages",
        "send",
        "size_bytes",
    )

    def __init__(
        self,
        attachment: Attachment,
        send: SendCommand | None,
        data: bytes,
        info: CheckedEntry,
        marker: Marker | None,
        duplicate: bool,
    ) -> None:
        self.attachment = attachment
        self.send = send
        """The SEND command of a client or of another region; None for entries that the region itself writes."""
        self.data = data
        self.size_bytes = len(data)
        self.info = info
        self.messages = info.num_messages
        self.marker = marker
        self.duplicate = duplicate
        self.entry_id = -1
        """Id of the stored entry once it is durable; -1 for a duplicate."""


class _Group:
    """A group of plain messages of one attachment between admitted and acknowledged. None is a duplicate."""

    __slots__ = ("attachment", "entries", "first_entry_id", "size_bytes")
    duplicate = False

    def __init__(self, attachment: Attachment, entries: list[bytes]) -> None:
        self.attachment = attachment
        self.entries = entries
        self.size_bytes = sum(map(len, entries))
        self.first_entry_id = -1
        """Id of the first stored entry once all are durable; the others follow it."""

    @property
    def messages(self) -> int:
        return len(self.entries)

    @property
    def last_entry_id(self) -> int:
        return self.first_entry_id + len(self.entries) - 1


class PendingGroup(_Group):
    """A group of a client's producer."""

    __slots__ = ("producer_name", "sequence_ids")

    def __init__(self, attachment: Attachment, producer_name: str, group: SendGroup) -> None:
        super().__init__(attachment, group.entries)
        self.producer_name = producer_name
        self.sequence_ids = group.sequence_ids

    def admit(self, state: TopicState) -> None:
        state.admit_group(self.producer_name, self.sequence_ids[-1])

    def fold(self, state: TopicState) -> EntryGroup:
        """Fold the entries, which are durable from `first_entry_id` on, into the state, and return them."""
        state.fold_group(self.first_entry_id, self.last_entry_id, self.producer_name, self.sequence_ids[-1])
        return EntryGroup(self.first_entry_id, self.entries, self.size_bytes, None)


class PendingReplicas(_Group):
    """A group of another region's replicator."""

    __slots__ = ("last_position", "source_region")

    def __init__(self, attachment: Attachment, source_region: str, group: ReplicaGroup) -> None:
        super().__init__(attachment, group.entries)
        self.source_region = source_region
        self.last_position = group.last

    def admit(self, state: TopicState) -> None:
        state.admit_replicas(self.source_region, self.last_position)

    def fold(self, state: TopicState) -> EntryGroup:
        """As `PendingGroup.fold`."""
        region = self.source_region
        state.fold_replicas(self.first_entry_id, self.last_entry_id, region, self.last_position)
        return EntryGroup(self.first_entry_id, self.entries, self.size_bytes, region)


Pending = PendingPublish | PendingGroup | PendingReplicas


LET_PASS_SECONDS = 0.1
"""Maximum time that `IssuedAppends.let_pass` waits, so that work in the background continues on a slow disk."""


class IssuedAppends:
    """The newest append of all topics of a region. Work that may take longer, such as the replication of a backlog,
    lets it pass: it would otherwise compete with the publishes of clients for the event loop."""

    def __init__(self) -> None:
        self._newest: asyncio.Future[int] | None = None

    def issued(self, append: asyncio.Future[int]) -> None:
        self._newest = append

    async def let_pass(self) -> None:
        """Let the event loop process what has arrived, and wait until the append that was issued last is durable and
        acknowledged, or has failed; at most `LET_PASS_SECONDS`."""
        # The first iteration of the loop polls the sockets, the second one processes what they received, and the third
        # one issues the appends.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if self._newest is not None and not self._newest.done():
            await asyncio.wait([self._newest], timeout=LET_PASS_SECONDS)
