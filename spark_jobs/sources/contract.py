"""The interface that `region_log` requires of a backend's reader: a module with these functions.

Each raises LogDamaged for unreadable data; groups yielded before the error remain valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from spark_jobs.evidence.positions import is_place

if TYPE_CHECKING:
    from spark_jobs.sources.run_folder import RegionLog


class LogDamaged(Exception):
    """A log is missing or unreadable; the message is a sentence without its full stop."""


class RowRange(NamedTuple):
    """A range of a log in the backend's numbering; `stop` is exclusive."""

    start: int
    stop: int
    part: str = ""
    """The part of the log to which the numbers belong, in the backend's own format; empty if a log has one part."""


class Group(NamedTuple):
    """Entries that were committed together."""

    topic: str
    ledger_id: int
    first_entry_id: int
    trimmed_below: int
    """Entries with a smaller id were trimmed, even if their bytes are still there."""
    data: bytes
    """The entries in the group codec."""

    def has_places(self, entries: int) -> bool:
        """Return whether a log can have the positions of this number of entries."""
        last = self.first_entry_id + entries - 1
        return self.first_entry_id >= 0 and is_place(self.ledger_id, last)


class LogHead(NamedTuple):
    """The first entry of a topic's log that was not trimmed."""

    topic: str
    ledger_id: int
    first_entry_id: int


StoredValue = bytes


class StoredReader(Protocol):
    """The functions of a module that reads what a region stores besides the entries of its topics."""

    def read_topic(self, log: RegionLog, topic: str) -> Iterator[Group]:
        """Yield all entries of one topic."""
        ...

    def read_heads(self, log: RegionLog) -> list[LogHead]:
        """Return the head of each topic's log."""
        ...

    def read_ends(self, log: RegionLog) -> dict[str, int]:
        """Return the highest entry id by topic, where it may be larger than that of the newest entry."""
        ...

    def read_values(self, log: RegionLog) -> list[tuple[str, StoredValue]]:
        """Return the cursors and grants that a region stores besides logs, with their keys."""
        ...


class LogReader(StoredReader, Protocol):
    """The functions of a backend's module."""

    def plan(self, log: RegionLog) -> list[RowRange]:
        """Divide the log into ranges, one per task."""
        ...

    def read_groups(self, log: RegionLog, rows: RowRange) -> Iterator[Group]:
        """Yield the entries of a range, in any task on any machine."""
        ...

    def next_entries(self, log: RegionLog) -> dict[str, int]:
        """Return the id after the newest durable entry of each topic; topics without an entry may be left out."""
        ...

    def read_between(self, log: RegionLog, ranges: Mapping[str, tuple[int, int]]) -> Iterator[Group]:
        """Yield the entries whose ids are in these ranges (topic -> first id, and the id after the last). The bounds
        are results of `next_entries`, or 0."""
        ...
