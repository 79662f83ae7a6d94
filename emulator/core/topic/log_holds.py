"""Who still needs a log, and from where on (docs/components/life.md, L1).

One question, asked in one place: everything below the least answer is acknowledged by every subscription, is in every
other region, and is needed by nothing that was made of the log. Who does not need anything any more answers with the
log's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Need(NamedTuple):
    """One that needs the log from an id on."""

    entry_id: int
    asker: str
    """As people know it: subscription `billing`, replicator to `eu`."""


Asker = Callable[[], Iterable[Need]]


class Needs:
    """Of one log."""

    def __init__(self) -> None:
        self._askers: dict[str, Asker] = {}

    def add(self, kind: str, asker: Asker) -> None:
        """From now on it is asked, too. One a kind: cursors, replicators, compaction, transactions."""
        assert kind not in self._askers, f"{kind} is registered already"
        self._askers[kind] = asker

    def __iter__(self) -> Iterator[Need]:
        for asker in self._askers.values():
            yield from asker()

    def first(self, end_entry_id: int) -> Need:
        """The least that is needed; the log's end when nobody needs anything."""
        return min(self, default=Need(end_entry_id, "no component"))
