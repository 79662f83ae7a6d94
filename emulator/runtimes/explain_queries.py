"""Explanations of objects in all regions of a run, and what running regions report of replicated subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from emulator.errors import ConfigurationError, Problem
from emulator.model.explanations import KINDS, Explanation, with_conflicts
from emulator.model.suggestions import nearest
from emulator.runtimes.admin_client import NoHttpResponse, call
from emulator.runtimes.contract import RegionStatus, RunStatus, Runtime
from emulator.runtimes.operator import LOST


@dataclass(frozen=True, slots=True)
class RegionResponse:
    region: str
    explanation: Explanation | None
    problem: str = ""
    """Why there is no explanation."""
    is_unknown: bool = False
    """The region responded that it does not know the name."""


async def explain_in_regions(
    run: Runtime, kind: str, words: Sequence[str], only: str | None
) -> list[RegionResponse]:
    """Return the explanations of every region, or of `only` one. Raises ConfigurationError if the kind or the region is
    unknown, or if no region knows the name."""
    check_object_name(kind, words)
    status = await run.status()
    if only is not None:
        run.topology.region(only)
    queried = [region for region in status.regions if kind == "subscription" or only in (None, region.name)]
    explained = await asyncio.gather(*(_explain_in(region, kind, " ".join(words)) for region in queried))
    responses = [one for one in _with_conflicts(explained) if only in (None, one.region)]
    unknown = [one for one in responses if one.is_unknown]
    if unknown and not any(one.explanation for one in responses):
        raise _refused(" ".join(words), "; ".join(_merge_equal_problems(unknown)))
    return [one for one in responses if _is_about(kind, words, one)]


def _is_about(kind: str, words: Sequence[str], response: RegionResponse) -> bool:
    """Return whether to show a response: for a link those of its source and, if it knows the link, its target; for a
    replication not that of a target that does not know it."""
    if kind == "link":
        return response.region == words[0] or (response.region == words[1] and not response.is_unknown)
    return kind != "replication" or response.region != words[1] or not response.is_unknown


def _with_conflicts(responses: Sequence[RegionResponse]) -> list[RegionResponse]:
    explained = with_conflicts([one.explanation for one in responses if one.explanation is not None])
    by_region = {one.region: one for one in explained}
    return [replace(one, explanation=by_region.get(one.region)) for one in responses]


def _merge_equal_problems(refusals: Sequence[RegionResponse]) -> list[str]:
    """Return the problems of regions, equal ones of several regions once."""
    by_words: dict[str, list[RegionResponse]] = {}
    for one in refusals:
        by_words.setdefault(one.problem.removeprefix(f"region {one.region} has "), []).append(one)
    return [
        several[0].problem
        if len(several) == 1
        else f"regions {', '.join(one.region for one in several)} have {words}"
        for words, several in by_words.items()
    ]


def check_object_name(kind: str, words: Sequence[str]) -> None:
    """Raise ConfigurationError if the kind is unknown or the form of the name is invalid."""
    if kind not in KINDS:
        raise _refused(kind, f"is not a kind; there are {', '.join(KINDS)}", nearest(kind, KINDS))
    shape = KINDS[kind].words
    if len(words) != len(shape) or not all(words):
        raise _refused(" ".join(words), f"the name of a {kind} is {' '.join(shape)}")


def _refused(value: str, rule: str, suggestion: str | None = None) -> ConfigurationError:
    return ConfigurationError([Problem("explain", None, "", value, rule, suggestion)])


def explain_target(kind: str, name: str) -> str:
    """Return the target of the request for an explanation."""
    return f"/geoemu/v1/explain/{quote(kind, safe='')}/{quote(name, safe='')}"


async def _explain_in(region: RegionStatus, kind: str, name: str) -> RegionResponse:
    try:
        answer = await call(region, "GET", explain_target(kind, name))
    except NoHttpResponse as failure:
        return RegionResponse(region.name, None, _describe_no_response(region, str(failure)))
    raw = answer.json()
    if answer.status != 200:
        return RegionResponse(region.name, None, raw["reason"], is_unknown=answer.status == 404)
    return RegionResponse(region.name, Explanation.from_json(raw))


def _describe_no_response(region: RegionStatus, failure: str) -> str:
    if region.state == "lost":
        return f"it is {LOST}"
    return f"it is {region.state} and does not respond ({failure})"


CONFLICTS = "/geoemu/v1/replication-conflicts"
BLOCKED = "/geoemu/v1/blocked-snapshots"
LAG = "/geoemu/v1/replication-lag"


async def replication_conflicts(status: RunStatus) -> list[dict[str, str]]:
    """Return the subscriptions whose position one region sends and another one does not apply, as the running regions
    report them."""
    return await _rows_of(status, CONFLICTS)


async def blocked_snapshots(status: RunStatus) -> list[dict[str, Any]]:
    """Return the regions that prevent snapshots of replicated subscriptions, as the running regions report them."""
    return await _rows_of(status, BLOCKED)


async def replication_lag(status: RunStatus) -> list[dict[str, Any]]:
    """Return what regions lack of the messages of others, as the running regions that send them report it."""
    return await _rows_of(status, LAG)


async def _rows_of(status: RunStatus, target: str) -> list[dict[str, Any]]:
    """Return the rows that all running regions return; none for a region without a response."""
    running = [region for region in status.regions if region.state == "running"]
    found = await asyncio.gather(*(_rows_in(region, target) for region in running))
    return [row for rows in found for row in rows]


async def _rows_in(region: RegionStatus, target: str) -> list[dict[str, Any]]:
    try:
        answer = await call(region, "GET", target)
    except NoHttpResponse:
        return []
    return list(answer.json()) if answer.status == 200 else []


def explanations_to_json(
    kind: str, words: Sequence[str], responses: Sequence[RegionResponse]
) -> dict[str, Any]:
    """Return the responses as JSON values. Other programs rely on the keys."""
    return {
        "kind": kind,
        "name": " ".join(words),
        "regions": [
            {"region": one.region, "problem": one.problem}
            if one.explanation is None
            else one.explanation.to_json()
            for one in responses
        ],
    }
