"""Fail-over plans of a run: composes what the two regions state, and records the plan in the history.

    target ──delivery state──▶ this module ──delivery state──▶ source ──plan──▶ this module

If the source does not respond, the plan is an upper bound from the target's state alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from emulator.errors import Refused, RuntimeFailure
from emulator.model.failover_plans import FailoverPlan, PartitionedPlan
from emulator.model.reasons import Cause
from emulator.model.values import TopicName
from emulator.run.directory import refuse_unknown
from emulator.run.history import Writes
from emulator.run.plan_record import FIELDS
from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.scenarios.actors.specs import logs_of
from emulator.scenarios.await_conditions import ConditionWait
from emulator.scenarios.region_queries import CallRegion, call_over_http

PLAN_SECONDS: Final = 60.0
"""Maximum time for one region to read its log."""


async def plan_failover(
    regions: Mapping[str, RegionStatus],
    topic: str,
    subscription: str,
    source: str,
    target: str,
    call_region: CallRegion | None = None,
    now_ms: Callable[[], float] = lambda: time.time() * 1_000,
) -> FailoverPlan:
    """Return the plan of a fail-over of a subscription's consumers from one region to another.

    `call_region`: calls an admin port; None: over real sockets. `now_ms`: milliseconds since 1970. Raises Refused for
    an unknown region, topic or subscription, and if the regions are the same; RuntimeFailure if the target does not
    respond, or a region returns an error."""
    name = checked_name(topic)
    for region in (source, target):
        refuse_unknown("region", region, regions)
    if source == target:
        raise Refused(f"{source}: a fail-over needs two different regions")
    begun_at_ms, call = int(now_ms()), call_region or partial(call_over_http, seconds=PLAN_SECONDS)
    rest = _Rest(call, regions, str(name), subscription)
    await rest.holds()
    query = _PlanQuery(call, name, subscription)
    state = await query.state_of(regions[target], source)
    plan = await query.plan_of(regions[source], state, begun_at_ms)
    return replace(plan, begun_at_ms=begun_at_ms, quiet=await rest.holds())


class _Rest:
    """Whether nothing changes in all regions without an action of a client."""

    def __init__(
        self, call_region: CallRegion, regions: Mapping[str, RegionStatus], topic: str, subscription: str
    ) -> None:
        async def get_regions() -> tuple[RegionStatus, ...]:
            return tuple(regions.values())

        self._wait = ConditionWait(call_region, get_regions, "quiet", topic, subscription)

    async def holds(self) -> bool:
        """Return whether the condition `quiet` holds, and held with the same entries and acknowledgements at the call
        before. False also if a region does not know the condition."""
        try:
            return await self._wait.run(0)
        except (RuntimeFailure, KeyError, TypeError, ValueError):
            return False


def checked_name(topic: str) -> TopicName:
    """Return the name of a persistent topic. Raises Refused."""
    try:
        name = TopicName.parse(topic)
    except ValueError as problem:
        raise Refused(str(problem)) from None
    if not name.is_persistent:
        raise Refused(f"topic {topic!r}: a non-persistent topic keeps no messages")
    return name


class NoRegionResponse(Exception):
    """A region does not run or did not respond; the message says why."""


class _PlanQuery:
    """Requests about one subscription."""

    def __init__(self, call_region: CallRegion, topic: TopicName, subscription: str) -> None:
        self._call_region = call_region
        self._topic = topic
        self._subscription = subscription
        words = (topic.tenant, topic.namespace, topic.topic, subscription)
        self._path = "/".join(quote(word, safe="") for word in words)

    def state_path(self, source: str) -> str:
        """Return the path and query of the request for the delivery state of the target."""
        return f"/geoemu/v1/delivery-state/{self._path}?source={quote(source, safe='')}"

    @property
    def plan_path(self) -> str:
        """The path of the request for the plan of the source, whose body is the delivery state."""
        return f"/geoemu/v1/failover-plan/{self._path}"

    async def state_of(self, target: RegionStatus, source: str) -> dict[str, Any]:
        """Return the delivery state of the target. Raises RuntimeFailure if it returns none."""
        path = self.state_path(source)
        try:
            status, raw = await ask_region(self._call_region, target, "GET", path, None)
        except NoRegionResponse as problem:
            raise RuntimeFailure(f"{target.name}, which would take over, {problem}") from None
        if status == 404:
            return _state_without_topic(target.name)
        if status == 405:  # a partitioned topic
            raise Refused(f"{target.name}: {reason_in(raw)}")
        return expect_object(target.name, status, raw)

    async def plan_of(self, source: RegionStatus, state: dict[str, Any], at_ms: int) -> FailoverPlan:
        """Return the plan that the source makes from the target's state; if it does not respond, the one that the state
        alone gives. `at_ms`: the present time. Raises Refused, RuntimeFailure."""
        try:
            status, raw = await ask_region(self._call_region, source, "POST", self.plan_path, state)
        except NoRegionResponse as problem:
            if state["last"] is None:
                raise Refused(
                    f"{state['region']} does not have the topic, and {source.name} {problem}"
                ) from None
            return self._plan_of_target_alone(source.name, str(problem), state, at_ms)
        if status in (404, 405):
            raise Refused(f"{source.name}: {reason_in(raw)}")
        try:
            return FailoverPlan.from_json(expect_object(source.name, status, raw))
        except (KeyError, TypeError, ValueError) as problem:
            raise RuntimeFailure(f"{source.name} returned no plan: {problem!r}") from None

    def _plan_of_target_alone(
        self, source: str, failure: str, state: dict[str, Any], at_ms: int
    ) -> FailoverPlan:
        """Return the upper bound that the state of the target gives: everything that it would deliver."""
        reason = Cause.SOURCE_SILENT(region=source, target=state["region"], failure=failure)
        known = (state.get("information") or {}).get(source) or {}
        oldest_ms = state["oldest_publish_ms"]
        return FailoverPlan(
            topic=str(self._topic),
            subscription=self._subscription,
            source=source,
            target=state["region"],
            redelivered_messages=state["messages"],
            exact=False,
            quiet=False,
            complete=state["complete"],
            resume=state["resume"],
            oldest_redelivered_age_ms=None if oldest_ms is None else max(0, at_ms - oldest_ms),
            information_age_ms=known.get("age_ms"),
            wait_for=reason.ends,
            why=(str(reason),),
            causes=(reason.code,),
            target_last=state["last"],
        )


async def ask_region(
    call_region: CallRegion, region: RegionStatus, method: str, path: str, body: Any
) -> tuple[int, Any]:
    """Return status and decoded body of a region's response. Raises NoRegionResponse."""
    if region.state != "running":
        raise NoRegionResponse(f"is {region.state}")
    try:
        status, raw = await call_region(region, method, path, body)
        return status, json.loads(raw) if raw else None
    except (OSError, ValueError) as problem:
        raise NoRegionResponse(f"does not respond: {problem}") from None


def _state_without_topic(region: str) -> dict[str, Any]:
    """Return the delivery state of a region that does not have the topic."""
    return {
        "region": region,
        "exists": False,
        "replicated": False,
        "mark_delete": None,
        "resume": None,
        "last": None,
        "stored": {},
        "unacknowledged": {},
        "partial": [],
        "batch_sizes": {},
        "messages": 0,
        "without_origin": 0,
        "oldest_publish_ms": None,
        "complete": True,
        "exact": True,
    }


def expect_object(region: str, status: int, raw: Any) -> dict[str, Any]:
    """Return the object in a response. Raises RuntimeFailure for an error, or a body that is no object."""
    if status != 200:
        raise RuntimeFailure(f"{region} responded with {status}: {reason_in(raw)}")
    if not isinstance(raw, dict):
        raise RuntimeFailure(f"{region} returned no object: {json.dumps(raw)[:200]}")
    return raw


def reason_in(raw: Any) -> str:
    """Return the reason in the body of an error."""
    return str(raw.get("reason", raw)) if isinstance(raw, dict) else json.dumps(raw)[:200]


# Recording.


def record_plan(history: Writes, plan: FailoverPlan) -> None:
    """Record a plan in a history, or those of all partitions, so that the verdict compares it with what follows. A plan
    without a bound is not recorded: nothing follows from it."""
    if isinstance(plan, PartitionedPlan):
        for one in plan.partitions:
            record_plan(history, one)
    elif plan.complete:
        history.write(
            "failover_plan",
            "fact",
            region=plan.source,
            other_region=plan.target,
            topic=plan.topic,
            subscription=plan.subscription,
            plan={
                name: value for name, value in plan.to_json().items() if name in FIELDS and value is not None
            },
        )


# Of a run, and of partitioned topics.


async def plan_in_run(run: Runtime, topic: str, subscription: str, source: str, target: str) -> FailoverPlan:
    """Return the plan of a fail-over in a run. Raises as `plan_failover`."""
    return await plan_topic(await _regions_of(run), topic, subscription, source, target)


async def plan_requests(
    run: Runtime, topic: str, subscription: str, source: str, target: str
) -> list[tuple[str, str]]:
    """Return the requests of a plan, for each partition of a partitioned topic: the URL of GET in the target region,
    and that of POST in the source region, whose body is the response. Raises Refused for an unknown region or a topic
    that is not persistent, RuntimeFailure for a region that does not run."""
    regions = await _regions_of(run)
    names = await _logs(regions, topic, source, target, partial(call_over_http, seconds=PLAN_SECONDS))
    for one in (regions[source], regions[target]):
        if one.state != "running":
            raise RuntimeFailure(f"{one.name} is {one.state}")
    queries = [_PlanQuery(call_over_http, checked_name(name), subscription) for name in names]
    return [
        (regions[target].admin_url + one.state_path(source), regions[source].admin_url + one.plan_path)
        for one in queries
    ]


async def _regions_of(run: Runtime) -> Mapping[str, RegionStatus]:
    return {region.name: region for region in (await run.status()).regions}


async def plan_topic(
    regions: Mapping[str, RegionStatus],
    topic: str,
    subscription: str,
    source: str,
    target: str,
    call_region: CallRegion | None = None,
) -> FailoverPlan:
    """As `plan_failover`, also of a partitioned topic: then a PartitionedPlan."""
    call = call_region or partial(call_over_http, seconds=PLAN_SECONDS)
    names = await _logs(regions, topic, source, target, call)
    plans = [await plan_failover(regions, one, subscription, source, target, call) for one in names]
    return plans[0] if names == [topic] else PartitionedPlan.of(str(checked_name(topic)), tuple(plans))


async def _logs(
    regions: Mapping[str, RegionStatus], topic: str, source: str, target: str, call: CallRegion
) -> list[str]:
    """Return the names of a topic's partitions; the topic itself if it has none. Raises Refused."""
    name = checked_name(topic)
    for region in (source, target):
        refuse_unknown("region", region, regions)
    counts = [await _partition_count(call, regions[region], name) for region in (source, target)]
    return list(logs_of(str(name), max(counts))) if max(counts) else [topic]


async def _partition_count(call_region: CallRegion, region: RegionStatus, topic: TopicName) -> int:
    """Return the number of partitions of a topic; 0 if it has none, or the region does not state it."""
    words = (topic.tenant, topic.namespace, topic.topic)
    path = f"/admin/v2/persistent/{'/'.join(quote(word, safe='') for word in words)}/partitions"
    try:
        _, raw = await ask_region(call_region, region, "GET", path, None)
    except NoRegionResponse:
        return 0
    count = raw.get("partitions") if isinstance(raw, dict) else None
    return count if type(count) is int and count > 0 else 0
