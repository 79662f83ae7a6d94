"""What clients say is left of a batch: no more than a batch has.

A bit stands for a message that is not acknowledged. What a client claims beyond the batch would be kept, be counted
against the limits of all consumers, and be sent to the next one, in a frame that no client takes.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, Protocol

from emulator.core.cursor.cursor import WORD_BITS
from emulator.errors import ProtocolError, ServerError

USUAL_WORDS: Final = 16
"""As clients batch unless they are told otherwise (1,000 messages): nobody asks for the entry."""
WORDS_MAX: Final = 256
"""Of an entry that is not at hand. In a frame with a message of the largest size there is room for as many."""

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
    """The set without what lies behind the batch; that of `held` entries is held against what their consumer was given.
    ProtocolError for one that cannot be held against anything, and is larger than any client needs."""
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
