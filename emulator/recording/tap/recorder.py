"""The lines that one connection writes to the tap's history."""

from __future__ import annotations

import re
from typing import Any

from emulator.model.values import NON_PERSISTENT
from emulator.run.history import HistoryWriter
from emulator.run.history_events import Outcome
from emulator.wire.observing import read_chunk

KEEPS_NOTHING = f"{NON_PERSISTENT}://"
"""Prefix of topics without a history: no message of theirs is guaranteed."""

_UNFIT = re.compile(r"[^-.\w]+")


def earlier_chunks(chunks: dict[str, bytes], entry: bytes) -> bytes | None:
    """Return the chunks before the last one of a message, or nothing for a message without chunks. None: the entry is
    not the last chunk, and is kept in `chunks`."""
    chunk = read_chunk(entry)
    if chunk is None:
        return b""
    name, data, is_last = chunk
    if is_last:
        return chunks.pop(name, b"")
    chunks[name] = chunks.get(name, b"") + data
    return None


class Recorder:
    """The client of one connection, in one region."""

    def __init__(self, history: HistoryWriter, region: str, number: int) -> None:
        self._history = history
        self._region = region
        self._number = number
        self._actor = f"client-{number}"

    def called(self, client_version: str) -> None:
        """The client has said what it is: `Pulsar-Java-v4.0.1-3`, the third connection."""
        name = _UNFIT.sub("-", client_version).strip("-.") or "client"
        self._actor = f"{name}-{self._number}"

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None:
        self._history.write(op, outcome, actor=self._actor, region=self._region, **fields)

    def omit(self, why: str) -> None:
        """What this connection carries from now on is not known."""
        self._history.write("omission", "fact", actor=self._actor, detail=f"{self._actor}: {why}")
