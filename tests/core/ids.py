"""Build sets of ids in one line."""

from __future__ import annotations

from collections.abc import Iterable

from emulator.core.cursor.id_set import IdSet


def id_set(ids: Iterable[int]) -> IdSet:
    """Return a set of these ids."""
    made = IdSet()
    made.update(ids)
    return made
