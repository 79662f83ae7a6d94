"""Steps that change links: the models of their objects."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from emulator.config.link_profiles import LinkProfileName
from emulator.config.link_shape import LINK_PERIOD_MS_MIN
from emulator.config.yaml_errors import rule
from emulator.model.frame_faults import FrameAction, FrameFault, check_link_of
from emulator.model.values import CLIENTS
from emulator.scenarios.format.types import (
    Bandwidth,
    Deadline,
    Fraction,
    FrameCount,
    FrameName,
    LinkDirection,
    LinkEnd,
    LinkEnds,
    LinkEndsOrEverything,
    Seconds,
    TimeSpan,
    pair,
)


class OnLink(Deadline):
    """The links between two ends, or one direction of them. An end is a region, several, a pattern such as `eu-*`, or
    `clients`: the clients of the regions at the other end."""

    shorthand: ClassVar[str | None] = "between"
    between: LinkEnds | None = None
    """Two ends: both directions."""
    source: LinkEnd | None = Field(default=None, alias="from")
    """With `to`: this direction only."""
    target: LinkEnd | None = Field(default=None, alias="to")

    @model_validator(mode="after")
    def _names_two_regions(self) -> Self:
        if (self.between is None) == (self.source is None or self.target is None):
            raise rule("must be either [A, B] (both directions) or {from: A, to: B} (one direction)")
        pair(self.ends)
        return self

    @property
    def ends(self) -> tuple[str, ...]:
        """Source and target; with `between`, both directions are meant."""
        return self.between or (self.source or "", self.target or "")

    @property
    def one_way(self) -> bool:
        return self.between is None

    def values(self) -> dict[str, Any]:
        """Return the values of the fault (`runtimes.faults.LINK_CHANGES`)."""
        return {}


class Latency(OnLink):
    """Set the one-way latency of a link."""

    shorthand = None
    time: Seconds = Field(alias="is")
    """One-way latency."""
    jitter: Seconds | None = None
    """Maximum random addition to the latency; default: unchanged."""

    def values(self) -> dict[str, Any]:
        jitter_ms = None if self.jitter is None else self.jitter * 1000
        return {"latency_ms": self.time * 1000, "jitter_ms": jitter_ms}


class BandwidthLimit(OnLink):
    """Set the bandwidth of a link. From a region to its clients, the clients read slowly."""

    shorthand = None
    limit: Bandwidth = Field(alias="is")
    """Bytes per second in one direction, or `unlimited`."""

    def values(self) -> dict[str, Any]:
        return {"bytes_per_second": self.limit or None}


LINK_PERIOD_SECONDS_MIN = LINK_PERIOD_MS_MIN / 1000
SHORT_PERIOD = f"must repeat after at least {LINK_PERIOD_MS_MIN}ms"


class Stall(OnLink):
    """Stall a link at regular intervals."""

    shorthand = None
    every: TimeSpan
    """Interval between the beginnings of two stalls."""
    length: TimeSpan = Field(alias="for")
    """Length of each stall; shorter than the interval."""

    @model_validator(mode="after")
    def _leaves_time(self) -> Self:
        if self.length >= self.every:
            raise rule("must stall for a shorter time than every")
        if self.every < LINK_PERIOD_SECONDS_MIN:
            raise rule(SHORT_PERIOD)
        return self

    def values(self) -> dict[str, Any]:
        return {"every_ms": self.every * 1000, "stall_ms": self.length * 1000}


class Flap(OnLink):
    """Cut a link for a part of each period."""

    shorthand = None
    period: TimeSpan
    """Length of a period."""
    up: Fraction
    """Part of each period, at its beginning, in which the link is up."""

    @model_validator(mode="after")
    def _is_long_enough(self) -> Self:
        if self.period < LINK_PERIOD_SECONDS_MIN:
            raise rule(SHORT_PERIOD)
        return self

    def values(self) -> dict[str, Any]:
        return {"period_ms": self.period * 1000, "up": self.up}


class ProfileOfLink(OnLink):
    """Give a link the latency, jitter, bandwidth and stalls of a named profile."""

    shorthand = None
    name: LinkProfileName = Field(alias="is")
    """Name of the profile."""

    def values(self) -> dict[str, Any]:
        return {"profile": self.name}


class OnFrames(Deadline):
    """Affect single commands, receipts or markers of one direction of a link."""

    one_way: ClassVar[bool] = True
    link: LinkDirection
    """One direction of a link, like `us->eu`, `clients->us` or `us->clients`; ends as in `cut`."""
    what: FrameName
    """Name of a command or marker, like `send`, `send_receipt` or `snapshot_response`."""
    count: FrameCount = 1
    """Number of matching frames, in a row, that are affected."""
    nth: FrameCount = 1
    """The first affected frame: the n-th matching one from now on."""

    @model_validator(mode="after")
    def _passes_the_link(self) -> Self:
        try:
            check_link_of(FrameFault(FrameAction.DROP, self.what), clients=CLIENTS in self.link)
        except ValueError as problem:
            raise rule(str(problem)) from None
        return self

    @property
    def ends(self) -> tuple[str, ...]:
        return self.link

    def values(self) -> dict[str, Any]:
        return {"what": self.what, "count": self.count, "nth": self.nth}


class DelayOfFrames(OnFrames):
    """Delay single commands, receipts or markers of one direction of a link; later ones overtake them."""

    by: TimeSpan
    """Delay."""

    def values(self) -> dict[str, Any]:
        return {**super().values(), "by_ms": self.by * 1000}


class Heal(Deadline):
    """Restore links as the topology declares them; deliver held traffic."""

    shorthand = "between"
    between: LinkEndsOrEverything
    """Two ends (both directions), or `all`."""
