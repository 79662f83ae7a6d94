"""Finds groups of plain messages in the frames of one producer (docs/components/publish-groups.md).

All checks of `ConnectedProducer.publish` hold for the messages of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.broker.topic.pending_publish import Attachment, PendingGroup, PendingReplicas
from emulator.core.admission import MESSAGE_BYTES_MIN, EntrySizeLimits
from emulator.wire.codec_hot.message_runs import read_run
from emulator.wire.codec_hot.replica_groups import ANY_PLAIN_REST, PlainReplicas, ReplicaGroup, may_follow
from emulator.wire.codec_hot.send_groups import PlainSends
from emulator.wire.message_metadata import REMEMBERED_REST_BYTES_MAX, is_plain_rest

if TYPE_CHECKING:
    from emulator.core.topic.state import TopicState
    from emulator.wire.codec_hot.publishing import SendCommand
    from emulator.wire.commands import CreateProducer
    from emulator.wire.frames import Frame


class PublishLimits(Protocol):
    """The entry size limits of a topic, as `producer.PublishingOfTopic` describes them."""

    @property
    def limits(self) -> EntrySizeLimits: ...
    @property
    def client_limits(self) -> EntrySizeLimits: ...


class GroupTopic(Protocol):
    """The topic, as the groups of its producers see it."""

    state: TopicState

    @property
    def publishing(self) -> PublishLimits: ...


class GroupProducer(Attachment, Protocol):
    """A connected producer, as its groups see it."""

    producer_id: int
    producer_name: str
    source_region: str | None
    request: CreateProducer

    @property
    def topic(self) -> GroupTopic: ...


class PublishGroups(Protocol):
    """Finds the groups of one producer."""

    def take(
        self, sequence_id: int, frames: Sequence[Frame], index: int
    ) -> PendingGroup | PendingReplicas | None:
        """Return the group that begins with the frame of this index, a SEND with that sequence id; None: there is
        none."""
        ...


def publish_groups(producer: GroupProducer) -> PublishGroups | None:
    """Return what finds the groups of a producer. None: it has no groups, because it is the replicator of a real Pulsar
    cluster, which gets a receipt for each entry."""
    if producer.source_region is None:
        return _ClientGroups(producer)
    if producer.request.is_compact_stream:
        return ReplicaGroups(producer, producer.source_region)
    return None


class _ClientGroups:
    """Finds the groups of a client's producer."""

    def __init__(self, producer: GroupProducer) -> None:
        self._producer = producer
        self._plain_sends: PlainSends | None = None
        """Created at the first SEND: applications open producers that publish nothing for long."""

    def take(self, sequence_id: int, frames: Sequence[Frame], index: int) -> PendingGroup | None:
        producer, topic = self._producer, self._producer.topic
        limits = topic.publishing.client_limits
        above = topic.state.highest_admitted(producer.producer_name)
        if sequence_id <= above or limits.batch_bytes < MESSAGE_BYTES_MIN:
            return None
        entry_bytes_max = min(limits.entry_bytes, limits.payload_bytes)
        if self._plain_sends is None:
            self._plain_sends = PlainSends(producer.producer_id, producer.producer_name)
        group = self._plain_sends.take(frames, index, above=above, entry_bytes_max=entry_bytes_max)
        return None if group is None else PendingGroup(producer, producer.producer_name, group)


class ReplicaGroups:
    """Finds the groups of another region's replicator."""

    def __init__(self, producer: GroupProducer, source_region: str) -> None:
        self._producer = producer
        self._source_region = source_region
        self._plain_replicas = PlainReplicas(producer.producer_id, source_region)
        self._plain_rest = ANY_PLAIN_REST
        """The rest of the newest plain run's metadata, which is often that of the next one. A large one is not
        kept."""

    def take(self, _sequence_id: int, frames: Sequence[Frame], index: int) -> PendingReplicas | None:
        topic, region = self._producer.topic, self._source_region
        limits = topic.publishing.limits
        if limits.batch_bytes < MESSAGE_BYTES_MIN:
            return None
        newest = topic.state.highest_received(region)
        group = self._plain_replicas.take(
            frames, index, newest=newest, payload_bytes_max=limits.payload_bytes
        )
        return None if group is None else PendingReplicas(self._producer, region, group)

    def take_run(self, send: SendCommand, entry: bytes) -> PendingReplicas | list[tuple[SendCommand, bytes]]:
        """Return the group of messages that a run contains; its messages alone if one of them may be a duplicate, does
        not follow the one before it in the stream, or is not plain. ProtocolError for a run that cannot be read."""
        topic, region = self._producer.topic, self._source_region
        run = read_run(send, entry, region)
        limits = topic.publishing.limits
        if (
            limits.batch_bytes < MESSAGE_BYTES_MIN
            or run.payload_bytes_max > limits.payload_bytes
            or not may_follow(send, run.first, topic.state.highest_received(region))
            or not self._is_plain(run.rest)
        ):
            return run.messages()
        return PendingReplicas(self._producer, region, ReplicaGroup(run.last, run.entries))

    def _is_plain(self, rest: bytes) -> bool:
        if rest != self._plain_rest:
            if not is_plain_rest(rest):
                return False
            if len(rest) <= REMEMBERED_REST_BYTES_MAX:
                self._plain_rest = rest
        return True
