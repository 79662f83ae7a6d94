"""Compatibility strategies: which of two schemas has to read what was written with the other."""

from __future__ import annotations

from enum import Enum


class Strategy(Enum):
    """As Pulsar names them."""

    UNDEFINED = "UNDEFINED"
    """Not set: what a wider place says, and FULL where none says anything."""
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    """No new schema at all."""
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    """Any new schema, of any type."""
    BACKWARD = "BACKWARD"
    """The new schema reads what was written with the newest there is."""
    FORWARD = "FORWARD"
    """The newest there is reads what is written with the new one."""
    FULL = "FULL"
    """Both."""
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    """As BACKWARD, with all there are."""
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.name.endswith("_TRANSITIVE")

    @property
    def new_reads_old(self) -> bool:
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        return self.name.startswith(("FORWARD", "FULL"))

    @property
    def for_consumers(self) -> Strategy:
        """What a consumer's schema is held to (PIP-44): it only reads. Under BACKWARD_TRANSITIVE and FULL_TRANSITIVE
        all versions count."""
        if self in _CONSUMERS_READ_THE_NEWEST:
            return Strategy.BACKWARD
        return self


_CONSUMERS_READ_THE_NEWEST = frozenset(
    {Strategy.BACKWARD, Strategy.FORWARD, Strategy.FORWARD_TRANSITIVE, Strategy.FULL}
)
DEFAULT = Strategy.FULL
AUTO_UPDATE = {
    "AutoUpdateDisabled": Strategy.ALWAYS_INCOMPATIBLE,
    "Backward": Strategy.BACKWARD,
    "Forward": Strategy.FORWARD,
    "Full": Strategy.FULL,
    "AlwaysCompatible": Strategy.ALWAYS_COMPATIBLE,
    "BackwardTransitive": Strategy.BACKWARD_TRANSITIVE,
    "ForwardTransitive": Strategy.FORWARD_TRANSITIVE,
    "FullTransitive": Strategy.FULL_TRANSITIVE,
}
"""What older tools call them."""
