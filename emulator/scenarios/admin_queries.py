"""Calls of regions' admin ports by a scenario, and how their responses are checked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from emulator.runtimes.contract import RegionStatus
from emulator.scenarios.format.conditions import AdminCondition
from emulator.scenarios.format.steps import AdminCall
from emulator.scenarios.run_context import CallRegion

ANSWER_CHARACTERS = 200
"""Length of the excerpt of an unexpected response."""


async def unexpected_responses(
    call_region: CallRegion, regions: Mapping[str, RegionStatus], calls: tuple[AdminCall, ...]
) -> list[str]:
    """Make all calls at the same time; a sentence for each that was not answered as it should be."""
    found = await asyncio.gather(*(_unwelcome(call_region, regions[one.region], one) for one in calls))
    return [sentence for sentence in found if sentence is not None]


async def _unwelcome(call_region: CallRegion, region: RegionStatus, call: AdminCall) -> str | None:
    try:
        status, body = await call_region(region, call.method, call.path, call.body)
    except OSError as silence:
        return f"{call.region} did not respond to {call.method} {call.path}: {silence}"
    if status in call.status or (not call.status and 200 <= status < 300):
        return None
    said = body.decode(errors="replace")[:ANSWER_CHARACTERS]
    return f"{call.region} responded to {call.method} {call.path} with {status} {said}".rstrip()


async def unmet_condition(
    call_region: CallRegion, region: RegionStatus, condition: AdminCondition
) -> str | None:
    """None: the region says it."""
    try:
        status, body = await call_region(region, "GET", condition.get, None)
        said = json.loads(body) if status == 200 and body else None
    except (OSError, ValueError) as problem:
        return f"no value from {condition.region}: {problem}"
    if status in (200, 204) and _contains(said, condition.value):
        return None
    return f"{condition.region} returned {status} {json.dumps(said)[:ANSWER_CHARACTERS]}"


def _contains(said: Any, wanted: Any) -> bool:
    if isinstance(said, dict) and isinstance(wanted, dict):
        return all(name in said and said[name] == value for name, value in wanted.items())
    return bool(said == wanted)
