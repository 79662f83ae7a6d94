"""The position of an entry of one region's log in the log of another region."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Translation:
    """What is known of the place of one entry of `source` in the log of `target`. Positions are `ledger:entry`."""

    topic: str
    position: str
    """Position in `source`."""
    source: str
    target: str
    exact: str | None = None
    """Position of the same entry in `target`; None: it is not stored there, or unknown."""
    after: str | None = None
    """The place of the entry in `target` is after this position; None: unknown."""
    upto: str | None = None
    """The place of the entry in `target` is at or before this position; None: unknown, or after all stored entries."""
    origin: str | None = None
    """Region and position where the entry was published, `region:ledger:entry`; None: unknown."""
    basis: str = ""
    """What the bounds rest on, one sentence."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Translation:
        """Create a translation from the result of `to_json`. Raises KeyError or TypeError for anything else."""
        return cls(**{one.name: raw[one.name] for one in fields(cls)})
