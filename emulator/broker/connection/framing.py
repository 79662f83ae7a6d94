"""Splits one client's bytes into commands and handles each, until reading is paused.

The commands of one read share their cursor writes (one per subscription). Their appends are shared with other
connections: a topic issues one per iteration of the event loop (`Topic.flush`).
"""

from __future__ import annotations

from emulator.broker.authorization import TrustLevel
from emulator.broker.connection.dispatch import CommandingConnection, dispatch, refuse
from emulator.broker.connection.flow_control import UNAUTHENTICATED_FRAME_BYTES_MAX
from emulator.broker.subscription.consumer import SubscriptionView
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.net.slow_senders import SmallReads
from emulator.wire.codec_hot.consuming import AckCommand, encode_ack_response
from emulator.wire.command_types import CommandType
from emulator.wire.frames import FRAME_PADDING_BYTES, Frame, FrameBuffer, frame_bytes


class CommandReader:
    """The inbound half of one connection."""

    def __init__(self, connection: CommandingConnection, message_bytes_max: int) -> None:
        self._connection = connection
        self._frames = FrameBuffer(message_bytes_max + FRAME_PADDING_BYTES)
        self._small_reads = SmallReads()
        self._incomplete_bytes = 0
        """Number of received bytes of the incomplete frame after the last read."""
        self._unhandled: list[Frame] | None = None
        """Frames that were read and not handled since a command paused reading; None: none did."""
        self.confirmations: dict[SubscriptionView, list[AckCommand]] = {}
        """Acknowledgements of the present read whose client expects a response."""
        self.read_ms: int | None = None
        """Wall clock time in ms at which the present commands were read; None until a command needs it."""
        self.is_reading = False
        """Whether the commands of a read are being handled; the responses to them are sent when it ends."""
        self.is_broken = False
        """True after the client violated the protocol: its further commands are ignored."""

    def partial_frame(self) -> bytes:
        """Return the received bytes of the incomplete frame."""
        return self._frames.partial_frame

    def feed(self, data: bytes) -> None:
        connection = self._connection
        try:
            frames = self._frames.feed(data)
            if connection.trust is TrustLevel.UNAUTHENTICATED:
                first_bytes = frame_bytes(frames[0]) if frames else self._frames.unfinished_bytes
                _check_handshake_frame(first_bytes)
        except ProtocolError as problem:
            connection.close_with_error(problem)
            return
        if self._incomplete_bytes or self._frames.held_bytes:
            self._note_incomplete(len(data), completes=bool(frames))
        if self._unhandled is None:
            if frames:
                self._handle(frames)
        else:  # a transport may deliver bytes that it had already read when reading was paused
            self._unhandled += frames

    def _note_incomplete(self, read_bytes: int, *, completes: bool) -> None:
        """Count the incomplete frame that a read began or continued; `completes`: it completed others, or this one."""
        self._incomplete_bytes = self._frames.held_bytes
        self._connection.flow_control.count_incomplete(self._incomplete_bytes)
        if completes:
            self._small_reads.reset()
        elif self._small_reads.is_slow_after(read_bytes):
            self._connection.coalesce_reads()

    def resume(self) -> None:
        """Handle the frames that were not handled when reading paused."""
        if self._unhandled is not None:
            self._handle(self._unhandled)

    def _handle(self, frames: list[Frame]) -> None:
        """Handle commands until reading is paused; keep the rest in `_unhandled`."""
        connection = self._connection
        flow_control = connection.flow_control
        self.read_ms, self.is_reading = None, True
        try:
            at = 0
            while at < len(frames):
                at += dispatch(connection, frames, at)
                if flow_control.is_reading_paused or self.is_broken:
                    self._unhandled = frames[at:]
                    break
            else:
                self._unhandled = None
                if self._frames.failed is not None:
                    raise self._frames.failed
                if connection.trust is TrustLevel.UNAUTHENTICATED:
                    _check_handshake_frame(self._frames.unfinished_bytes)
        except ProtocolError as problem:
            connection.close_with_error(problem)
        finally:
            self.is_reading = False
            flow_control.admitted()
            if self.confirmations:
                self._write_cursors()
            if connection.responses:
                connection.send_responses()

    def _write_cursors(self) -> None:
        """Write each cursor of one read once, and then respond to its acknowledgements."""
        confirmations, self.confirmations = self.confirmations, {}
        for subscription, waiting in confirmations.items():
            self._connection.tasks.start(_confirm(self._connection, subscription, waiting))


def _check_handshake_frame(size_bytes: int) -> None:
    """Raise ProtocolError for a frame that is too large for a client that is not authenticated."""
    if size_bytes > UNAUTHENTICATED_FRAME_BYTES_MAX:
        sentence = (
            f"frame of {size_bytes} bytes before CONNECT, the limit is {UNAUTHENTICATED_FRAME_BYTES_MAX}"
        )
        raise ProtocolError(ServerError.UnknownError, sentence, closes_connection=True)


async def _confirm(
    connection: CommandingConnection, subscription: SubscriptionView, commands: list[AckCommand]
) -> None:
    """Respond to acknowledgements once the cursor that includes them is durable."""
    try:
        await subscription.persisted()
    except StorageError as failure:
        problem = ProtocolError(ServerError.PersistenceError, str(failure))
        for command in commands:
            refuse(connection, connection.table.rows[CommandType.ACK], command, problem)
        return
    confirmed = [
        encode_ack_response(command.consumer_id, command.request_id)
        for command in commands
        if command.request_id is not None
    ]
    connection.answer(b"".join(confirmed))
