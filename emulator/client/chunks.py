"""Chunked messages: assembled, and acknowledged as a whole.

Each chunk is an entry of its own. The chunks of a message arrive in order, possibly with other entries between them,
and share the uuid that the producer gave them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from emulator.client.types import MessageId
from emulator.wire.message_metadata import EntryDetails

INCOMPLETE_MAX: Final = 10
"""Messages of which some pieces have come. The oldest one is given up for another: its pieces come again when the
consumer connects again."""


@dataclass(slots=True)
class _Incomplete:
    pieces: list[bytes] = field(default_factory=list)
    ids: list[MessageId] = field(default_factory=list)


class ChunkAssembler:
    """Of one consumer of one topic."""

    def __init__(self) -> None:
        self._incomplete: dict[str, _Incomplete] = {}
        self._earlier: dict[tuple[int, int], list[MessageId]] = {}
        """Place of a last piece -> the pieces before it, until the message is acknowledged."""

    def add(self, info: EntryDetails, piece: bytes, id_: MessageId) -> bytes | None:
        """The whole payload when this was the last piece. A piece that does not follow the one before it makes nothing
        of its message: it begins anew with its first one."""
        uuid, index = info.uuid or "", info.chunk_id or 0
        if index == 0:
            self._begin(uuid)
        found = self._incomplete.get(uuid)
        if found is None or index != len(found.pieces):
            self._incomplete.pop(uuid, None)
            return None
        found.pieces.append(piece)
        found.ids.append(id_)
        if len(found.pieces) < info.num_chunks:
            return None
        del self._incomplete[uuid]
        self._earlier[id_.ledger, id_.entry] = found.ids[:-1]
        return b"".join(found.pieces)

    def _begin(self, uuid: str) -> None:
        self._incomplete.pop(uuid, None)
        if len(self._incomplete) >= INCOMPLETE_MAX:
            self._incomplete.pop(next(iter(self._incomplete)))
        self._incomplete[uuid] = _Incomplete()

    def all_of(self, id_: MessageId) -> list[MessageId]:
        """Where a message is: one place, or several."""
        return [*self._earlier.get((id_.ledger, id_.entry), ()), id_]

    def acknowledged(self, id_: MessageId) -> None:
        self._earlier.pop((id_.ledger, id_.entry), None)

    def clear(self) -> None:
        """Everything that was not acknowledged comes again, from its first piece on. Messages that the application has
        are still to be acknowledged as a whole."""
        self._incomplete.clear()
