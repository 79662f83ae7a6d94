"""Check stored cursors at every event of a medium: an intermediate violation may not be visible at the end of a run.

INV-8: the mark-delete position never moves back. INV-5: no message is acknowledged before a consumer of the
subscription has received it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator.model.stored_keys import CursorKey, CursorPartKey, StoredKey, parse_key
from emulator.simulation.durable_media import Medium
from emulator.simulation.history import SimulatedHistory
from emulator.simulation.stored_messages import Disks, LogView, StoredMessage
from spark_jobs.evidence.cursors import DecodedCursor, cursors_in


@dataclass(slots=True)
class _Watched:
    """The state of the checks of one stored cursor."""

    trimmed_upto: int
    """Last entry that was trimmed before the cursor was first seen, or -1. The subscription begins after it."""
    mark_delete: int = -2
    read: int = 0
    """Number of messages of the log that were checked."""
    open: list[StoredMessage] = field(default_factory=list)
    """Checked messages that are not acknowledged yet."""


class _RegionCursors:
    """The stored cursors of one region. Reads each write of a key once, because most commits write no cursor."""

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self.writes_read = 0
        """Number of writes of `key_writers` that were read."""
        self._cursor_of: dict[str, CursorKey | None] = {}
        """The cursor to which each written key belongs; None: to none."""
        self._keys: dict[CursorKey, dict[str, StoredKey]] = {}
        """Keys of the head and the parts that a cursor has had, by their text."""

    def changed(self) -> list[CursorKey]:
        """Return the cursors of which a key was written or deleted since the last call."""
        writes = self._medium.key_writers
        written, self.writes_read = writes[self.writes_read :], len(writes)
        found: dict[CursorKey, None] = {}
        for _, text in written:
            if text not in self._cursor_of:
                self._add_key(text)
            cursor = self._cursor_of[text]
            if cursor is not None:
                found[cursor] = None
        return list(found)

    def _add_key(self, text: str) -> None:
        key = parse_key(text)
        if isinstance(key, CursorKey | CursorPartKey):
            cursor = CursorKey(key.topic, key.subscription)
            self._cursor_of[text] = cursor
            self._keys.setdefault(cursor, {})[text] = key
        else:
            self._cursor_of[text] = None

    def rows(self, cursor: CursorKey) -> list[tuple[StoredKey | None, bytes]]:
        """Return the keys and values of a cursor that are stored now."""
        values = self._medium.values
        return [(key, values[text].value) for text, key in self._keys[cursor].items() if text in values]


class CursorWatch:
    """Checks all cursors of all regions. Fills `mark_delete_regressions` and `acknowledged_unreceived`."""

    def __init__(self, disks: Disks, history: SimulatedHistory) -> None:
        self.mark_delete_regressions: list[str] = []
        self.acknowledged_unreceived: list[tuple[str, StoredMessage]] = []
        """(subscription, message) of each message that a cursor acknowledged before any consumer received it."""
        self._disks = disks
        self._history = history
        self._media: dict[str, Medium] = {}
        self._watched: dict[tuple[str, CursorKey], _Watched] = {}

    def attach(self, region: str, disk: Medium) -> None:
        report, self._media[region] = disk.on_event, disk
        cursors = _RegionCursors(disk)

        def on_event(what: str) -> None:
            report(what)
            if cursors.writes_read == len(disk.key_writers):
                return  # an append, as most commits
            for key in cursors.changed():
                self._check_changed(region, key, cursors_in(cursors.rows(key)).get(key))

        disk.on_event = on_event

    def _check_changed(self, region: str, key: CursorKey, cursor: DecodedCursor | None) -> None:
        if cursor is None:
            self._watched.pop((region, key), None)
        else:
            self._check_cursor(region, key, cursor)

    def _check_cursor(self, region: str, key: CursorKey, cursor: DecodedCursor) -> None:
        topic, subscription = key.topic, key.subscription
        watched = self._watched.get((region, key))
        if watched is None:
            watched = self._watched[region, key] = _Watched(trimmed_upto=self._trimmed_upto(region, topic))
        may_have_moved = self._history.windows.is_open(region, topic, subscription)
        if cursor.mark_delete < watched.mark_delete and not may_have_moved:
            self.mark_delete_regressions.append(
                f"mark-delete of {topic}/{subscription} in {region} fell from {watched.mark_delete} "
                f"to {cursor.mark_delete}"
            )
        watched.mark_delete = cursor.mark_delete
        self._disks.read_new_entries(region)
        view = self._disks.logs.get((region, topic)) or LogView(region, topic, -1)
        watched.open += (one for one in view.messages[watched.read :] if one.entry > watched.trimmed_upto)
        watched.read = len(view.messages)
        delivered = self._history.delivered
        is_done = delivered.to(region, topic, subscription)
        still_open = []
        for one in watched.open:
            if not cursor.is_done(one.entry, one.batch_index):
                still_open.append(one)
            elif not is_done(one.origin, one.text):
                if may_have_moved:
                    delivered.skip(region, topic, subscription, one.origin, one.text)
                else:
                    self.acknowledged_unreceived.append((subscription, one))
        watched.open = still_open

    def _trimmed_upto(self, region: str, topic: str) -> int:
        log = self._media[region].logs.get(topic)
        return log.trimmed[-1][0] if log is not None and log.trimmed else -1
