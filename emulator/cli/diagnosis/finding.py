"""What a check of `geoemu doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "problem"]
"""note: something is missing that this topology does not need, or that geoemu replaces. problem: a run would fail."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement about a subject, and what to do about it."""

    subject: str
    level: Level
    sentence: str
    fix: str = ""
    """What the user can do, as an imperative; empty for `ok` only."""

    def __post_init__(self) -> None:
        assert (self.level == "ok") == (not self.fix), "each finding that is not ok has a fix"
