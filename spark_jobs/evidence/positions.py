"""The one rule of which positions a log can have, and positions as numbers of 64 bits.

Every reader of the evidence applies the rule: of entries, markers, cursors, grants, plans and message ids. So a
position in a frame always has a number, and an impossible one is a damage of the evidence.
"""

from __future__ import annotations

LEDGER = 1 << 36
"""Factor that makes a position one number of 64 bits: `ledger * LEDGER + entry`."""
LEDGERS = 1 << 27
"""Number of ids of ledgers: the first one of a region is below 10,000,000 (`ledger_id_base`)."""


def place_number(ledger: int, entry: int) -> int:
    """Return a number that orders the entries of one log."""
    return ledger * LEDGER + entry


def is_place(ledger: int, entry: int) -> bool:
    """Return whether a log can have this position; entry -1 is the position before the first entry of a ledger."""
    return 0 <= ledger < LEDGERS and is_entry(entry)


def is_entry(entry: int) -> bool:
    """Return whether an entry of any ledger can have this id, or -1."""
    return -1 <= entry < LEDGER
