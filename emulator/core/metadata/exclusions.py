"""Paths that a cluster keeps to itself (`metadata_sync_excluded_paths`), and where clusters differ in that: what one of
them excludes and another one shares is for ever different there, though everybody says to have heard everything."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from emulator.core.metadata.stored import decoded
from emulator.model.values import Change

EXCLUDED_MAX: Final = 1_000
EXCLUDED_CHARACTERS_MAX: Final = 4_096

Excluded = tuple[str, ...]
"""What such paths begin with, as a person writes it: `namespace/acme/`."""


def excluded_from_json(raw: Any) -> Excluded:
    """The gate. ValueError for what is not a list of paths."""
    if not isinstance(raw, list) or len(raw) > EXCLUDED_MAX:
        raise ValueError(f"excluded paths are a list of {EXCLUDED_MAX} at most")
    if any(not isinstance(one, str) or not 0 < len(one) <= EXCLUDED_CHARACTERS_MAX for one in raw):
        raise ValueError(f"an excluded path is a text of 1 to {EXCLUDED_CHARACTERS_MAX} characters")
    return tuple(raw)


def encode_excluded(excluded: Excluded) -> bytes:
    return json.dumps(excluded).encode()


def stored_excluded(change: Change | None) -> Excluded | None:
    """None: the cluster has not said. StorageDamaged."""
    return decoded(change, lambda value: excluded_from_json(json.loads(value)), None)


def not_covered(excluded: Iterable[str], by: Excluded) -> list[str]:
    """What is excluded, and not by the others, too."""
    return sorted({one for one in excluded if not one.startswith(by)})
