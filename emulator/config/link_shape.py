"""The emulated properties of one direction of a link, as they are declared, stored in a run and sent to regions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator.model.frame_faults import FrameFault

LINK_PERIOD_MS_MIN = 10
"""Least period of stalls and of flapping."""


@dataclass(frozen=True, slots=True)
class LinkShape:
    """One direction of a link."""

    latency_ms: float = 0.0
    """One-way latency of every byte."""
    jitter_ms: float = 0.0
    """Maximum of the additional random delay, uniformly distributed; bytes never overtake each other."""
    bandwidth_bytes_per_second: int | None = None
    """None: unlimited."""
    state: str = "up"
    """up: traffic passes. held: traffic and connection attempts wait. cut: traffic is dropped, attempts fail."""
    stall_every_ms: float = 0.0
    """Interval between the beginnings of two stalls; more than `stall_ms`. 0: no stalls."""
    stall_ms: float = 0.0
    """Length of each stall, during which bytes and connection attempts wait."""
    flap_period_ms: float = 0.0
    """Period of a flapping link. 0: the link does not flap."""
    flap_up: float = 1.0
    """Part of each period, above 0, at whose beginning the link is up; it is cut for the rest."""
    frame_faults: tuple[FrameFault, ...] = ()
    """Armed faults of single frames, oldest first."""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> LinkShape:
        """Parse the fields of a shape. Raises TypeError or ValueError for anything else."""
        faults = tuple(map(FrameFault.from_json, raw.get("frame_faults", ())))
        return cls(**{**raw, "frame_faults": faults})

    def changed(self, changes: Mapping[str, Any]) -> LinkShape:
        """Return the shape with other values of these fields. `arm`, which is no field, adds a fault of frames."""
        fields = dict(changes)
        fault = fields.pop("arm", None)
        if fault is not None:
            newest = max((one.number for one in self.frame_faults), default=0)
            fault = dataclasses.replace(fault, number=fault.number or newest + 1)
            fields["frame_faults"] = (*self.frame_faults, fault)
        return dataclasses.replace(self, **fields)

    def check(self) -> None:
        """Raise ValueError if stalls leave no time between them, or a period is too short for the timers of regions."""
        for what, period_ms in (("stalls", self.stall_every_ms), ("flaps", self.flap_period_ms)):
            if 0 < period_ms < LINK_PERIOD_MS_MIN:
                raise ValueError(
                    f"a link that {what} every {period_ms:g} ms: the least period is {LINK_PERIOD_MS_MIN} ms"
                )
        if self.stall_ms and self.stall_ms >= self.stall_every_ms:
            raise ValueError(
                f"a stall of {self.stall_ms:g} ms every {self.stall_every_ms:g} ms leaves no time between stalls"
            )
