"""Translates positions between the regions of a run: composes what the two regions state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from emulator.errors import Refused, RuntimeFailure
from emulator.model.failover_plans import Translation
from emulator.run.directory import refuse_unknown
from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.scenarios.failover_plans import (
    PLAN_SECONDS,
    NoRegionResponse,
    ask_region,
    checked_name,
    expect_object,
    reason_in,
)
from emulator.scenarios.region_queries import CallRegion, call_over_http


async def translate(
    regions: Mapping[str, RegionStatus],
    topic: str,
    position: str,
    source: str,
    target: str,
    call_region: CallRegion | None = None,
) -> Translation:
    """Return the place of an entry of region `source` in the log of region `target`.

    `position`: `ledger:entry` in `source`. `call_region`: calls an admin port; None: over real sockets. Raises Refused
    for an unknown region, topic or position, and if the regions are the same; RuntimeFailure if neither region responds
    or one returns an error."""
    name = checked_name(topic)
    for region in (source, target):
        refuse_unknown("region", region, regions)
    if source == target:
        raise Refused(f"{source}: a translation needs two different regions")
    path = "/".join(quote(word, safe="") for word in (name.tenant, name.namespace, name.topic))
    call = call_region or partial(call_over_http, seconds=PLAN_SECONDS)
    query = _PositionQuery(call, path, Translation(str(name), position, source, target))
    return await query.run(regions[source], regions[target])


class _PositionQuery:
    """Requests about one position."""

    def __init__(self, call_region: CallRegion, path: str, asked: Translation) -> None:
        self._call_region = call_region
        self._path = path
        self._asked = asked

    async def run(self, source: RegionStatus, target: RegionStatus) -> Translation:
        try:
            known = await self._get(source, f"origin/{self._path}/{quote(self._asked.position, safe='')}")
        except NoRegionResponse as problem:
            return await self._by_snapshots_of_target(target, f"{source.name} {problem}")
        bounds = known.get("after") or {}
        if known["origin"] is None:
            return self._result(known, bounds.get(target.name), None, "the origin of the entry is unknown")
        try:
            found = await self._get(target, f"position/{self._path}?{urlencode({'origin': known['origin']})}")
        except NoRegionResponse as problem:
            basis = f"{target.name} {problem}; the bound is a snapshot of {source.name}"
            return self._result(known, bounds.get(target.name), None, basis)
        return self._by_origin(known, found)

    def _by_origin(self, known: Mapping[str, Any], found: Mapping[str, Any]) -> Translation:
        if found["position"] is not None:
            return self._result(known, None, None, "the entry itself", exact=found["position"])
        if not found["complete"]:
            return self._result(known, found["after"], found["upto"], "a part of a long log")
        if found["upto"] is None:
            return self._result(known, found["last"], None, "the entry is not stored there yet")
        return self._result(
            known,
            found["after"],
            found["upto"],
            "entries of the same origin before and after it; the entry itself is not stored there",
        )

    async def _by_snapshots_of_target(self, target: RegionStatus, failure: str) -> Translation:
        asked = self._asked
        query = urlencode({"source": asked.source, "position": asked.position})
        try:
            found = await self._get(target, f"position/{self._path}?{query}")
        except NoRegionResponse as problem:
            raise RuntimeFailure(f"{failure}; {target.name} {problem}") from None
        return self._result({"origin": None}, None, found["upto"], f"{failure}; a snapshot of {target.name}")

    def _result(
        self,
        known: Mapping[str, Any],
        after: str | None,
        upto: str | None,
        basis: str,
        *,
        exact: str | None = None,
    ) -> Translation:
        asked = self._asked
        return Translation(
            asked.topic,
            asked.position,
            asked.source,
            asked.target,
            exact=exact,
            after=after,
            upto=upto,
            origin=known["origin"],
            basis=basis,
        )

    async def _get(self, region: RegionStatus, path: str) -> dict[str, Any]:
        """Return the object in the response. Raises NoRegionResponse, Refused if the region does not know the topic or
        entry, RuntimeFailure for another error."""
        status, raw = await ask_region(self._call_region, region, "GET", f"/geoemu/v1/{path}", None)
        if status in (400, 404, 405):
            raise Refused(f"{region.name}: {reason_in(raw)}")
        return expect_object(region.name, status, raw)


async def translate_in_run(run: Runtime, topic: str, position: str, source: str, target: str) -> Translation:
    """Return the place of an entry in another region of a run. Raises as `translate`."""
    regions = {region.name: region for region in (await run.status()).regions}
    return await translate(regions, topic, position, source, target)
