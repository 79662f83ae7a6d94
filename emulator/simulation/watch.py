"""Looks at stored cursors after every commit: what must hold at every moment may be true again at the end.

INV-8: mark-delete never falls. INV-5: nothing is acknowledged that no consumer of the subscription was given before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator.core.cursor import Cursor
from emulator.simulation.evidence import CURSOR_PREFIX, Disks, LogView, Stored, counts_as_acknowledged
from emulator.simulation.medium import Medium
from emulator.simulation.record import Record
from emulator.storage.contract import Versioned


@dataclass(slots=True)
class _Watched:
    """One stored cursor."""

    value: Versioned | None = None
    mark_delete: int = -2
    read: int = 0
    """So many messages of the log were looked at."""
    open: list[Stored] = field(default_factory=list)
    """Those of them that are not acknowledged yet."""


class CursorWatch:
    """All cursors of all regions. Fills `fallen` and `unseen`."""

    def __init__(self, disks: Disks, record: Record) -> None:
        self.fallen: list[str] = []
        self.unseen: list[tuple[str, Stored]] = []
        """(subscription, message) that was counted as consumed before any consumer was given it."""
        self._disks = disks
        self._record = record
        self._cursors: dict[str, dict[str, _Watched]] = {}
        """By region, then by key."""
        self._keys_seen: dict[str, int] = {}
        """By region: how many keys there were when they were looked through last."""

    def attach(self, region: str, disk: Medium) -> None:
        tell = disk.on_event

        def on_event(what: str) -> None:
            tell(what)
            self._look(region, disk)

        disk.on_event = on_event

    def _look(self, region: str, disk: Medium) -> None:
        """Called after every commit, most of which touch no cursor: quick when nothing changed."""
        values, watched = disk.values, self._cursors.setdefault(region, {})
        if len(values) != self._keys_seen.get(region):
            self._keys_seen[region] = len(values)
            for key in values:
                if key.startswith(CURSOR_PREFIX):
                    watched.setdefault(key, _Watched())
        for key, one in watched.items():
            value = values.get(key)
            if value is not one.value and value is not None:
                one.value = value
                self._look_at(region, key, one, Cursor.from_bytes(value.value))

    def _look_at(self, region: str, key: str, watched: _Watched, cursor: Cursor) -> None:
        where = key.removeprefix(CURSOR_PREFIX)
        if cursor.mark_delete < watched.mark_delete:
            self.fallen.append(
                f"mark-delete of {where} in {region} fell from {watched.mark_delete} to {cursor.mark_delete}"
            )
        watched.mark_delete = cursor.mark_delete
        topic, _, subscription = where.rpartition("/")
        self._disks.read_on(region)
        view = self._disks.logs.get((region, topic)) or LogView(region, topic, -1)
        watched.open += view.messages[watched.read :]
        watched.read = len(view.messages)
        seen = self._record.received[topic, subscription]
        still_open = []
        for one in watched.open:
            if not counts_as_acknowledged(cursor, one):
                still_open.append(one)
            elif (one.origin, one.text) not in seen:
                self.unseen.append((subscription, one))
        watched.open = still_open
