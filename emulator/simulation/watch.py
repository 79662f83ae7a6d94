"""Check stored cursors at every event of a medium: an intermediate violation may not be visible at the end of a run.

INV-8: the mark-delete position never moves back. INV-5: no message is acknowledged before a consumer of the
subscription has received it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from emulator.model.stored_keys import CursorKey, CursorPartKey, StoredKey, parse_key
from emulator.simulation.durable_media import Medium
from emulator.simulation.evidence import Disks, LogView, StoredMessage
from emulator.simulation.history import SimulatedHistory
from emulator.storage.contract import Versioned
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
    """The keys and values of one region that belong to cursors."""

    def __init__(self) -> None:
        self.keys: dict[str, CursorKey | CursorPartKey] = {}
        self.seen: dict[str, Versioned] = {}
        self.key_count = 0
        """Number of keys of the region at the last search for keys of cursors."""

    def changed(self, values: Mapping[str, Versioned]) -> set[CursorKey]:
        """Return the cursors that changed since the last call. Fast if none changed."""
        touched = [text for text in self.keys if values.get(text) is not self.seen.get(text)]
        if len(values) != self.key_count or any(text not in values for text in touched):
            self.key_count = len(values)
            for text in values:
                key = parse_key(text) if text not in self.keys else None
                if isinstance(key, CursorKey | CursorPartKey):
                    self.keys[text] = key
                    touched.append(text)
        found = {CursorKey(self.keys[text].topic, self.keys[text].subscription) for text in touched}
        for text in touched:
            if text in values:
                self.seen[text] = values[text]
            else:
                del self.keys[text]
                self.seen.pop(text, None)
        return found

    def of(self, cursor: CursorKey) -> list[tuple[StoredKey | None, bytes]]:
        """Return the stored rows (head and parts) of a cursor."""
        return [
            (key, self.seen[text].value)
            for text, key in self.keys.items()
            if (key.topic, key.subscription) == (cursor.topic, cursor.subscription)
        ]


class CursorWatch:
    """Checks all cursors of all regions. Fills `mark_delete_regressions` and `acknowledged_unreceived`."""

    def __init__(self, disks: Disks, history: SimulatedHistory) -> None:
        self.mark_delete_regressions: list[str] = []
        self.acknowledged_unreceived: list[tuple[str, StoredMessage]] = []
        """(subscription, message) of each message that a cursor acknowledged before any consumer received it."""
        self._disks = disks
        self._history = history
        self._region_cursors: dict[str, _RegionCursors] = {}
        """Keys and values of the cursors of each region."""
        self._media: dict[str, Medium] = {}
        self._watched: dict[tuple[str, CursorKey], _Watched] = {}

    def attach(self, region: str, disk: Medium) -> None:
        report, self._media[region] = disk.on_event, disk

        def on_event(what: str) -> None:
            report(what)
            self._check_changed(region, disk)

        disk.on_event = on_event

    def _check_changed(self, region: str, disk: Medium) -> None:
        """Check the cursors that changed. Called at every event of the medium; most events change no cursor."""
        cursors = self._region_cursors.setdefault(region, _RegionCursors())
        for key in cursors.changed(disk.values):
            cursor = cursors_in(cursors.of(key)).get(key)
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
