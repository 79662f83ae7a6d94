"""Move lost configuration stores of a cluster aside: `lose_store` moves their files to `lost-<n>/` beside the store, as
evidence.

A region refuses to start with another store than the one it used (docs/components/configuration-store.md), unless that
store is in `lost-<n>/`: then it will not be restored, and the region starts with a new one.

For a store in a volume, a container that mounts the volume runs `python3 -m emulator.run.lost_stores STORE`.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from emulator.errors import StorageError


def move_lost_store(store: Path) -> None:
    """Move the files of a store to the next free `lost-<n>/`. No effect if there is no store."""
    files = sorted(store.parent.glob(f"{store.name}*"))
    if not files:
        return
    aside = store.parent / f"lost-{len(list(store.parent.glob('lost-*'))) + 1}"
    aside.mkdir()
    for file in files:
        file.rename(aside / file.name)


def lost_configurations(path: Path) -> set[str]:
    """Return the identities of the lost stores beside this one. Raises StorageError if a lost store cannot be read."""
    return {_identity(lost) for lost in path.parent.glob(f"lost-*/{path.name}")}


def _identity(path: Path) -> str:
    try:
        with closing(sqlite3.connect(path)) as connection:
            return str(dict(connection.execute("SELECT key, value FROM meta"))["identity"])
    except (sqlite3.Error, KeyError) as problem:
        raise StorageError(f"the lost store {path} cannot be read: {problem}", definite=True) from problem


if __name__ == "__main__":
    move_lost_store(Path(sys.argv[1]))
