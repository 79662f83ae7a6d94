"""Clusters that somebody declared lost, and what becomes of one that is back (docs/components/metadata-sync.md).

Tombstones do not wait for a lost cluster. So it may come back with documents that all others deleted and forgot, and no
event will ever tell it. Hence each cluster counts how often it declared each other one lost, and says so in its
standing. Whoever hears a larger number than it has seen to asks that cluster for all that it has, lets go of what the
other one knew and has no more, and makes its own changes that nobody had heard of once more (INV-82). Until then its
events are not obeyed by whoever declared it: of two that had forgotten a tombstone at different times one would take
an older change for the newest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from emulator.core.metadata.event import number
from emulator.core.metadata.stored import decoded
from emulator.model.values import Change

BY_OPERATOR: Final = "operator"
BY_TOPOLOGY: Final = "topology"


@dataclass(frozen=True, slots=True)
class Declared:
    """What one cluster says of another one."""

    times: int = 0
    """How often it was declared lost."""
    by: str = ""
    """Who says that it is lost now; empty: nobody."""

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
