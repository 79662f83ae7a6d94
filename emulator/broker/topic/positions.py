"""Converts the message ids of clients to entry ids of a topic's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.core.topic.state import UNKNOWN_MESSAGES
from emulator.model.values import BEFORE_EVERYTHING, Position

if TYPE_CHECKING:
    from emulator.broker.topic.view import Readable

_LATEST = 2**63 - 1


def start_of(topic: Readable, message_id: Position) -> int:
    """Return where a reader that starts at `message_id` begins: at that entry itself, because clients drop what they
    did not ask for. Ids of an older log of the topic mean its beginning, of a newer one its end."""
    ledger_id, entry_id = message_id
    if ledger_id == _LATEST or ledger_id > topic.ledger_id:
        return topic.readable_end
    if ledger_id < topic.ledger_id or entry_id < 0:
        return topic.first_entry_id
    return min(max(entry_id, topic.first_entry_id), topic.readable_end)


def begin_of(topic: Readable, message_id: Position | None, *, from_earliest: bool) -> int:
    """Return where a new subscription begins: at the id in the request, else at one of the log's ends."""
    if message_id is not None:
        return start_of(topic, message_id)
    return topic.first_entry_id if from_earliest else topic.readable_end


sought = start_of
"""SEEK to an id includes that message in Pulsar's broker too."""


async def published_from(topic: Readable, publish_time_ms: int) -> int:
    """Return the id of the first entry published at or after a time; the end when there is none.

    Binary search, as upstream does: publish times of several origins are only nearly sorted, so entries close to the
    time may be on either side.
    """
    low, high = topic.first_entry_id, topic.readable_end
    while low < high:
        middle = (low + high) // 2
        entries = await topic.read(middle, 1, 1)
        if not entries or entries[0].entry_id >= high or entries[0].info.publish_time_ms >= publish_time_ms:
            high = middle
        else:
            low = entries[0].entry_id + 1
    return low


async def last_message(topic: Readable) -> tuple[Position, int]:
    """Return the newest entry that a consumer may see and the index of its last message, -1 for no batch; (-1, -1)
    when there is none. Markers and messages of open or aborted transactions do not count: readers would hang.
    StorageError."""
    if topic.last_data is None or topic.last_data[0] < topic.first_entry_id:
        return BEFORE_EVERYTHING, -1
    entry_id, messages = topic.last_data
    if messages == UNKNOWN_MESSAGES:
        found = await topic.read(entry_id, 1, 1)
        if not found or found[0].entry_id != entry_id:
            return BEFORE_EVERYTHING, -1  # it was trimmed meanwhile
        info = found[0].info
        messages = info.num_messages if info.is_batch else -1
    return Position(topic.ledger_id, entry_id), messages - 1 if messages > 0 else -1
