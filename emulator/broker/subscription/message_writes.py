"""Builds what one dispatch decision writes to one consumer: the frames of its messages, in order, for one write.

Most messages are whole and were not dispatched before. Their frames are built as runs (`message_frames`); those of
redelivered messages and of partly acknowledged batches one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emulator.wire.codec_hot.consuming import message_frames, message_header

if TYPE_CHECKING:
    from emulator.broker.subscription.consumer import ConnectedConsumer
    from emulator.broker.topic.stored_entry import StoredEntry
    from emulator.broker.topic.view import TopicView
    from emulator.core.dispatch.types import ConsumerState, Delivery


class MessageWrite:
    """The messages of one write to one consumer."""

    __slots__ = ("_consumer", "_parts", "_topic", "run")

    def __init__(self, topic: TopicView, consumer: ConnectedConsumer) -> None:
        self._topic = topic
        self._consumer = consumer
        self._parts: list[bytes] = []
        """The frames before `run`, in parts."""
        self.run: list[StoredEntry] = []
        """The last entries, which are whole and were not dispatched before."""

    def add(self, entry: StoredEntry, redelivery_count: int, ack_set: tuple[int, ...] | None) -> None:
        """Add an entry that does not belong to a run."""
        self._end_run()
        topic, consumer = self._topic, self._consumer
        header = message_header(
            consumer.consumer_id,
            topic.ledger_id,
            entry.entry_id,
            topic.name.partition_index,
            redelivery_count,
            ack_set,
            consumer.epoch,
            len(entry.data),
        )
        self._parts += (header, entry.data)

    def _end_run(self) -> None:
        if self.run:
            topic, consumer = self._topic, self._consumer
            self._parts += message_frames(
                consumer.consumer_id, topic.ledger_id, topic.name.partition_index, consumer.epoch, self.run
            )
            self.run.clear()

    def frames(self) -> bytes:
        """Return all frames, in one buffer."""
        self._end_run()
        return b"".join(self._parts)


def message_writes(
    topic: TopicView,
    consumers: dict[ConsumerState, ConnectedConsumer],
    entries: Sequence[StoredEntry],
    deliveries: Sequence[Delivery],
) -> dict[ConsumerState, MessageWrite]:
    """Return the write to each consumer, in the order of their first deliveries."""
    writes: dict[ConsumerState, MessageWrite] = {}
    for state, index, redelivery_count, ack_set in deliveries:
        write = writes.get(state)
        if write is None:
            write = writes[state] = MessageWrite(topic, consumers[state])
        if redelivery_count or ack_set is not None:
            write.add(entries[index], redelivery_count, ack_set)
        else:
            write.run.append(entries[index])
    return writes
