"""Limits that a person sets for a run: `unrecovered=0`, `gap<=5s`, `latency.p99[billing]<=200ms`.

    LIMIT      MEASURE [ '[' ACTOR ']' ] OPERATOR VALUE
    MEASURE    unrecovered  redelivered  gap  stall  outage  latency.p50  latency.p99  latency.max  lag
    OPERATOR   =  <=  <
    VALUE      a whole number (unrecovered, redelivered), or a duration with its unit

Without an actor every actor must keep the limit. A limit is held against figures of the report; whether it was kept
says nothing of whether the system kept its promises, and the other way round (docs/LIMITS.md).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from emulator.model.values import seconds_in

LIMITS_FILE = "limits"
"""In a run directory: the limits that the run was made with, as `as_text` writes them."""
COUNTS = ("unrecovered", "redelivered")
DURATIONS = ("gap", "stall", "outage", "latency.p50", "latency.p99", "latency.max", "lag")
MEASURES = (*COUNTS, *DURATIONS)
RENAMED = {"repeated": "redelivered"}
"""Old names of measures. The file `limits` of a run directory may have them."""
_WRITTEN = re.compile(r"\s*([a-z0-9.]+)\s*(?:\[\s*([^\]]+?)\s*\])?\s*(<=|<|=)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit."""

    measure: str
    actor: str | None
    """None: each of them."""
    operator: str
    value: float
    """A number, or seconds."""

    @property
    def text(self) -> str:
        """As it would be typed."""
        actor = f"[{self.actor}]" if self.actor else ""
        value = f"{self.value:g}" if self.measure in COUNTS else _duration(self.value)
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
    """Several, with commas between them. ValueError names the first that is wrong, with its rule."""
    return tuple(parse_limit(part) for part in text.split(",") if part.strip())


def read_limits(text: str) -> tuple[Limit, ...]:
    """Limits as the file of a run directory stores them; an earlier version of geoemu may have written it."""
    parts = (part.strip() for part in text.split(",") if part.strip())
    return tuple(parse_limit(re.sub(r"^[a-z0-9.]+", _present_name, part)) for part in parts)


def _present_name(measure: re.Match[str]) -> str:
    return RENAMED.get(measure[0], measure[0])


def parse_limit(text: str) -> Limit:
    """One. ValueError with value and rule when it is none."""
    found = _WRITTEN.fullmatch(text)
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
    return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:g}s"
