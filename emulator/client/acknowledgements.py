"""Acknowledgements of one consumer: of messages, batches and chunks, in transactions or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emulator.client.consumer_session import ConsumerSession
from emulator.client.messages import WORD_BITS, ChunkAssembler, Message, id_of
from emulator.client.transactions import Transaction
from emulator.client.types import ClientError, MessageId
from emulator.wire.codec_hot.consuming import AckId, encode_ack
from emulator.wire.frames import frame_of


class Acknowledgements:
    """Sends the acknowledgements of one consumer of one topic."""

    def __init__(self, session: ConsumerSession, chunks: ChunkAssembler) -> None:
        self._session = session
        self._chunks = chunks
        self._open_batches: dict[tuple[int, int], int] = {}
        """Entry of a partly acknowledged batch -> its unacknowledged messages, one bit each."""

    def clear(self) -> None:
        """Forget partly acknowledged batches after a reconnect: the broker knows their acknowledged messages."""
        self._open_batches.clear()

    def all_ids(self, messages: Iterable[Message | MessageId]) -> list[MessageId]:
        """Return the ids of messages; for a chunked message, the ids of all its chunks."""
        return [id_ for message in messages for id_ in self._chunks.chunk_ids(id_of(message))]

    async def send(self, messages: Sequence[Message | MessageId], *, confirmed: bool) -> None:
        ids = [self._with_acknowledged(id_) for id_ in self.all_ids(messages)]
        await self._send(ids, cumulative=False, confirmed=confirmed)
        for message in messages:
            self._chunks.acknowledged(id_of(message))

    async def send_cumulative(self, message_id: MessageId, *, confirmed: bool) -> None:
        await self._send([cumulative_ack(message_id)], cumulative=True, confirmed=confirmed)
        self._chunks.acknowledged_upto(message_id)

    async def _send(self, ids: Sequence[AckId], *, cumulative: bool, confirmed: bool) -> None:
        """Send an ACK. Without a connection an unconfirmed one is dropped, and its message is redelivered."""
        session = self._session
        if not confirmed:
            session.write(frame_of(encode_ack(session.id, ids, cumulative=cumulative)))
            return
        if not session.is_connected:
            raise ClientError("not connected: not acknowledged", definite=True)
        request_id = session.client.new_id()
        command = encode_ack(session.id, ids, cumulative=cumulative, request_id=request_id)
        await session.request_frame(request_id, frame_of(command))

    def _with_acknowledged(self, message_id: MessageId) -> AckId:
        """Return the acknowledgement of a message and of the earlier acknowledged messages of its batch."""
        entry = (message_id.ledger, message_id.entry)
        if message_id.batch_size <= 1:
            return (*entry, None)
        bits = self._open_batches.get(entry, _all_bits(message_id)) & ~(1 << message_id.batch_index)
        if not bits:
            self._open_batches.pop(entry, None)
            return (*entry, None)
        self._open_batches[entry] = bits
        return (*entry, as_words(bits))

    def discard(self, entry: MessageId) -> None:
        """Acknowledge a whole entry that cannot be read."""
        self._session.write(frame_of(encode_ack(self._session.id, [single_ack(entry)], cumulative=False)))

    async def send_in(
        self, transaction: Transaction, messages: Sequence[MessageId], *, cumulative: bool = False
    ) -> None:
        """Send an ACK in a transaction. If it is aborted, the broker redelivers all chunks of the messages."""
        request_id = self._session.client.new_id()
        most, least = transaction.id
        command = encode_ack(
            self._session.id,
            [cumulative_ack(message) if cumulative else single_ack(message) for message in messages],
            cumulative=cumulative,
            request_id=request_id,
            txn_least=least,
            txn_most=most,
            batch_sizes=[message.batch_size for message in messages],
        )
        await self._session.request_frame(request_id, frame_of(command))
        for message in messages:
            if cumulative:
                self._chunks.acknowledged_upto(message)
            else:
                self._chunks.acknowledged(message)


def single_ack(message_id: MessageId) -> AckId:
    """Return the acknowledgement of one message without others of its batch: a transaction may be aborted."""
    if message_id.batch_size <= 1:
        return (message_id.ledger, message_id.entry, None)
    return (
        message_id.ledger,
        message_id.entry,
        as_words(_all_bits(message_id) & ~(1 << message_id.batch_index)),
    )


def cumulative_ack(message_id: MessageId) -> AckId:
    """Return the cumulative acknowledgement of a message and all messages before it."""
    remaining = None
    if 0 <= message_id.batch_index < message_id.batch_size - 1:
        remaining = as_words(_all_bits(message_id) & ~((1 << (message_id.batch_index + 1)) - 1))
    return (message_id.ledger, message_id.entry, remaining)


def ack_set_from(message_id: MessageId) -> tuple[int, ...]:
    """Return the ack set of a batch without the messages before this one; empty for its first message."""
    if message_id.batch_index <= 0:
        return ()
    return as_words(_all_bits(message_id) & ~((1 << message_id.batch_index) - 1))


def _all_bits(message_id: MessageId) -> int:
    return (1 << message_id.batch_size) - 1


def as_words(bits: int) -> tuple[int, ...]:
    """Return a bit set as 64-bit words, lowest first, signed as in the protocol."""
    result = []
    while bits:
        word = bits & (2**WORD_BITS - 1)
        result.append(word - 2**WORD_BITS if word >> (WORD_BITS - 1) else word)
        bits >>= WORD_BITS
    return tuple(result)
