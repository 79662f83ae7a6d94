"""All benchmarks: `python -m benchmarks [--write]`. `--write` puts the tables into docs/BENCHMARKS.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from benchmarks import against_peer, replication

DOCUMENT = Path("docs/BENCHMARKS.md")
TABLES = {"against_peer": against_peer.table, "replication": replication.table}


def main(write: bool) -> None:
    for name, table in TABLES.items():
        text = table()
        print(f"\n{name}\n\n{text}", flush=True)
        if write:
            _put(name, text)


def _put(name: str, text: str) -> None:
    """Replace what stands between a table's two marks."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{begin}.*?{end}", re.DOTALL)
    document = DOCUMENT.read_text()
    assert pattern.search(document), f"{DOCUMENT} has no place for {name}"
    DOCUMENT.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", document))


if __name__ == "__main__":
    main("--write" in sys.argv[1:])
