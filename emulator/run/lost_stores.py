"""Loses a cluster's configuration store on purpose: the files lie in `lost-<n>/` beside it from then on, as evidence,
and regions that start see that nobody will put them back (`storage/lost_configuration.py`).

Where the store is in a volume, a container that has it does this: `python3 -m emulator.run.lost_stores STORE`.
"""

from __future__ import annotations

import sys
from pathlib import Path


def put_aside(store: Path) -> None:
    files = sorted(store.parent.glob(f"{store.name}*"))
    if not files:
        return
    aside = store.parent / f"lost-{len(list(store.parent.glob('lost-*'))) + 1}"
    aside.mkdir()
    for file in files:
        file.rename(aside / file.name)


if __name__ == "__main__":
    put_aside(Path(sys.argv[1]))
