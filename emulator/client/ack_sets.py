"""What of a batch is not acknowledged, as clients and brokers tell each other: a bit for each of its messages that is
left."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.client.types import MessageId

WORD_BITS = 64
AckId = tuple[int, int, tuple[int, ...] | None]
"""(ledger, entry, what of its batch is not acknowledged, or None)."""


class OpenBatches:
    """Batches that were acknowledged in part."""

    def __init__(self) -> None:
        self._left: dict[tuple[int, int], int] = {}
        """Of each entry the messages that are not acknowledged, one bit each."""

    def clear(self) -> None:
        """They come again, and what was acknowledged of them is the broker's to know."""
        self._left.clear()

    def without(self, message_id: MessageId) -> AckId:
        """What to tell the broker once this message is done with: its entry, or the part of it that is left."""
        entry = (message_id.ledger, message_id.entry)
        if message_id.batch_size <= 1:
            return (*entry, None)
        bits = self._left.get(entry, _every_bit(message_id)) & ~(1 << message_id.batch_index)
        if not bits:
            self._left.pop(entry, None)
            return (*entry, None)
        self._left[entry] = bits
        return (*entry, words(bits))


def alone(message_id: MessageId) -> AckId:
    """What to tell the broker of one message by itself: a transaction may fail, so nothing is added up here."""
    if message_id.batch_size <= 1:
        return (message_id.ledger, message_id.entry, None)
    return (
        message_id.ledger,
        message_id.entry,
        words(_every_bit(message_id) & ~(1 << message_id.batch_index)),
    )


def up_to(message_id: MessageId) -> AckId:
    """What to tell the broker when this message, and all before it, are done with."""
    left = None
    if 0 <= message_id.batch_index < message_id.batch_size - 1:
        left = words(_every_bit(message_id) & ~((1 << (message_id.batch_index + 1)) - 1))
    return (message_id.ledger, message_id.entry, left)


def from_index_on(message_id: MessageId) -> tuple[int, ...]:
    """A batch without the messages before one of it, as an ack set; empty when there are none."""
    if message_id.batch_index <= 0:
        return ()
    return words(_every_bit(message_id) & ~((1 << message_id.batch_index) - 1))


def _every_bit(message_id: MessageId) -> int:
    return (1 << message_id.batch_size) - 1


def words(bits: int) -> tuple[int, ...]:
    """64-bit words, lowest first, signed as the wire wants them."""
    words = []
    while bits:
        word = bits & (2**WORD_BITS - 1)
        words.append(word - 2**WORD_BITS if word >> (WORD_BITS - 1) else word)
        bits >>= WORD_BITS
    return tuple(words)


def is_set(words: Sequence[int], index: int) -> bool:
    """Whether a message of a batch is left."""
    word = index // WORD_BITS
    return word < len(words) and bool(words[word] >> (index % WORD_BITS) & 1)
