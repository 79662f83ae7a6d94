"""Limit the ack set of a client to the messages that the batch has.

A set bit stands for a message that is not acknowledged. Bits beyond the batch would be stored, be counted against the
limits of all consumers, and be sent to the next consumer in a frame that no client accepts.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, Protocol

from emulator.core.cursor.cursor import WORD_BITS
from emulator.errors import ProtocolError, ServerError

USUAL_WORDS: Final = 16
"""Enough for the default batch size of clients (1,000 messages): up to here the entry is not looked up."""
WORDS_MAX: Final = 256
"""Limit for an entry that is not in memory. A frame with a message of the largest size has room for as many words."""

AckSet = tuple[int, ...]


class SizedEntry(Protocol):
    @property
    def entry_id(self) -> int: ...
    @property
    def messages(self) -> int: ...


class Entries(Protocol):
    """The topic."""

    def recent(self, from_entry_id: int, entries_max: int) -> Sequence[SizedEntry] | None: ...


def within_batch(
    topic: Entries, entry_id: int, ack_set: AckSet | None, held: Container[int] = ()
) -> AckSet | None:
    """Return the set without bits beyond the batch. Sets of `held` entries are limited later, by what the consumer was
    sent. ProtocolError for a set whose batch is unknown and that is larger than any client needs."""
    if ack_set is None or len(ack_set) <= USUAL_WORDS or entry_id in held:
        return ack_set
    entries = topic.recent(entry_id, 1)
    if entries and entries[0].entry_id == entry_id:
        return ack_set[: -(-entries[0].messages // WORD_BITS)]
    if len(ack_set) > WORDS_MAX:
        raise ProtocolError(
            ServerError.NotAllowedError,
            f"entry {entry_id} is acknowledged in part, by {len(ack_set)} words; {WORDS_MAX} are allowed",
        )
    return ack_set
