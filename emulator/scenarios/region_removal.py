"""Removes a region of a run that will not return: what may be lost with it, and the removal in each cluster.

    each remaining region ──what it received──▶ this module ──removal──▶ one region of each cluster

The removal is not atomic over clusters. It may be repeated: a cluster that has it completes its policies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from emulator.errors import Refused, RuntimeFailure
from emulator.model.values import Position
from emulator.run.directory import refuse_unknown
from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.scenarios.region_queries import CallRegion, call_over_http

REMOVAL_SECONDS: Final = 30.0
"""Maximum time for one response: a region loads all of its topics."""


class TopicLoss(NamedTuple):
    """What the remaining regions store of the removed region's messages to one topic."""

    topic: str
    received: dict[str, str | None]
    """Region -> position of the newest entry that it received; None: none."""

    @property
    def newest(self) -> str | None:
        """Position of the newest entry that any region received; None: none."""
        found = [Position.parse(text) for text in self.received.values() if text is not None]
        return str(max(found)) if found else None

    @property
    def lacking(self) -> dict[str, str | None]:
        """The regions that received less than another one."""
        return {region: text for region, text in self.received.items() if text != self.newest}


@dataclass(frozen=True, slots=True)
class RegionRemoval:
    """What is known before a region is removed, and the result of the removal."""

    region: str
    topics: tuple[TopicLoss, ...]
    policies: tuple[str, ...]
    """Paths of the policies that list the region."""
    exclusive_home_of: tuple[str, ...]
    """Namespaces whose clients may publish only in the region."""
    silent: tuple[str, ...]
    """Other regions that do not run or did not respond: what they received is unknown."""
    missed_clusters: tuple[str, ...]
    """Clusters without a responding region: the removal must be repeated when one is back."""
    through: dict[str, str] = field(default_factory=dict)
    """Cluster -> the region that receives the request."""

    def to_json(self) -> dict[str, Any]:
        return {
            "region": self.region,
            "topics": [
                {"topic": one.topic, "newest": one.newest, "received": one.received, "lacking": one.lacking}
                for one in self.topics
            ],
            "policies": list(self.policies),
            "exclusive_home_of": list(self.exclusive_home_of),
            "silent": list(self.silent),
            "missed_clusters": list(self.missed_clusters),
        }


async def preview_removal(
    regions: Mapping[str, RegionStatus], clusters: Mapping[str, str], name: str, call_region: CallRegion
) -> RegionRemoval:
    """Return what may be lost with a region. `clusters`: region -> cluster. Raises Refused for an unknown region, and
    for one that is connected to another; RuntimeFailure if no other region responds."""
    refuse_unknown("region", name, regions)
    received: dict[str, dict[str, str | None]] = {}
    policies, homes, silent, through = set[str](), set[str](), list[str](), dict[str, str]()
    for other in sorted(regions.keys() - {name}):
        state = await _state_in(regions[other], name, call_region)
        if state is None:
            silent.append(other)
            continue
        if state["connected"]:
            raise Refused(
                f"{name} is connected to {other}: a region that works is not removed; `geoemu lose {name}` first"
            )
        through.setdefault(clusters[other], other)
        policies |= {*state["policies"]}
        homes |= {*state["exclusive_home_of"]}
        for row in state["topics"]:
            received.setdefault(row["topic"], {})[other] = row["received"]
    if not through:
        raise RuntimeFailure(f"no other region responds: {', '.join(silent) or 'there is none'}")
    return RegionRemoval(
        name,
        tuple(TopicLoss(topic, found) for topic, found in sorted(received.items())),
        tuple(sorted(policies)),
        tuple(sorted(homes)),
        tuple(silent),
        tuple(sorted({clusters[other] for other in regions if other != name} - through.keys())),
        through,
    )


async def _state_in(region: RegionStatus, name: str, call_region: CallRegion) -> dict[str, Any] | None:
    """Return what a region knows of another one; None: it does not run or does not respond."""
    if region.state != "running":
        return None
    try:
        status, raw = await call_region(region, "GET", _path(name), None)
    except OSError:
        return None
    return dict(json.loads(raw)) if status == 200 else None


async def remove(
    regions: Mapping[str, RegionStatus], removal: RegionRemoval, call_region: CallRegion
) -> dict[str, int]:
    """Remove the region in each cluster. Return, by cluster, the number of changed policies. Raises RuntimeFailure for
    a cluster that does not; those before it have removed the region."""
    changed = {}
    for cluster, through in sorted(removal.through.items()):
        try:
            status, raw = await call_region(regions[through], "PUT", _path(removal.region), None)
        except OSError as problem:
            raise RuntimeFailure(f"{through} of cluster {cluster} does not respond: {problem}") from None
        answer = json.loads(raw) if raw else {}
        if status != 200:
            raise RuntimeFailure(f"{through} of cluster {cluster}: {answer.get('reason', status)}")
        changed[cluster] = int(answer["changed_policies"])
    return changed


def _path(name: str) -> str:
    return f"/geoemu/v1/removed-regions/{quote(name, safe='')}"


async def preview_in_run(run: Runtime, name: str) -> RegionRemoval:
    """Return what may be lost with a region of a run, as `preview_removal` does."""
    status = await run.status()
    regions = {one.name: one for one in status.regions}
    clusters = {one.name: one.cluster for one in run.topology.regions}
    return await preview_removal(regions, clusters, name, partial(call_over_http, seconds=REMOVAL_SECONDS))


async def remove_in_run(run: Runtime, removal: RegionRemoval) -> dict[str, int]:
    """Remove the region of a preview from the run, as `remove` does."""
    regions = {one.name: one for one in (await run.status()).regions}
    return await remove(regions, removal, partial(call_over_http, seconds=REMOVAL_SECONDS))
