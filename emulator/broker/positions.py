"""Message ids as clients write them, turned into places in a topic's log (facts 4.11, 4.12, 4.13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from emulator.broker.topic import Topic

_SIGN = 2**63
_LATEST = 2**63 - 1


def _signed(number: int) -> int:
    return number - 2**64 if number >= _SIGN else number


def start_of(topic: Topic, message_id: pb.MessageIdData) -> int:
    """Where a reader that starts at `message_id` begins: at the named entry itself, because clients drop what they
    did not ask for. Ids of an older incarnation of the topic mean its beginning, of a newer one its end."""
    ledger_id, entry_id = _signed(message_id.ledgerId), _signed(message_id.entryId)
    if ledger_id == _LATEST or ledger_id > topic.log.ledger_id:
        return topic.end_entry_id
    if ledger_id < topic.log.ledger_id or entry_id < 0:
        return topic.log.first_entry_id
    return min(max(entry_id, topic.log.first_entry_id), topic.end_entry_id)


sought = start_of
"""SEEK to an id is inclusive at the broker too."""


async def published_from(topic: Topic, publish_time_ms: int) -> int:
    """Id of the first entry published at or after a time; the end when there is none.

    Binary search, as upstream does: publish times of several origins are only nearly sorted, so entries close to the
    edge may fall on either side.
    """
    low, high = topic.log.first_entry_id, topic.end_entry_id
    while low < high:
        middle = (low + high) // 2
        entries = await topic.read(middle, 1, 1)
        if not entries or entries[0].entry_id >= high or entries[0].info.publish_time_ms >= publish_time_ms:
            high = middle
        else:
            low = entries[0].entry_id + 1
    return low


def write_last_message_id(topic: Topic, target: pb.MessageIdData) -> None:
    """The newest entry a consumer may see; -1:-1 when there is none. Never a marker: readers would hang."""
    if topic.last_data is None or topic.last_data[0] < topic.log.first_entry_id:
        target.ledgerId = target.entryId = 2**64 - 1
        target.batch_index = -1
        return
    entry_id, messages = topic.last_data
    target.ledgerId = topic.log.ledger_id
    target.entryId = entry_id
    target.partition = topic.name.partition_index
    target.batch_index = messages - 1 if messages > 0 else -1
