"""What a person probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be; swapped letters are the likeliest slip."""
    written = name.casefold()
    folded = {candidate.casefold(): candidate for candidate in known}
    matches = difflib.get_close_matches(written, folded, n=3, cutoff=0.6)
    swapped = [match for match in matches if sorted(match) == sorted(written)]
    return next((folded[match] for match in swapped + matches), None)
