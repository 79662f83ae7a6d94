"""The load of the regions and links of a run: rates, backlogs, lags, read from the metrics of each region."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from emulator.runtimes.admin_client import NoHttpResponse, call
from emulator.runtimes.contract import RegionStatus, RunStatus

RESPONSE_SECONDS: Final = 2.0
"""Time for which a region may not respond before its values are unknown."""
_SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a region's metrics."""

    name: str
    remote: str
    """Value of the label `remote_cluster`; empty without it."""
    value: float


@dataclass(frozen=True, slots=True)
class RegionLoad:
    """The load of one region; None: it does not respond, or has no such value."""

    name: str
    cluster: str
    state: str
    rate_in: float | None = None
    """Messages per second that clients publish or other regions replicate."""
    rate_out: float | None = None
    """Messages sent to consumers per second."""
    backlog: float | None = None
    """Unacknowledged messages of all subscriptions."""
    snapshot_age_seconds: float | None = None
    """Age of the newest snapshot of replicated subscriptions, of the topic in which it is oldest."""


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """The load of one direction of a link; None: its source does not respond, or no topic is replicated to its
    target."""

    source: str
    target: str
    state: str
    is_connected: bool | None = None
    lag_messages: float | None = None
    """Messages that the target has not confirmed."""
    lag_ms: float | None = None
    """Age of the oldest of them."""


@dataclass(frozen=True, slots=True)
class RunLoad:
    """The load of a run at one moment."""

    regions: tuple[RegionLoad, ...]
    links: tuple[LinkLoad, ...]


def parse_metrics(text: str) -> Iterator[Sample]:
    """Yield the values of a region's metrics. Lines in another format are left out."""
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.fullmatch(line)
        if found is None:
            continue
        labels = dict(_LABEL.findall(found[2] or ""))
        try:
            yield Sample(found[1], labels.get("remote_cluster", ""), float(found[3]))
        except ValueError:
            continue


async def load_of(status: RunStatus) -> RunLoad:
    """Query the metrics of all regions that run, at the same time, and return the load of the run."""
    answers = await asyncio.gather(*map(_samples_of, status.regions))
    samples = {region.name: answer for region, answer in zip(status.regions, answers, strict=True)}
    regions = tuple(_region_load(one, samples[one.name]) for one in status.regions)
    links = tuple(
        _link_load(one.source, one.target, one.state, samples.get(one.source, ()))
        for one in status.links
        if one.source in samples and one.target in samples
    )
    return RunLoad(regions, links)


async def _samples_of(region: RegionStatus) -> Sequence[Sample]:
    """Return the values of a region; none if it does not run or respond."""
    if region.state not in ("running", "starting"):
        return ()
    try:
        answer = await call(region, "GET", "/metrics", seconds=RESPONSE_SECONDS)
    except NoHttpResponse:
        return ()
    return list(parse_metrics(answer.body.decode(errors="replace"))) if answer.status == 200 else ()


def _region_load(region: RegionStatus, samples: Sequence[Sample]) -> RegionLoad:
    return RegionLoad(
        region.name,
        region.cluster,
        region.state,
        rate_in=_total(samples, "pulsar_broker_rate_in"),
        rate_out=_total(samples, "pulsar_broker_rate_out"),
        backlog=_total(samples, "pulsar_broker_msg_backlog"),
        snapshot_age_seconds=_combined(samples, "geoemu_snapshot_age_seconds", max),
    )


def _link_load(source: str, target: str, state: str, samples: Sequence[Sample]) -> LinkLoad:
    own = [one for one in samples if one.remote == target]
    connected = _combined(own, "geoemu_link_connected", max)
    return LinkLoad(
        source,
        target,
        state,
        is_connected=None if connected is None else connected > 0,
        lag_messages=_combined(own, "geoemu_replication_lag_messages", sum),
        lag_ms=_combined(own, "geoemu_replication_lag_milliseconds", max),
    )


def _total(samples: Sequence[Sample], name: str) -> float | None:
    """Return a sum over all topics: 0 for a region that has loaded none, None for one that does not respond."""
    return (_combined(samples, name, sum) or 0.0) if samples else None


def _combined(
    samples: Iterable[Sample], name: str, combine: Callable[[Iterable[float]], float]
) -> float | None:
    values = [one.value for one in samples if one.name == name]
    return combine(values) if values else None
