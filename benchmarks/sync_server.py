"""A server that does for each message only what no broker in Python can leave out: receive, sync, acknowledge.

    python -m benchmarks.sync_server PORT FOLDER

Its latency is the floor of a region's. It runs in a bare asyncio event loop, replaces and syncs the bytes of a commit
for each SEND, and keeps nothing of a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.brokers import RunningBroker, free_port, wait_for_port
from benchmarks.disk import SyncedFile, synced_file
from emulator.wire import commands
from emulator.wire.codec_hot.opening import (
    decode_close_producer,
    decode_create_producer,
    encode_producer_ready,
    encode_success,
)
from emulator.wire.codec_hot.publishing import decode_send, encode_receipt
from emulator.wire.command_types import CommandType
from emulator.wire.frames import FrameBuffer

MESSAGE_BYTES_MAX = 5_242_880


class _Connection(asyncio.Protocol):
    def __init__(self, file: SyncedFile) -> None:
        self._file = file
        self._frames = FrameBuffer(2 * MESSAGE_BYTES_MAX)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for type_, command, _ in self._frames.feed(data):
            if response := self._respond(type_, command):
                self._transport.write(response)

    def _respond(self, type_: int, command: bytes) -> bytes:
        if type_ == CommandType.SEND:
            send = decode_send(command)
            self._file.sync()
            return encode_receipt(send.producer_id, send.sequence_id, 0, 1, send.sequence_id)
        if type_ == CommandType.CONNECT:
            return commands.connected_response(commands.PROTOCOL_VERSION, MESSAGE_BYTES_MAX).encode()
        if type_ == CommandType.PRODUCER:
            return encode_producer_ready(decode_create_producer(command).request_id, "p", -1, b"", None)
        if type_ == CommandType.CLOSE_PRODUCER:
            return encode_success(decode_close_producer(command).request_id)
        return b""


async def _serve(port: int, folder: str) -> None:
    with synced_file(folder) as file:
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(file), "127.0.0.1", port)
        await server.serve_forever()


@contextlib.contextmanager
def sync_server() -> Iterator[RunningBroker]:
    """The server as a process, which the load generator can use like a broker."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder:
        command = [sys.executable, "-m", "benchmarks.sync_server", str(port), folder]
        output = os.path.join(folder, "output")
        with open(output, "wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            wait_for_port(port, process, output)
            yield RunningBroker("sync server", f"pulsar://127.0.0.1:{port}", process.pid)
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2]))
