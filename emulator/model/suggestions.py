"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to `name`, or `a or b` when several are equally similar; None: none is. A name
    with the same letters in another order is preferred."""
    written = name.casefold()
    folded = {candidate.casefold(): candidate for candidate in known}
    matches = difflib.get_close_matches(written, folded, n=3, cutoff=0.6)
    swapped = [match for match in matches if sorted(match) == sorted(written)]
    if swapped or not matches:
        return folded[swapped[0]] if swapped else None
    near = [match for match in matches if _likeness(written, match) == _likeness(written, matches[0])]
    return " or ".join(sorted(folded[match] for match in near))


def _likeness(written: str, known: str) -> float:
    return difflib.SequenceMatcher(None, known, written).ratio()
