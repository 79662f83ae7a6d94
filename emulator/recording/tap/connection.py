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
        self._is_read = True

    def to_region(self, chunk: bytes) -> bytes:
        """Record bytes from the client, and return the bytes to forward to the region."""
        return self._pass(chunk, self._from_client, self._asked)

    def to_client(self, chunk: bytes) -> bytes:
        """Record bytes from the region, and return the bytes to forward: lookups return the URL of the tap."""
        return self._pass(chunk, self._from_region, self._told)

    def ended(self) -> None:
        """Record unknown outcomes of pending publishes and transaction requests, because the connection ended."""
        if self._is_read:
            self._producers.lost()
            self._transactions.lost()

    def _pass(self, chunk: bytes, buffer: FrameBuffer, note: Callable[[Frame], None]) -> bytes:
        try:
            frames = buffer.feed(chunk)
        except ProtocolError as problem:
            self._give_up(problem)
            raise ConnectionError("no frames") from problem
        return b"".join([self._noted(frame, note) for frame in frames])

    def _noted(self, frame: Frame, note: Callable[[Frame], None]) -> bytes:
        if self._is_read:
            try:
                note(frame)
            except (ProtocolError, ValueError) as problem:
                self._give_up(problem)
        if frame[0] == CommandType.LOOKUP_RESPONSE:
            # The client must reconnect through the tap after the lookup.
            return lookup_answered_with(frame[1], self._service_url)
        return frame_of(frame[1], frame[2])

    def _give_up(self, problem: Exception) -> None:
        """Stop recording the connection, and record an omission. Frames are still forwarded."""
        if self._is_read:
            self._is_read = False
            self._recorder.omit(f"the tap cannot parse the traffic: {problem}")

    def _asked(self, frame: Frame) -> None:
        type_, command, entry = frame
        match type_:
            case CommandType.SEND:
                self._producers.sending(command, entry)
            case CommandType.ACK:
                self._consumers.acknowledging(command)
            case CommandType.PRODUCER:
                self._producers.opening(CreateProducer.read(command))
            case CommandType.SUBSCRIBE:
                self._consumers.subscribing(Subscribe.read(command))
            case CommandType.UNSUBSCRIBE:
                self._consumers.unsubscribing(Unsubscribe.read(command))
            case CommandType.SEEK:
                self._consumers.seeking(Seek.read(command))
            case CommandType.REDELIVER_UNACKNOWLEDGED_MESSAGES:
                self._consumers.redelivering(Redeliver.read(command))
            case CommandType.CLOSE_PRODUCER:
                pass  # receipts may still arrive
            case CommandType.CLOSE_CONSUMER:
                self._consumers.closed(CloseConsumer.read(command).consumer_id)
            case CommandType.TC_CLIENT_CONNECT_REQUEST:
                self._transactions.connecting(ConnectCoordinator.read(command))
            case CommandType.NEW_TXN:
                self._transactions.beginning(NewTransaction.read(command))
            case CommandType.END_TXN:
                self._transactions.ending(EndTransaction.read(command))
            case CommandType.CONNECT:
                self._recorder.called(Connect.read(command).client_version)

    def _told(self, frame: Frame) -> None:
        type_, command, entry = frame
        match type_:
            case CommandType.SEND_RECEIPT:
                self._producers.confirmed(command)
            case CommandType.MESSAGE:
                self._consumers.given(command, entry)
            case CommandType.SEND_ERROR:
                self._producers.not_confirmed(SendError.read(command))
            case CommandType.PRODUCER_SUCCESS:
                self._producers.opened(ProducerSuccess.read(command))
            case CommandType.SUCCESS:
                self._consumers.answered(Success.read(command).request_id, None)
            case CommandType.ERROR:
                error = Error.read(command)
                self._producers.refused(error)
                self._consumers.answered(error.request_id, error_text(error))
            case CommandType.TC_CLIENT_CONNECT_RESPONSE:
                self._transactions.connected(CoordinatorConnected.read(command))
            case CommandType.NEW_TXN_RESPONSE:
                self._transactions.begun(NewTransactionResponse.read(command))
            case CommandType.END_TXN_RESPONSE:
                self._transactions.ended(EndTransactionResponse.read(command))
            case CommandType.CLOSE_PRODUCER:
                self._producers.closed(CloseProducer.read(command).producer_id)
