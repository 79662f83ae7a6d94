"""Configuration stores of a cluster that were lost on purpose: they lie beside its store, in `lost-<n>/`, as evidence.

A region refuses to start with another store than the one that it used (decision 0012). Of one that lies there it knows
that nobody will put it back, and begins with a new one.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from emulator.errors import StorageError


def lost_configurations(path: Path) -> set[str]:
    """Identities of those that lie beside this store. StorageError for one that cannot be read."""
    return {_identity(lost) for lost in path.parent.glob(f"lost-*/{path.name}")}


def _identity(path: Path) -> str:
    try:
        with closing(sqlite3.connect(path)) as connection:
            return str(dict(connection.execute("SELECT key, value FROM meta"))["identity"])
    except (sqlite3.Error, KeyError) as problem:
        raise StorageError(f"the lost store {path} cannot be read: {problem}", definite=True) from problem
