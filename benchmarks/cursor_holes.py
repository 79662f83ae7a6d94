"""What one write of a cursor costs that has many holes: the loop does nothing else meanwhile.

python -m benchmarks.cursor_holes
"""

from __future__ import annotations

import random
import time
from statistics import median

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.stored_format import CursorParts

HOLES = 45_000
WRITES = 300
ACKNOWLEDGEMENTS_PER_WRITE = 20


def main() -> None:
    """Every second entry is acknowledged in random order; then some of the holes are closed before each write."""
    chance = random.Random(1)
    parts = CursorParts(Cursor(-1))
    ids = list(range(1, 2 * HOLES, 2))
    chance.shuffle(ids)
    began = time.perf_counter()
    for entry_id in ids:
        parts.cursor.ack(entry_id)
    print(f"acknowledge, random order: {(time.perf_counter() - began) / HOLES * 1e6:.2f} us")
    _print_write("write of everything", [_write(parts)])
    for what, span in (("near each other", 100), ("scattered", HOLES)):
        written = []
        for _ in range(WRITES):
            base = chance.randrange(HOLES - span + 1)
            for _ in range(ACKNOWLEDGEMENTS_PER_WRITE):
                parts.cursor.ack(2 * (base + chance.randrange(span)) + 2)
            written.append(_write(parts))
        _print_write(f"write after {ACKNOWLEDGEMENTS_PER_WRITE} acknowledgements, {what}", written)


def _write(parts: CursorParts) -> tuple[float, int]:
    """(seconds, bytes) of taking what changed."""
    began = time.perf_counter()
    puts = parts.take_changes().puts
    return time.perf_counter() - began, sum(len(value) for step in puts for value in step.values())


def _print_write(what: str, written: list[tuple[float, int]]) -> None:
    seconds, size = median(one[0] for one in written), median(one[1] for one in written)
    print(f"{what}: {seconds * 1e3:.3f} ms, {size:,.0f} bytes")


if __name__ == "__main__":
    main()
