"""The gate of changes that the page requests: verbs of the command line with their values, checked field by field."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from emulator.errors import Refused
from emulator.model.frame_faults import FrameAction
from emulator.model.machine import DiskCondition
from emulator.model.units import CLOCK_DRIFT_PPM_MAX
from emulator.model.values import CLIENTS
from emulator.net.http_server import HttpError
from emulator.run.directory import refuse_unknown
from emulator.runtimes.faults import ClockFault, DiskFault, LinkFault, link_fault

REGION_VERBS: Final = ("kill", "lose", "stop", "start", "restart", "pause", "resume")
LINK_VERBS: Final = ("cut", "hold", "latency", "bandwidth")
FRAME_VERBS: Final = tuple(action.value for action in FrameAction)
LATENCY_MS_MAX: Final = 3_600_000
"""Maximum latency that regions accept."""
CLOCK_MS_MAX: Final = 366 * 24 * 3_600_000
"""Maximum offset of a clock that the page sets."""
BANDWIDTH_MAX: Final = 1_000_000_000_000

Rule = tuple[Callable[[Any], bool], str]
"""Whether a value is valid, and what it must be."""


def _is_number(value: Any, low: float, high: float) -> bool:
    """Whether a value is a finite number in this range."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and low <= value <= high


def _number(low: float, high: float, unit: str) -> Rule:
    return lambda value: _is_number(value, low, high), f"must be a number of {unit}, {low:g} to {high:.0f}"


def _whole(low: int, high: int, unit: str) -> Rule:
    return (
        lambda value: type(value) is int and low <= value <= high,
        f"must be a whole number of {unit}, {low} to {high}",
    )


_REGION: Final[Rule] = lambda value: isinstance(value, str), "must be the name of a region"
_END: Final[Rule] = lambda value: isinstance(value, str), f"must be the name of a region, or {CLIENTS}"
_TEXT: Final[Rule] = lambda value: isinstance(value, str), "must be a text"
_FLAG: Final[Rule] = lambda value: isinstance(value, bool), "must be true or false"
_BANDWIDTH_RULE: Final = _whole(1, BANDWIDTH_MAX, "bytes per second")
_BANDWIDTH: Final[Rule] = (
    lambda value: value is None or _BANDWIDTH_RULE[0](value),
    f"{_BANDWIDTH_RULE[1]}, or null for no limit",
)
_LINK: Final = {"from": _END, "to": _END}
_FRAMES: Final = {**_LINK, "what": _TEXT}
_REQUIRED: Final[Mapping[str, Mapping[str, Rule]]] = {
    **{verb: {"region": _REGION} for verb in REGION_VERBS},
    "skew": {"region": _REGION, "ahead_ms": _whole(-CLOCK_MS_MAX, CLOCK_MS_MAX, "milliseconds")},
    "disk": {"region": _REGION, "state": _TEXT},
    "cut": _LINK,
    "hold": _LINK,
    "latency": {**_LINK, "latency_ms": _number(0, LATENCY_MS_MAX, "milliseconds")},
    "bandwidth": {**_LINK, "bytes_per_second": _BANDWIDTH},
    **dict.fromkeys(FRAME_VERBS, _FRAMES),
    "delay": {**_FRAMES, "by_ms": _number(0, LATENCY_MS_MAX, "milliseconds")},
    "heal": {},
}
"""Verb -> its required fields."""
_COUNT: Final = _whole(1, 1_000_000, "frames")
_OPTIONAL: Final[Mapping[str, Mapping[str, Rule]]] = {
    "skew": {"drift_ppm": _number(-CLOCK_DRIFT_PPM_MAX, CLOCK_DRIFT_PPM_MAX, "ppm")},
    "disk": {"delay_ms": _number(0, LATENCY_MS_MAX, "milliseconds")},
    **{verb: {"one_way": _FLAG} for verb in LINK_VERBS},
    **{verb: {"count": _COUNT, "nth": _COUNT} for verb in FRAME_VERBS},
    "heal": _LINK,
}
"""Verb -> the fields that may be left out; `heal` has both ends of a link or none."""


def checked_change(request: object) -> dict[str, Any]:
    """Return the fields of a request. HttpError 400 for anything that is not a valid one."""
    if not isinstance(request, dict):
        raise HttpError(400, "the body must be a JSON object")
    verb = request.get("verb")
    if not isinstance(verb, str) or verb not in _REQUIRED:
        raise HttpError(400, f"verb: {shortened(verb)} is none of {', '.join(_REQUIRED)}")
    required, optional = _REQUIRED[verb], _OPTIONAL.get(verb, {})
    if verb == "heal" and len(request) > 1:
        required, optional = _LINK, {}
    for name in request:
        if name != "verb" and name not in required and name not in optional:
            raise HttpError(400, f"{shortened(name)} is no field of {verb}")
    for name, (is_valid, rule) in {**required, **optional}.items():
        if (name in required or name in request) and not is_valid(request.get(name)):
            raise HttpError(400, f"{name}: {shortened(request.get(name))} {rule}")
    return request


def machine_fault(regions: Collection[str], fields: Mapping[str, Any]) -> ClockFault | DiskFault:
    """Return the fault of a region's clock or disk. Raises Refused for an unknown region or an impossible value."""
    region = fields["region"]
    refuse_unknown("region", region, regions)
    if fields["verb"] == "skew":
        return ClockFault(region, fields["ahead_ms"], fields.get("drift_ppm", 0.0))
    try:
        return DiskFault(region, DiskCondition.of(fields["state"], fields.get("delay_ms")))
    except ValueError as problem:
        raise Refused(f"the disk of {region}: {problem}") from None


def fault_of_link(regions: Collection[str], fields: Mapping[str, Any]) -> LinkFault:
    """Return the fault of one link, or of single frames in one direction. Raises Refused for names that are not in the
    run, or an impossible value."""
    verb, source, target = (fields[name] for name in ("verb", "from", "to"))
    for end in (source, target):
        if end != CLIENTS:
            refuse_unknown("region", end, regions)
    values = {name: value for name, value in fields.items() if name not in ("verb", "from", "to", "one_way")}
    one_way = verb in FRAME_VERBS or fields.get("one_way", False)
    return link_fault(verb, regions, source, target, one_way=one_way, **values)


def shortened(value: object) -> str:
    return repr(value)[:100]
