"""Where a region begins to count its ledgers.

Clusters count theirs independently of each other, so an id from one names nothing in another. If each region began at
1, ids of one topic would fit into every region: a client that acknowledges in one region what it was given in another
(apache/pulsar#25291) would acknowledge something else there, which with a real Pulsar it hardly ever does.
"""

from __future__ import annotations

from zlib import crc32

_STARTS = 9_973
_APART = 1_000


def last_before_first(region: str) -> int:
    """The number before that of a region's first ledger; always the same for the same name."""
    return (crc32(region.encode()) % _STARTS + 1) * _APART
