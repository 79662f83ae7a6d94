"""A producer of one topic: sends and receipts are in order; a reconnect resends every entry without a receipt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emulator.client.config import ProducerConfig
from emulator.client.connection import MESSAGE_BYTES_MAX, rejected
from emulator.client.connection_pool import ConnectionPool
from emulator.client.encryption import PayloadSeal
from emulator.client.messages import partition_index
from emulator.client.producer import Producer
from emulator.client.producer_session import ProducerSession
from emulator.client.send_queue import OpenBatch, OutgoingMessage, PendingEntry, SendQueue
from emulator.client.types import ClientError, MessageId, ProducerState
from emulator.errors import ServerError
from emulator.wire.batches import batch_entry, chunk_entries, single_entry
from emulator.wire.codec_hot.publishing import Receipt, send_frame
from emulator.wire.commands.producers import ProducerSuccess


class TopicProducer(Producer):
    """A producer of a topic without partitions, or of one partition."""

    def __init__(self, client: ConnectionPool, topic: str, config: ProducerConfig) -> None:
        super().__init__(client, topic, config)
        self._session = ProducerSession(self, client, topic, config)
        self._encoder = _EntryEncoder(self._session, client, config)
        initial = config.initial_sequence_id
        self._last_sequence_id = -1 if initial is None else initial
        self._pending = SendQueue(config.pending_messages_max, client.settings.send_timeout_seconds)
        self._bytes_max = MESSAGE_BYTES_MAX
        self._batch = None if config.batching is None else OpenBatch(config.batching, self._issue_batch)
        self._partition = partition_index(topic)
        self._fatal: ClientError | None = None
        self.on_end: Callable[[ClientError], None] | None = None
        """Called when the producer can send no more messages, also when it is closed."""

    @property
    def name(self) -> str:
        return self._session.name

    @property
    def topic_epoch(self) -> int | None:
        return self._session.topic_epoch

    @property
    def last_sequence_id(self) -> int:
        return self._last_sequence_id

    @property
    def schema_version(self) -> bytes:
        return self._encoder.schema_version

    @property
    def is_connected(self) -> bool:
        return self._session.connection is not None

    # The session with a region.

    async def start(self) -> None:
        await self._session.open()

    def opened(self, response: ProducerSuccess) -> None:
        if self._last_sequence_id < 0 and self.config.initial_sequence_id is None:
            # No message was sent yet: continue after the last sequence id that the region knows.
            self._last_sequence_id = response.last_sequence_id
        if response.schema_version != self._encoder.schema_version:
            # The region may have changed: pending messages must carry the version of their schema there.
            self._encoder.schema_version = response.schema_version
            for pending in self._pending:
                pending.data = self._encoder.re_encode(pending)
        self.report(ProducerState.OPEN)
        connection = self._session.connection
        if connection is not None:
            self._bytes_max = connection.max_message_bytes
        if self._pending and connection is not None:
            connection.write(b"".join([self._frame(pending) for pending in self._pending]))

    def connection_lost(self) -> None:
        self._session.lost()

    closed_by_broker = connection_lost

    def ended(self, error: ClientError) -> None:
        """Fail all pending messages, which may have been stored, and those of later sends."""
        self._fatal = error
        self._flush_batch()
        self._pending.fail_all(ClientError(str(error), definite=False, code=error.code))
        if self.on_end is not None:
            self.on_end(error)

    # Sending.

    async def publish(self, message: OutgoingMessage) -> MessageId:
        if message.transaction is not None:
            await message.transaction.will_publish_to(self.topic)
        await self._pending.wait_for_room(lambda: self._fatal is not None or self.closed)
        self.publish_nowait(message)
        return await message.future

    def publish_nowait(self, message: OutgoingMessage) -> None:
        pending, batch = self._pending, self._batch
        if pending.messages >= pending.messages_max or self._fatal or self.closed or message.transaction:
            self._check_can_publish(message)
        requested = message.requested_sequence_id
        self._last_sequence_id = self._last_sequence_id + 1 if requested is None else requested
        message.sequence_id = self._last_sequence_id
        pending.messages += 1
        if batch is None:
            self._issue([message], is_batch=False)
        elif message.is_never_batched:
            batch.flush()
            self._issue([message], is_batch=False)
        else:
            batch.add(message)

    def _check_can_publish(self, message: OutgoingMessage) -> None:
        if self._fatal is not None:
            raise self._fatal
        self._refuse_when_closed()
        if self._pending.is_full:
            limit = self.config.pending_messages_max
            raise ClientError(f"{limit} messages are waiting for receipts", definite=True)
        transaction = message.transaction
        if transaction is not None and not transaction.publishes_to(self.topic):
            raise ClientError(f"{transaction}: {self.topic} was not added to it", definite=True)

    def _flush_batch(self) -> None:
        if self._batch is not None:
            self._batch.flush()

    def _issue_batch(self, messages: list[OutgoingMessage]) -> None:
        self._issue(messages, is_batch=True)

    def _issue(self, messages: list[OutgoingMessage], *, is_batch: bool) -> None:
        data = self._encoder.encode(messages, is_batch=is_batch)
        if len(data) > self._bytes_max and not is_batch:
            self._issue_large(messages[0], len(data))
        else:
            self._write(self._pending.add(messages, data, is_batch=is_batch))

    def _issue_large(self, message: OutgoingMessage, entry_bytes: int) -> None:
        """Send a message in chunks, or fail it: a broker closes the connection of a client that exceeds the maximum."""
        if not self.config.chunking or message.transaction is not None:
            sentence = f"a message of {entry_bytes} bytes, the region's maximum is {self._bytes_max}"
            code = ServerError.NotAllowedError
            self._pending.refuse(message, ClientError(sentence, definite=True, code=code))
            return
        chunks = self._encoder.encode_chunks(message, self._bytes_max)
        for number, data in enumerate(chunks):
            pending = self._pending.add([message], data, is_batch=False, chunk=number, chunks=len(chunks))
            pending.entry_bytes_max = self._bytes_max
            self._write(pending)

    def _write(self, pending: PendingEntry) -> None:
        if self._session.connection is not None:
            self._session.connection.write(self._frame(pending))

    def _frame(self, pending: PendingEntry) -> bytes:
        """Return the SEND frame of an entry, and count the send."""
        pending.times_sent += 1
        transaction = pending.messages[0].transaction
        most, least = (None, None) if transaction is None else transaction.id
        return send_frame(
            self._session.id,
            pending.first,
            len(pending.messages),
            pending.last if pending.is_batch else 0,
            data=pending.data,
            is_chunk=pending.chunks > 1,
            txn_least=least,
            txn_most=most,
        )

    async def flush(self) -> None:
        self._flush_batch()
        waiting = [message.future for pending in self._pending for message in pending.messages]
        if waiting:
            await asyncio.wait(waiting)

    # Responses.

    def receipt(self, receipt: Receipt) -> None:
        if not self._pending or receipt.sequence_id < self._pending.head.first:
            return  # Late: the entry is not pending any more.
        if receipt.sequence_id > self._pending.head.last:
            # Receipts arrive in order, so one was lost: reconnect, which resends the pending entries.
            if self._session.connection is not None:
                self._session.connection.abort()
            return
        pending = self._pending.pop()
        if not pending.is_last_chunk:
            return
        ledger, entry, partition = receipt.ledger_id, receipt.entry_id, self._partition
        size = len(pending.messages) if pending.is_batch else 0
        for index, message in enumerate(pending.messages):
            if not message.future.done():
                batch_index = index if size else -1
                message.future.set_result(MessageId(ledger, entry, batch_index, partition, size))

    def send_error(self, sequence_id: int, code: ServerError, message: str) -> None:
        final = (ServerError.NotAllowedError, ServerError.ChecksumError)
        if code in final and self._pending and self._pending.head.first == sequence_id:
            pending = self._pending.pop()
            pending.fail(rejected(code, message, definite=pending.times_sent == 1))
        elif code is ServerError.TopicTerminatedError:
            self.ended(ClientError(message, definite=False, code=code))
        else:
            self._session.lost()

    async def close(self) -> None:
        if self.closed:
            return
        self._flush_batch()
        if self._session.connection is not None and self._pending:
            await self.flush()
        self.closed = True
        self.client.forget_handle(self)
        await self._session.close()
        self.ended(ClientError("the producer is closed", definite=False))


class _EntryEncoder:
    """Encodes the entries of one producer: with its name, schema version, compression and encryption."""

    def __init__(self, session: ProducerSession, client: ConnectionPool, config: ProducerConfig) -> None:
        self.schema_version = b""
        """Schema version assigned by the region; empty: no schema."""
        self._session = session
        self._wall_clock_ms = client.wall_clock_ms
        self._compression = config.compression
        self._seal: PayloadSeal | None = None
        if config.encryption is not None:
            now_seconds = asyncio.get_running_loop().time
            self._seal = PayloadSeal(config.encryption, client.secret_bytes, now_seconds)

    def encode(self, messages: list[OutgoingMessage], *, is_batch: bool) -> bytes:
        name, now_ms, version = self._session.name, self._wall_clock_ms(), self.schema_version
        compression, seal = self._compression, self._seal
        if is_batch:
            return batch_entry(name, now_ms, messages, version, compression=compression, seal=seal)
        message = messages[0]
        txn = None if message.transaction is None else message.transaction.id
        return single_entry(name, now_ms, message, version, txn=txn, compression=compression, seal=seal)

    def encode_chunks(self, message: OutgoingMessage, entry_bytes_max: int) -> list[bytes]:
        return chunk_entries(
            self._session.name,
            self._wall_clock_ms(),
            message,
            self.schema_version,
            entry_bytes_max=entry_bytes_max,
            compression=self._compression,
            seal=self._seal,
        )

    def re_encode(self, pending: PendingEntry) -> bytes:
        """Encode an entry again with the current schema version; chunks keep their size."""
        if pending.chunks > 1:
            return self.encode_chunks(pending.messages[0], pending.entry_bytes_max)[pending.chunk]
        return self.encode(pending.messages, is_batch=pending.is_batch)
