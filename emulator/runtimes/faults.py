"""The catalogue of faults: values that begin and end on any runtime, and what each runtime can do.

Scenario steps, commands, the Python API and `geoemu chaos` create these values, so that a fault means the same in all
of them. A history records each fault by its `facts`. `fault_table` lists all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Protocol

from emulator.config.link_profiles import PROFILES, profile_fields, profile_name
from emulator.config.link_shape import LinkShape
from emulator.errors import Refused
from emulator.model.frame_faults import FrameAction
from emulator.model.machine import HEALTHY, ClockOffset, DiskCondition
from emulator.model.suggestions import nearest
from emulator.model.values import CLIENTS
from emulator.run.history_events import skew_detail
from emulator.runtimes.contract import BREAKS, Link, Runtime
from emulator.runtimes.frame_faults import check_links_of, frame_changes


@dataclass(frozen=True, slots=True)
class FaultFact:
    """One fact of a history about a fault."""

    op: str
    region: str
    other_region: str | None = None
    detail: str | None = None

    def fields(self) -> dict[str, str]:
        """Return the fields of the fact, except `op`, that are set."""
        named = {"region": self.region, "other_region": self.other_region, "detail": self.detail}
        return {name: value for name, value in named.items() if value is not None}


class Fault(Protocol):
    """A fault with a beginning and an end."""

    @property
    def verb(self) -> str:
        """Name of the fault: key in `fault_table.FAULTS`, command, step, method, and operation in histories."""
        ...

    async def begin(self, runtime: Runtime) -> None:
        """Begin the fault; returns when its effect is complete. Raises RuntimeFailure or Refused."""
        ...

    async def end(self, runtime: Runtime) -> None:
        """End the fault and wait until the regions are ready and linked again. Raises RuntimeFailure or Refused."""
        ...

    def facts(self) -> Iterable[FaultFact]:
        """Return the facts to record when the fault has begun."""
        ...


@dataclass(frozen=True, slots=True)
class RegionFault:
    """A fault of one region: kill, lose, power_loss, stop, restart or pause."""

    verb: str
    region: str

    async def begin(self, runtime: Runtime) -> None:
        await getattr(runtime, self.verb)(self.region)

    async def end(self, runtime: Runtime) -> None:
        if self.verb == "pause":
            await runtime.resume(self.region)
        elif self.verb != "restart":
            await runtime.start(self.region)

    def facts(self) -> Iterable[FaultFact]:
        return [FaultFact(self.verb, self.region)]


@dataclass(frozen=True, slots=True)
class ClockFault:
    """A region's wall clock is wrong."""

    region: str
    ahead_ms: int
    """Offset to the true time; negative: behind."""
    drift_ppm: float = 0.0
    """Microseconds that the clock gains per second."""
    verb: str = field(default="skew", init=False)

    async def begin(self, runtime: Runtime) -> None:
        await runtime.skew(self.region, self.ahead_ms, self.drift_ppm)

    async def end(self, runtime: Runtime) -> None:
        await runtime.skew(self.region, 0)

    def facts(self) -> Iterable[FaultFact]:
        return [FaultFact("skew", self.region, detail=skew_detail(self.ahead_ms, self.drift_ppm))]

    def __str__(self) -> str:
        return f"the clock of {self.region} is {ClockOffset(self.ahead_ms, self.drift_ppm)}"


@dataclass(frozen=True, slots=True)
class DiskFault:
    """A region's disk is slow, full or failing."""

    region: str
    condition: DiskCondition
    verb: str = field(default="disk", init=False)

    async def begin(self, runtime: Runtime) -> None:
        slow = self.condition.state == "slow"
        await runtime.disk(self.region, self.condition.state, self.condition.delay_ms if slow else None)

    async def end(self, runtime: Runtime) -> None:
        await runtime.disk(self.region, HEALTHY.state)

    def facts(self) -> Iterable[FaultFact]:
        return [FaultFact("disk", self.region, detail=str(self.condition))]

    def __str__(self) -> str:
        return f"the disk of {self.region} is {self.condition}"


@dataclass(frozen=True, slots=True)
class LinkFault:
    """A fault of links between regions, or between clients and their region; or `heal`, the end of all their faults."""

    verb: str
    pairs: tuple[Link, ...]
    """(source, target) of each link; both directions unless `one_way`."""
    one_way: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changed fields of `config.link_shape.LinkShape`; empty for `reset` and `half_open`."""
    value: str = ""
    """The change in words, such as `200 ms`; empty if the verb says it."""

    @property
    def links(self) -> tuple[Link, ...]:
        """All affected directions, each once."""
        back = () if self.one_way else tuple(link[::-1] for link in self.pairs)
        return tuple(dict.fromkeys((*self.pairs, *back)))

    async def begin(self, runtime: Runtime) -> None:
        if self.verb in BREAKS:
            await runtime.break_connections(self.links, self.verb)
        elif self.verb == "heal":
            await runtime.heal(self.links)
        else:
            await runtime.change_links(self.links, self.changes)

    async def end(self, runtime: Runtime) -> None:
        await runtime.heal(self.links)

    def facts(self) -> Iterable[FaultFact]:
        return [self._fact(link) for link in self.pairs]

    def _fact(self, link: Link) -> FaultFact:
        """A fact names the region first; `one way back` is the direction from its clients."""
        source, target = link
        way = "one way" if self.one_way else "both ways"
        if source == CLIENTS:
            source, target = target, source
            way = "one way back" if self.one_way else way
        detail = None if self.verb == "heal" else f"{self.value} {way}".strip()
        return FaultFact(self.verb, source, target, detail)


# Link faults, by verb.


def cut_changes() -> tuple[dict[str, Any], str]:
    return {"state": "cut"}, ""


def hold_changes() -> tuple[dict[str, Any], str]:
    return {"state": "held"}, ""


def latency_changes(latency_ms: float, jitter_ms: float | None = None) -> tuple[dict[str, Any], str]:
    """`jitter_ms` None: unchanged."""
    jitter = {} if jitter_ms is None else {"jitter_ms": jitter_ms}
    return {"latency_ms": latency_ms, **jitter}, f"{latency_ms:g} ms"


def bandwidth_changes(bytes_per_second: int | None) -> tuple[dict[str, Any], str]:
    """None: unlimited."""
    words = "unlimited" if bytes_per_second is None else f"{bytes_per_second} bytes/s"
    return {"bandwidth_bytes_per_second": bytes_per_second}, words


def stall_changes(every_ms: float, stall_ms: float) -> tuple[dict[str, Any], str]:
    """Raises Refused if a stall leaves no time before the next one, or the interval is too short."""
    _check_shape(LinkShape(stall_every_ms=every_ms, stall_ms=stall_ms))
    return {"stall_every_ms": every_ms, "stall_ms": stall_ms}, f"{stall_ms:g} ms every {every_ms:g} ms"


def _check_shape(shape: LinkShape) -> None:
    try:
        shape.check()
    except ValueError as problem:
        raise Refused(str(problem)) from None


def flap_changes(period_ms: float, up: float) -> tuple[dict[str, Any], str]:
    """`up` is the part of each period in which the link is up, between 0 and 1. Raises Refused for other values."""
    if not period_ms > 0 or not 0 < up < 1:
        raise Refused(
            "a flapping link needs a period above 0, and to be up for more than 0 % and less than 100 % of it"
        )
    _check_shape(LinkShape(flap_period_ms=period_ms, flap_up=up))
    return {"flap_period_ms": period_ms, "flap_up": up}, f"up {up * 100:g} % of {period_ms:g} ms"


def profile_changes(profile: str) -> tuple[dict[str, Any], str]:
    """`profile` is the name of a link profile (`config.link_profiles`). Raises Refused if there is none."""
    name = profile_name(profile)
    return profile_fields(name), f"{name}, {PROFILES[name].shape.latency_ms:g} ms"


LINK_CHANGES: Mapping[str, Callable[..., tuple[dict[str, Any], str]]] = {
    "cut": cut_changes,
    "hold": hold_changes,
    "latency": latency_changes,
    "bandwidth": bandwidth_changes,
    "stall": stall_changes,
    "flap": flap_changes,
    "profile": profile_changes,
    "reset": lambda: ({}, ""),
    "half_open": lambda: ({}, ""),
    "heal": lambda: ({}, ""),
    **{action.value: partial(frame_changes, action) for action in FrameAction},
}
"""Verb -> function of its values that returns the changed fields of a link, and the change in words."""


def link_fault(
    verb: str,
    regions: Collection[str],
    source: str | Sequence[str],
    target: str | Sequence[str],
    *,
    one_way: bool = False,
    **values: Any,
) -> LinkFault:
    """Return the fault of all links between two ends, as `link_pairs` reads them. `values` are the arguments of the
    verb's function in `LINK_CHANGES`. Raises Refused for unknown ends or invalid values."""
    changes, words = LINK_CHANGES[verb](**values)
    pairs = link_pairs(regions, source, target)
    if "arm" in changes:
        check_links_of(changes["arm"], pairs)
    return LinkFault(verb, pairs, one_way, changes, words)


def link_pairs(
    regions: Collection[str], source: str | Sequence[str], target: str | Sequence[str]
) -> tuple[Link, ...]:
    """Return each pair of a region of `source` and one of `target`, each unordered pair once.

    An end is a region, several (a list, or text with commas), a pattern such as `eu-*`, or `clients`: the clients of
    the regions at the other end. Raises Refused if an end matches no region, or no pair of different ends is left.
    """
    pairs: dict[Link, None] = {}
    for link in ((a, b) for a in ends_in(regions, source) for b in ends_in(regions, target) if a != b):
        if link[::-1] not in pairs:
            pairs[link] = None
    if not pairs:
        ends = f"{_text(source)} -> {_text(target)}"
        raise Refused(f"no link {ends}: name two different regions, or `{CLIENTS}` and a region")
    return tuple(pairs)


def ends_in(regions: Collection[str], end: str | Sequence[str]) -> tuple[str, ...]:
    """Return the regions, or `clients`, that one end of a link names, each once. Raises Refused if one is unknown."""
    found: dict[str, None] = {}
    for name in end.split(",") if isinstance(end, str) else end:
        matching = (
            [CLIENTS] if name == CLIENTS else [region for region in regions if fnmatchcase(region, name)]
        )
        if not matching:
            guess = nearest(name, tuple(regions))
            hint = f"did you mean {guess}? " if guess else ""
            raise Refused(f"no region {name!r} in this run: {hint}regions are {', '.join(regions)}")
        found.update(dict.fromkeys(matching))
    return tuple(found)


def _text(end: str | Sequence[str]) -> str:
    return end if isinstance(end, str) else ",".join(end)
