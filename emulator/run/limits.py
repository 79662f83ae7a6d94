"""Limits that a user sets for a run: `unrecovered=0`, `gap<=5s`, `latency.p99[billing]<=200ms`.

    LIMIT      MEASURE [ '[' ACTOR ']' ] OPERATOR VALUE
    MEASURE    unrecovered  redelivered  gap  stall  outage  latency.p50  latency.p99  latency.max  lag
               replication_lag  replication_lag.p50  replication_lag.p99
    OPERATOR   =  <=  <
    VALUE      a whole number (unrecovered, redelivered), or a duration with its unit

Without an actor, every actor must keep the limit. Limits apply to figures of the report and are independent of the
guarantees that the verdict checks (docs/LIMITS.md).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from emulator.model.units import seconds_in

LIMITS_FILE = "limits"
"""File in a run directory with the limits of the scenario or of `--expect`, in the format of `as_text`."""
COUNTS = ("unrecovered", "redelivered")
REPLICATION_LAG = ("replication_lag", "replication_lag.p50", "replication_lag.p99")
"""Measures of links whose figures are bounds."""
DURATIONS = (
    *("gap", "stall", "outage", "latency.p50", "latency.p99", "latency.max", "lag"),
    *REPLICATION_LAG,
)
MEASURES = (*COUNTS, *DURATIONS)
RENAMED = {"repeated": "redelivered"}
"""Former names of measures, which the file `limits` of a run directory may contain."""
_LIMIT = re.compile(r"\s*([a-z0-9._]+)\s*(?:\[\s*([^\]]+?)\s*\])?\s*(<=|<|=)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a figure."""

    measure: str
    actor: str | None
    """Actor to which the limit applies; None: every actor."""
    operator: str
    value: float
    """Limit as a number, or in seconds for durations."""

    @property
    def text(self) -> str:
        """The limit as users write it."""
        actor = f"[{self.actor}]" if self.actor else ""
        value = f"{self.value:.0f}" if self.measure in COUNTS else _duration(self.value)
        return f"{self.measure}{actor}{self.operator}{value}"

    def is_kept_by(self, figure: float) -> bool:
        match self.operator:
            case "=":
                return figure == self.value
            case "<":
                return figure < self.value
            case _:
                return figure <= self.value


def parse_limits(text: str) -> tuple[Limit, ...]:
    """Parse limits that are separated by commas. Raises ValueError with the first invalid limit and its rule."""
    return tuple(parse_limit(part) for part in text.split(",") if part.strip())


def read_limits(text: str) -> tuple[Limit, ...]:
    """Parse the limits in the file of a run directory, also with former names of measures. Raises ValueError."""
    parts = (part.strip() for part in text.split(",") if part.strip())
    return tuple(parse_limit(re.sub(r"^[a-z0-9._]+", _current_name, part)) for part in parts)


def _current_name(measure: re.Match[str]) -> str:
    return RENAMED.get(measure[0], measure[0])


def parse_limit(text: str) -> Limit:
    """Parse one limit. Raises ValueError with the invalid value and its rule."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text.strip()!r} is not a limit: write for example gap<=5s, unrecovered=0 or outage[orders]<=3s"
        )
    measure, actor, operator, value = found.groups()
    if measure in RENAMED:
        raise ValueError(f"{measure} was renamed to {RENAMED[measure]}")
    if measure not in MEASURES:
        near = difflib.get_close_matches(measure, MEASURES, n=1)
        guess = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{measure!r} is not a measure: must be one of {', '.join(MEASURES)}{guess}")
    return Limit(measure, actor, operator, _value(measure, value))


def as_text(limits: Iterable[Limit]) -> str:
    """Inverse of `parse_limits`."""
    return ",".join(limit.text for limit in limits)


def _value(measure: str, written: str) -> float:
    if measure in COUNTS:
        if not written.isdecimal():
            raise ValueError(f"{measure}: {written!r} must be a whole number, 0 or more")
        return float(written)
    try:
        return round(seconds_in(written), 6)
    except ValueError as problem:
        raise ValueError(f"{measure}: {written!r} {problem}") from None


def _duration(seconds: float) -> str:
    """Return the text of a duration, exact to the microsecond to which `_value` rounds."""
    number, unit = (f"{seconds * 1000:.3f}", "ms") if seconds < 1 else (f"{seconds:.6f}", "s")
    return number.rstrip("0").rstrip(".") + unit
