"""Write the events of one connection to the tap's history."""

from __future__ import annotations

import re
from typing import Any

from emulator.model.values import NON_PERSISTENT
from emulator.run.history import HistoryWriter
from emulator.run.history_events import Outcome
from emulator.wire.observing import read_chunk

NON_PERSISTENT_PREFIX = f"{NON_PERSISTENT}://"
"""Prefix of topics that are not recorded, because no delivery of their messages is guaranteed."""

_INVALID_IN_NAMES = re.compile(r"[^-.\w]+")


def collect_chunk(chunks: dict[str, bytes], entry: bytes) -> bytes | None:
    """Return the data of the earlier chunks if the entry is the last chunk of a message, and empty bytes if it is not
    chunked. Return None if further chunks follow; the chunk is added to `chunks` then."""
    chunk = read_chunk(entry)
    if chunk is None:
        return b""
    name, data, is_last = chunk
    if is_last:
        return chunks.pop(name, b"")
    chunks[name] = chunks.get(name, b"") + data
    return None


class Recorder:
    """Records the events of one connection to one region, under an actor name for its client."""

    def __init__(self, history: HistoryWriter, region: str, number: int) -> None:
        self._history = history
        self._region = region
        self._number = number
        self._actor = f"client-{number}"

    def set_client_version(self, client_version: str) -> None:
        """Derive the actor name from the client version and the connection's number, as in `Pulsar-Java-v4.0.1-3`."""
        name = _INVALID_IN_NAMES.sub("-", client_version).strip("-.") or "client"
        self._actor = f"{name}-{self._number}"

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None:
        self._history.write(op, outcome, actor=self._actor, region=self._region, **fields)

    def record_omission(self, why: str) -> None:
        """Record an omission: later commands of this connection are not recorded."""
        self._history.write("omission", "fact", actor=self._actor, detail=f"{self._actor}: {why}")
