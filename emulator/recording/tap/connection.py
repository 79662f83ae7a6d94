"""One connection through the tap: each command is recorded before it is forwarded."""

from __future__ import annotations

from collections.abc import Callable

from emulator.errors import ProtocolError
from emulator.recording.tap.publishing import TappedProducers
from emulator.recording.tap.receiving import TappedConsumers
from emulator.recording.tap.recorder import Recorder
from emulator.recording.tap.transactions import TappedTransactions
from emulator.wire.command_types import CommandType
from emulator.wire.commands import (
    CloseConsumer,
    CloseProducer,
    Connect,
    ConnectCoordinator,
    CoordinatorConnected,
    CreateProducer,
    EndTransaction,
    EndTransactionResponse,
    Error,
    NewTransaction,
    NewTransactionResponse,
    ProducerSuccess,
    Redeliver,
    Seek,
    SendError,
    Subscribe,
    Success,
    Unsubscribe,
)
from emulator.wire.frames import Frame, FrameBuffer, frame_of
from emulator.wire.observing import error_text, lookup_answered_with

FRAME_BYTES_MAX = 128 * 1024 * 1024
"""Maximum frame size of the tap. It is larger than that of regions, so that the region rejects oversized frames."""


class TappedConnection:
    """Parses and records the bytes of one connection in both directions, without sockets."""

    def __init__(self, recorder: Recorder, service_url: str) -> None:
        """`service_url` is the URL at which clients reach the region through the tap."""
        self._recorder = recorder
        self._service_url = service_url
        self._producers = TappedProducers(recorder)
        self._consumers = TappedConsumers(recorder)
        self._transactions = TappedTransactions(recorder)
        self._from_client = FrameBuffer(FRAME_BYTES_MAX)
        self._from_region = FrameBuffer(FRAME_BYTES_MAX)
        self._is_recording = True

    def to_region(self, chunk: bytes) -> bytes:
        """Record bytes from the client, and return the bytes to forward to the region."""
        return self._process(chunk, self._from_client, self._record_from_client)

    def to_client(self, chunk: bytes) -> bytes:
        """Record bytes from the region, and return those to forward; lookups return the tap's URL."""
        return self._process(chunk, self._from_region, self._record_from_region)

    def on_connection_lost(self) -> None:
        """Record unknown outcomes of pending publishes and transaction requests, because the connection ended."""
        if self._is_recording:
            self._producers.on_connection_lost()
            self._transactions.on_connection_lost()

    def _process(self, chunk: bytes, buffer: FrameBuffer, record: Callable[[Frame], None]) -> bytes:
        try:
            frames = buffer.feed(chunk)
        except ProtocolError as problem:
            self._stop_recording(problem)
            raise ConnectionError("no frames") from problem
        return b"".join([self._record_frame(frame, record) for frame in frames])

    def _record_frame(self, frame: Frame, record: Callable[[Frame], None]) -> bytes:
        if self._is_recording:
            try:
                record(frame)
            except (ProtocolError, ValueError) as problem:
                self._stop_recording(problem)
        if frame[0] == CommandType.LOOKUP_RESPONSE:
            # The client must reconnect through the tap after the lookup.
            return lookup_answered_with(frame[1], self._service_url)
        return frame_of(frame[1], frame[2])

    def _stop_recording(self, problem: Exception) -> None:
        """Stop recording the connection, and record an omission. Frames are still forwarded."""
        if self._is_recording:
            self._is_recording = False
            self._recorder.record_omission(f"the tap cannot parse the traffic: {problem}")

    def _record_from_client(self, frame: Frame) -> None:
        type_, command, entry = frame
        match type_:
            case CommandType.SEND:
                self._producers.on_send(command, entry)
            case CommandType.ACK:
                self._consumers.on_ack(command)
            case CommandType.PRODUCER:
                self._producers.on_producer(CreateProducer.read(command))
            case CommandType.SUBSCRIBE:
                self._consumers.on_subscribe(Subscribe.read(command))
            case CommandType.UNSUBSCRIBE:
                self._consumers.on_unsubscribe(Unsubscribe.read(command))
            case CommandType.SEEK:
                self._consumers.on_seek(Seek.read(command))
            case CommandType.REDELIVER_UNACKNOWLEDGED_MESSAGES:
                self._consumers.on_redeliver(Redeliver.read(command))
            case CommandType.CLOSE_PRODUCER:
                pass  # receipts may still arrive
            case CommandType.CLOSE_CONSUMER:
                self._consumers.on_close(CloseConsumer.read(command).consumer_id)
            case CommandType.TC_CLIENT_CONNECT_REQUEST:
                self._transactions.on_connect_coordinator(ConnectCoordinator.read(command))
            case CommandType.NEW_TXN:
                self._transactions.on_new_transaction(NewTransaction.read(command))
            case CommandType.END_TXN:
                self._transactions.on_end_transaction(EndTransaction.read(command))
            case CommandType.CONNECT:
                self._recorder.set_client_version(Connect.read(command).client_version)

    def _record_from_region(self, frame: Frame) -> None:
        type_, command, entry = frame
        match type_:
            case CommandType.SEND_RECEIPT:
                self._producers.on_send_receipt(command)
            case CommandType.MESSAGE:
                self._consumers.on_message(command, entry)
            case CommandType.SEND_ERROR:
                self._producers.on_send_error(SendError.read(command))
            case CommandType.PRODUCER_SUCCESS:
                self._producers.on_producer_success(ProducerSuccess.read(command))
            case CommandType.SUCCESS:
                self._consumers.on_response(Success.read(command).request_id, None)
            case CommandType.ERROR:
                error = Error.read(command)
                self._producers.on_error(error)
                self._consumers.on_response(error.request_id, error_text(error))
            case CommandType.TC_CLIENT_CONNECT_RESPONSE:
                self._transactions.on_coordinator_connected(CoordinatorConnected.read(command))
            case CommandType.NEW_TXN_RESPONSE:
                self._transactions.on_new_transaction_response(NewTransactionResponse.read(command))
            case CommandType.END_TXN_RESPONSE:
                self._transactions.on_end_transaction_response(EndTransactionResponse.read(command))
            case CommandType.CLOSE_PRODUCER:
                self._producers.on_close(CloseProducer.read(command).producer_id)
