"""The steps of a scenario file that act on the machine of a region: its clock, its disk and its power."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from emulator.config.yaml_errors import rule
from emulator.model.machine import DISK_DELAY_MS_MAX, DiskCondition
from emulator.model.units import ppm_in
from emulator.scenarios.format.types import Deadline, Milliseconds, Region, Regions, TimeSpan


def _drift(written: Any) -> float:
    try:
        return ppm_in(written if isinstance(written, str) else "")
    except ValueError as problem:
        raise rule(str(problem)) from None


Drift = Annotated[
    float,
    BeforeValidator(_drift),
    WithJsonSchema({"type": "string", "pattern": r"^[+-]?\d+(\.\d+)?\s*ppm$", "examples": ["200ppm"]}),
]
"""Microseconds per second."""


class Skew(Deadline):
    """Offset a region's wall clock; `0ms` corrects it."""

    region: Region
    by: Milliseconds
    """Offset: ahead (+250ms) or behind (-250ms)."""
    drift: Drift | None = None
    """Microseconds that the clock gains per second from now on, such as 200ppm, or loses (-200ppm); default: none."""


class Disk(Deadline):
    """Make a region's disk slow, full or failing; `healthy` ends it."""

    region: Region
    state: Literal["healthy", "slow", "full", "failing"] = Field(alias="is")
    """slow: each write takes longer. full: writes are refused; reads, trims and deletions work. failing: the sync of
    each write fails, and its outcome is unknown."""
    by: TimeSpan | None = None
    """Additional duration of each write to a slow disk, up to a minute; default: 200ms."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.by is not None and self.state != "slow":
            raise rule(f"`by` requires `is: slow`, not `is: {self.state}`")
        if self.by is not None and self.by * 1000 > DISK_DELAY_MS_MAX:
            raise rule(f"`by` must be at most {DISK_DELAY_MS_MAX // 1000}s")
        return self

    @property
    def condition(self) -> DiskCondition:
        return DiskCondition.of(self.state, None if self.by is None else self.by * 1000)


class PowerLoss(Deadline):
    """Kill regions as a power loss of their machines does: what no completed sync covers is dropped."""

    shorthand = "region"
    region: Regions
    """A region, or several."""
