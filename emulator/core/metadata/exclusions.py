"""Paths that a cluster does not synchronize (`metadata_sync_excluded_paths`), and where clusters differ in that. A path
that one cluster excludes and another one shares never converges, although each cluster reports to be up to date."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from emulator.core.metadata.event import number
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


BY_OPERATOR: Final = "operator"
BY_TOPOLOGY: Final = "topology"


@dataclass(frozen=True, slots=True)
class Declared:
    """What one cluster says of another one."""

    times: int = 0
    """How often it was declared lost."""
    by: str = ""
    """The cluster that declares it lost now; empty: none."""

    @property
    def is_lost(self) -> bool:
        return bool(self.by)

    def lost(self, by: str) -> Declared:
        return self if self.is_lost else Declared(self.times + 1, by)

    def back(self) -> Declared:
        return Declared(self.times)

    def encode(self) -> bytes:
        return json.dumps({"times": self.times, "by": self.by}).encode()

    @classmethod
    def decode(cls, change: Change | None) -> Declared:
        """StorageDamaged."""
        return decoded(change, cls._read, cls())

    @classmethod
    def _read(cls, value: bytes) -> Declared:
        raw = json.loads(value)
        if raw["by"] not in ("", BY_OPERATOR, BY_TOPOLOGY):
            raise ValueError(f"by {raw['by']!r} is neither {BY_OPERATOR} nor {BY_TOPOLOGY}")
        return cls(number(raw, "times"), raw["by"])
