"""The interface that `region_log` requires of a backend's reader: a module with these functions.

Each raises LogDamaged for unreadable data; what was yielded before remains valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from spark_jobs.sources.run_folder import RegionLog


class LogDamaged(Exception):
    """A log is missing or unreadable; the message is a sentence without its full stop."""


class RowRange(NamedTuple):
    """A part of a log, in the backend's own counting; `stop` does not belong to it."""

    start: int
    stop: int
    part: str = ""
    """Which part of the log is counted, where a log has several; in the backend's own words."""


class Group(NamedTuple):
    """Entries that were committed together."""

    topic: str
    ledger_id: int
    first_entry_id: int
    trimmed_below: int
    """Entries with a smaller id were trimmed, even if their bytes are still there."""
    data: bytes
    """In the group codec."""


class LogHead(NamedTuple):
    """Where a topic's log begins."""

    topic: str
    ledger_id: int
    first_entry_id: int


StoredValue = bytes
RegionValue = tuple[str, tuple[str, StoredValue]]
"""A region, and a key with its value that the region stores beside its logs."""


class LogReader(Protocol):
    """A backend's module."""

    def plan(self, log: RegionLog) -> list[RowRange]:
        """Divide the log into ranges, one per task."""
        ...

    def read_groups(self, log: RegionLog, rows: RowRange) -> Iterator[Group]:
        """Called in any task, on any machine."""
        ...

    def read_topic(self, log: RegionLog, topic: str) -> Iterator[Group]:
        """All entries of one topic."""
        ...

    def read_heads(self, log: RegionLog) -> list[LogHead]:
        """Where each topic's log begins."""
        ...

    def read_ends(self, log: RegionLog) -> dict[str, int]:
        """The highest id by topic, where it may be more than that of the newest entry."""
        ...

    def read_values(self, log: RegionLog) -> list[tuple[str, StoredValue]]:
        """Cursors and grants, by key, that a region stores besides logs."""
        ...
