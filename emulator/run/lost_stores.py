"""Configuration stores of a cluster that were lost on purpose: the files are moved to `lost-<n>/` beside the store,
as evidence.

A region refuses to start with another store than the one it used (decision 0012). When that store is in `lost-<n>/`,
it will not be restored, and the region starts with a new one.

Where the store is in a volume, a container that mounts it runs `python3 -m emulator.run.lost_stores STORE`.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from emulator.errors import StorageError


def put_aside(store: Path) -> None:
    """Move the files of a store to the next free `lost-<n>/`; does nothing when there is no store."""
    files = sorted(store.parent.glob(f"{store.name}*"))
    if not files:
        return
    aside = store.parent / f"lost-{len(list(store.parent.glob('lost-*'))) + 1}"
    aside.mkdir()
    for file in files:
        file.rename(aside / file.name)


def lost_configurations(path: Path) -> set[str]:
    """Identities of the lost stores beside this one. StorageError when one cannot be read."""
    return {_identity(lost) for lost in path.parent.glob(f"lost-*/{path.name}")}


def _identity(path: Path) -> str:
    try:
        with closing(sqlite3.connect(path)) as connection:
            return str(dict(connection.execute("SELECT key, value FROM meta"))["identity"])
    except (sqlite3.Error, KeyError) as problem:
        raise StorageError(f"the lost store {path} cannot be read: {problem}", definite=True) from problem


if __name__ == "__main__":
    put_aside(Path(sys.argv[1]))
