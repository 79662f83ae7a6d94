"""How long something took, in words: one spelling everywhere, so that one figure never reads as two."""

from __future__ import annotations


def duration_text(seconds: float) -> str:
    """`47 ms`, `0.840 s`, `12.345 s`."""
    # As figures are rounded: what was rounded already reads the same.
    rounded = round(seconds, 3)
    return f"{rounded * 1000:.0f} ms" if rounded < 0.1 else f"{rounded:,.3f} s"
