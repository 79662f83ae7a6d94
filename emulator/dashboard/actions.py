"""The requests of the page that change a run: the verbs of the command line, recorded in the same history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from emulator.dashboard.requests import (
    FRAME_VERBS,
    REGION_VERBS,
    checked_change,
    fault_of_link,
    machine_fault,
    shortened,
)
from emulator.net.http_server import HttpError
from emulator.run.directory import refuse_unknown
from emulator.runtimes.contract import Runtime
from emulator.runtimes.operator import begin_fault, change_regions, heal_everything, record_by
from emulator.scenarios.failover_plans import plan_in_run, record_plan

_PLAN_FIELDS: Final = ("topic", "subscription", "from", "to")


async def perform(run: Runtime, request: object) -> dict[str, Any]:
    """Execute the change that a request describes, and return what was done. Raises HttpError 400 for an invalid
    request, Refused for unknown names or a change that is not possible, RuntimeFailure if it is not completed."""
    fields = checked_change(request)
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
            raise HttpError(400, f"{name}: {shortened(value)} must be a text")
    plan = await plan_in_run(run, *(request[name] for name in _PLAN_FIELDS))
    try:
        await record_by(run, lambda history: record_plan(history, plan))
    except BlockingIOError as problem:
        raise HttpError(502, f"the plan could not be recorded: {problem}") from None
    return plan.to_json()


async def _execute(run: Runtime, fields: Mapping[str, Any]) -> str:
    """Return what was done, as a sentence."""
    verb, regions = fields["verb"], run.topology.region_names
    if verb in REGION_VERBS:
        return await _change_region(run, verb, fields["region"])
    if verb in ("skew", "disk"):
        machine = machine_fault(regions, fields)
        await begin_fault(run, machine)
        return str(machine)
    if verb == "heal" and "from" not in fields:
        await heal_everything(run)
        return "all links are up"
    fault = fault_of_link(regions, fields)
    await begin_fault(run, fault)
    (source, target), value = fault.pairs[0], f": {fault.value}" if fault.value else ""
    if verb in FRAME_VERBS:
        return f"{verb} from {source} to {target}{value}"
    return f"{verb} between {source} and {target}{value}"


async def _change_region(run: Runtime, verb: str, region: str) -> str:
    refuse_unknown("region", region, run.topology.region_names)
    unchanged: list[str] = []
    await change_regions(run, verb, [region], on_unchanged=unchanged.append)
    return unchanged[0] if unchanged else f"{verb} {region}: done"
