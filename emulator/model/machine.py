"""The state of the machine of a region that faults change: its disk and its wall clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

DiskState = Literal["healthy", "slow", "full", "failing"]
DISK_STATES: Final[tuple[DiskState, ...]] = get_args(DiskState)
DISK_DELAY_MS: Final = 200.0
"""Default additional duration of a write to a slow disk."""
DISK_DELAY_MS_MAX: Final = 60_000


@dataclass(frozen=True, slots=True)
class DiskCondition:
    """The state of a region's disk. Raises ValueError if the state is unknown or the delay does not fit it."""

    state: DiskState = "healthy"
    """healthy: no fault. slow: a write takes `delay_ms` longer. full: appends and puts fail; reads, trims and deletions
    work. failing: the sync of every write fails, and the write may or may not have been stored."""
    delay_ms: float = 0.0
    """Additional duration of a write to a slow disk, more than 0 and at most DISK_DELAY_MS_MAX; 0 in other states."""

    def __post_init__(self) -> None:
        if self.state not in DISK_STATES:
            raise ValueError(f"state: {repr(self.state)[:100]} is none of {', '.join(DISK_STATES)}")
        delay_ms: object = self.delay_ms
        if not isinstance(delay_ms, int | float) or isinstance(delay_ms, bool):
            raise ValueError(f"delay_ms: {repr(delay_ms)[:100]} is no number")
        if self.state == "slow" and not 0 < delay_ms <= DISK_DELAY_MS_MAX:
            raise ValueError(
                f"delay_ms: {delay_ms:g} must be more than 0 and at most {DISK_DELAY_MS_MAX} for a slow disk"
            )
        if self.state != "slow" and delay_ms != 0:
            raise ValueError(f"delay_ms: {delay_ms:g} requires the state slow, not {self.state}")

    @classmethod
    def of(cls, state: str, delay_ms: float | None = None) -> DiskCondition:
        """Return the condition of a state; without a delay, a slow disk has DISK_DELAY_MS."""
        if delay_ms is None:
            delay_ms = DISK_DELAY_MS if state == "slow" else 0.0
        return cls(state, delay_ms)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"slow, {self.delay_ms:g} ms" if self.state == "slow" else self.state


HEALTHY: Final = DiskCondition()


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """What a region's wall clock was set to by a fault."""

    ahead_ms: int = 0
    """Offset to the true time; negative: behind."""
    drift_ppm: float = 0.0
    """Microseconds that the clock gains per second since then."""

    def __str__(self) -> str:
        how = (
            f"{abs(self.ahead_ms)} ms {'behind' if self.ahead_ms < 0 else 'ahead'}"
            if self.ahead_ms
            else "right"
        )
        return f"{how}, and drifts by {self.drift_ppm:+g} ppm" if self.drift_ppm else how


RIGHT_CLOCK: Final = ClockOffset()
