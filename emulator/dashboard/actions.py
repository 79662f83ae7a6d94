"""The requests of the page that change a run: the verbs of the command line, recorded in the same history."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from emulator.net.http_server import HttpError
from emulator.run.directory import refuse_unknown
from emulator.runtimes.contract import Runtime
from emulator.runtimes.faults import LinkFault, link_fault
from emulator.runtimes.operator import begin_fault, change_regions, heal_everything, record_by
from emulator.scenarios.failover_plans import plan_in_run, record_plan

REGION_VERBS: Final = ("kill", "lose", "stop", "start", "restart", "pause", "resume")
LINK_VERBS: Final = ("cut", "hold", "latency", "heal")
LATENCY_MS_MAX: Final = 3_600_000
"""Maximum latency that regions accept."""
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(REGION_VERBS, frozenset({"verb", "region"})),
    **dict.fromkeys(("cut", "hold"), frozenset({"verb", "from", "to", "one_way"})),
    "latency": frozenset({"verb", "from", "to", "one_way", "latency_ms"}),
    "heal": frozenset({"verb", "from", "to"}),
}
"""Verb -> fields of its request."""
_PLAN_FIELDS: Final = ("topic", "subscription", "from", "to")


async def perform(run: Runtime, request: object) -> dict[str, Any]:
    """Execute the change that a request describes, and return what was done. Raises HttpError 400 for an invalid
    request, Refused for unknown names or a change that is not possible, RuntimeFailure if it is not completed."""
    fields = _checked(request)
    try:
        return {"done": await _execute(run, fields)}
    except BlockingIOError as problem:
        raise HttpError(502, f"the change was made and could not be recorded: {problem}") from None


async def plan_failover(run: Runtime, request: object) -> dict[str, Any]:
    """Return and record the plan of a fail-over, as `geoemu failover-plan --json` prints it. Raises HttpError 400 for
    an invalid request, Refused for unknown names, RuntimeFailure if the target does not respond."""
    if not isinstance(request, dict) or set(request) != set(_PLAN_FIELDS):
        raise HttpError(400, f"the body must be a JSON object with {', '.join(_PLAN_FIELDS)}")
    for name, value in request.items():
        if not isinstance(value, str):
            raise HttpError(400, f"{name}: {_shortened(value)} must be a text")
    plan = await plan_in_run(run, *(request[name] for name in _PLAN_FIELDS))
    try:
        await record_by(run, lambda history: record_plan(history, plan))
    except BlockingIOError as problem:
        raise HttpError(502, f"the plan could not be recorded: {problem}") from None
    return plan.to_json()


def _checked(request: object) -> dict[str, Any]:
    """Return the fields of a request. HttpError 400 for anything that is not a valid one."""
    if not isinstance(request, dict):
        raise HttpError(400, "the body must be a JSON object")
    verb = request.get("verb")
    if not isinstance(verb, str) or verb not in _FIELDS:
        raise HttpError(400, f"verb: {_shortened(verb)} is none of {', '.join(_FIELDS)}")
    unknown = [name for name in request if name not in _FIELDS[verb]]
    if unknown:
        raise HttpError(400, f"{_shortened(unknown[0])} is no field of {verb}")
    for name in _required_names(request):
        if not isinstance(request.get(name), str):
            raise HttpError(400, f"{name}: {_shortened(request.get(name))} must be the name of a region")
    if not isinstance(request.get("one_way", False), bool):
        raise HttpError(400, f"one_way: {_shortened(request['one_way'])} must be true or false")
    if verb == "latency":
        _check_latency(request.get("latency_ms"))
    return request


def _required_names(request: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields of a request that must be names; `heal` without a link heals everything."""
    if request["verb"] in REGION_VERBS:
        return ("region",)
    return () if request.keys() == {"verb"} and request["verb"] == "heal" else ("from", "to")


def _check_latency(value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= LATENCY_MS_MAX:  # type: ignore[operator]
        raise HttpError(
            400, f"latency_ms: {_shortened(value)} must be a number of milliseconds, 0 to {LATENCY_MS_MAX}"
        )


def _shortened(value: object) -> str:
    return repr(value)[:100]


async def _execute(run: Runtime, fields: Mapping[str, Any]) -> str:
    """Return what was done, as a sentence."""
    verb = fields["verb"]
    if verb in REGION_VERBS:
        return await _change_region(run, verb, fields["region"])
    if verb == "heal" and "from" not in fields and "to" not in fields:
        await heal_everything(run)
        return "all links are up"
    fault = _link_fault(run.topology.region_names, fields)
    await begin_fault(run, fault)
    ends = " and ".join(dict.fromkeys(fault.pairs[0]))
    return f"{verb} between {ends}{f': {fault.value}' if fault.value else ''}"


async def _change_region(run: Runtime, verb: str, region: str) -> str:
    refuse_unknown("region", region, run.topology.region_names)
    unchanged: list[str] = []
    await change_regions(run, verb, [region], on_unchanged=unchanged.append)
    return unchanged[0] if unchanged else f"{verb} {region}: done"


def _link_fault(regions: Collection[str], fields: Mapping[str, Any]) -> LinkFault:
    """Return the fault of one link. Raises Refused for names that are not in the run."""
    source, target = (fields.get(name, "") for name in ("from", "to"))
    for end in (source, target):
        refuse_unknown("region", end, regions)
    values = {name: fields[name] for name in ("latency_ms",) if name in fields}
    return link_fault(fields["verb"], regions, source, target, one_way=fields.get("one_way", False), **values)
