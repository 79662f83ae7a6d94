"""What a region counts of exclusive producers, all topics together, since it was started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AccessFigures:
    promotions: int = 0
    "Producers that were promoted from the wait queue."
    fences: int = 0
    "Producers that lost a topic, or their place in the wait queue, by fencing."
    ownerless_seconds: float = 0.0
    "Seconds that producers waited for topics without an owner."
