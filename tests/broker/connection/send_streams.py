"""Parts of the streams of SENDs of clients and other regions: metadata that is not plain, damaged entries, frames
that close the connection; and a region that receives streams."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import Any, TypeVar

from hypothesis import strategies as st

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.entry import plain_entry
from emulator.wire.entry_layout import assemble
from emulator.wire.frames import frame_of
from emulator.wire.protobuf import length_delimited, tag
from tests.broker.connection.without_socket import PAYLOAD_BYTES_MAX
from tests.broker.regions import regions

Outcome = TypeVar("Outcome")

NOT_PLAIN: list[dict[str, Any]] = [
    {"num_messages_in_batch": 3, "highest_sequence_id": 2},
    {"num_messages_in_batch": 1},
    {"num_messages_in_batch": 0},
    {"highest_sequence_id": 2**63 + 7},
    {"num_chunks_from_msg": 3, "chunk_id": 0, "uuid": "u"},
    {"num_chunks_from_msg": 3, "chunk_id": 2, "uuid": "u"},
    {"marker_type": 10},
    {"deliver_at_time": 5},
    {"txnid_least_bits": 1, "txnid_most_bits": 0},
    {"encryption_keys": [pb.EncryptionKeys(key="k", value=b"v")]},
]
"""Metadata of messages that are not plain, whatever sent them."""

DAMAGES = (
    "checksum",
    "no checksum",
    "broker metadata",
    "nothing",
    "short",
    "no metadata",
    "too much metadata",
)
"""Changes of `damaged`."""
UNREADABLE_FIELDS = {
    "an unannounced batch": tag(11) + b"\x03",
    "unreadable properties": length_delimited(4, b"\xff"),
    "a key that is no text": length_delimited(6, b"\xff"),
}
"""Fields of metadata that make a message an unusual one, or an invalid one."""


def damaged(change: str, entry: bytes) -> bytes:
    """Return an entry that is usual except for its layout."""
    return {
        "checksum": entry[:-1] + b"?",
        "no checksum": entry[6:],
        "broker metadata": b"\x0e\x02\0\0\0\0" + entry,
        "nothing": b"",
        "short": entry[:8],
        "no metadata": assemble(b"", b"forged"),
        "too much metadata": entry[:6] + b"\xff\xff\xff\xff" + entry[10:],
    }[change]


_VIOLATIONS = (
    send_frame(77, 0, data=plain_entry("a", 0, 1, b"x")),
    frame_of(b"\x08\x06\x32\x03\x08\x01\x10", plain_entry("a", 0, 1, b"x")),
    b"\xff\xff\xff\xff\0\0\0\0",
)
"""Frames that close the connection."""


def maybe_violated(draw: st.DrawFn, frames: list[bytes]) -> list[bytes]:
    """Return a stream, one of ten with a frame that closes the connection."""
    if draw(st.integers(0, 9)) == 0:
        frames.insert(draw(st.integers(0, len(frames))), draw(st.sampled_from(_VIOLATIONS)))
    return frames


class ReceivingRegion:
    """Region us, whose event loop runs while a test plays a stream in topics of its own."""

    def __init__(self, *others: str, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self._world = regions("us", *others, max_message_bytes=PAYLOAD_BYTES_MAX, **settings)
        self._numbers = count()
        self.world = self._runner.run(self._world.__aenter__())

    def run(self, steps: Coroutine[Any, Any, Outcome]) -> Outcome:
        return self._runner.run(steps)

    def new_prefix(self) -> str:
        """Return a prefix for the names of the topics of one stream."""
        return f"{next(self._numbers):06}-"

    def close(self) -> None:
        self._runner.run(self._world.__aexit__(None, None, None))
        self._runner.close()
