"""What a region counts of exclusive producers, all topics together, since it was started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AccessFigures:
    promotions: int = 0
    """Producers that were given a topic after they had waited for it."""
    fences: int = 0
    """Producers that lost a topic, or their place in line, to one that fenced them off."""
    ownerless_seconds: float = 0.0
    """How long producers waited for topics that nobody had."""
