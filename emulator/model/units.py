"""Durations, bandwidths, percentages and drifts, as users write them with their units."""

from __future__ import annotations

import re
from typing import Final

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)")
_PERCENTAGE = re.compile(r"(\d{1,3}(?:\.\d+)?)\s*%")
_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0}


def seconds_in(duration: str) -> float:
    """Return the seconds of a duration like `500ms`, `10s` or `2m`. Raises ValueError for any other text."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError("must be a duration with its unit, like 500ms, 10s or 2m")
    return float(match[1]) * _SECONDS_PER_UNIT[match[2]]


ABSENCE_SECONDS_MAX: Final = 365 * 24 * 3600


def ms_or_never(duration: str) -> int:
    """Return the milliseconds of a duration, at least 1; 0 for an empty text: never. Raises ValueError for any other
    text, 0 and more than a year."""
    if not duration:
        return 0
    seconds = seconds_in(duration)
    if not 0 < seconds <= ABSENCE_SECONDS_MAX:
        raise ValueError("must be longer than 0 and at most a year, or empty: never")
    return max(1, round(seconds * 1000))


_BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB)/s")
_BYTES_PER_UNIT = {"B": 1, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
UNLIMITED = "unlimited"


def bytes_per_second_in(bandwidth: str) -> int | None:
    """Return the bytes per second of a bandwidth like `500KB/s`, at least 1; None for `unlimited`. Raises ValueError
    for any other text."""
    if bandwidth == UNLIMITED:
        return None
    match = _BANDWIDTH.fullmatch(bandwidth)
    found = 0 if match is None else round(float(match[1]) * _BYTES_PER_UNIT[match[2]])
    if not 0 < found < 2**63:
        raise ValueError(
            f"must be a bandwidth above 0 with its unit, like 500KB/s or 1MB/s, or `{UNLIMITED}`"
        )
    return found


def fraction_in(percentage: str) -> float:
    """Return the fraction of a percentage like `50%`. Raises ValueError for any other text."""
    match = _PERCENTAGE.fullmatch(percentage)
    if match is None:
        raise ValueError("must be a percentage, like 50%")
    return float(match[1]) / 100


_DRIFT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*ppm")
CLOCK_DRIFT_PPM_MAX: Final = 100_000
"""Maximum drift of a wall clock, a tenth of the elapsed time. Real clocks drift by up to 200 ppm."""


def ppm_in(drift: str) -> float:
    """Return the microseconds per second of a drift like `200ppm` or `-50.5ppm`. Raises ValueError for any other text,
    and for more than CLOCK_DRIFT_PPM_MAX in either direction."""
    match = _DRIFT.fullmatch(drift)
    if match is None:
        raise ValueError("must be a drift with its unit, like 200ppm or -50ppm")
    return checked_drift_ppm(float(match[1]))


def checked_drift_ppm(drift_ppm: float) -> float:
    """Return the drift. Raises ValueError if it is no number from -CLOCK_DRIFT_PPM_MAX to CLOCK_DRIFT_PPM_MAX."""
    is_number = isinstance(drift_ppm, int | float) and not isinstance(drift_ppm, bool)
    if not is_number or not abs(drift_ppm) <= CLOCK_DRIFT_PPM_MAX:
        raise ValueError(f"must be a drift from -{CLOCK_DRIFT_PPM_MAX} to {CLOCK_DRIFT_PPM_MAX} ppm")
    return drift_ppm
