"""What the page shows of topics and subscriptions: the responses of all regions, those without a response included.

Nothing is loaded for a view: a topic that no client uses is shown as stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from emulator.errors import ConfigurationError
from emulator.model.frame_faults import BETWEEN_REGIONS, COMMANDS
from emulator.runtimes.admin_client import NoHttpResponse, call
from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.runtimes.explain_queries import explain_in_regions, explanations_to_json

NAMES_MAX: Final = 500
"""Maximum number of names that a response lists."""


def list_frames() -> dict[str, list[str]]:
    """Return the names of the commands and markers that pass links between regions, and links of clients: those that a
    fault of single frames can name."""
    return {"between_regions": sorted(BETWEEN_REGIONS), "clients": sorted(COMMANDS)}


async def list_topics(run: Runtime, contains: str) -> dict[str, Any]:
    """Return the topics of all regions, loaded or not, whose short name contains a text; `omitted`: the number of
    further ones."""
    regions = (await run.status()).regions
    found = await asyncio.gather(*(_get(region, "/geoemu/v1/explain/topic") for region in regions))
    known = {name for _, names in found for name in names or ()}
    matching = sorted(name for name in known if contains.lower() in name.lower())
    return {"topics": matching[:NAMES_MAX], "omitted": len(matching[NAMES_MAX:])}


async def show_topic(run: Runtime, topic: str, subscription: str) -> dict[str, Any]:
    """Return `explain`, what `geoemu explain topic` prints as JSON; `subscription`, the same of a subscription; and
    `regions`: the rows of the topic, or of its loaded partitions, or the problem of the region. An explanation is None
    for a name that no region knows. Raises ConfigurationError if no region knows the topic.
    """
    status = await run.status()
    target = f"/geoemu/v1/topics?topic={quote(topic, safe='')}"
    found, explained, of_subscription = await asyncio.gather(
        asyncio.gather(*(_get(region, target) for region in status.regions)),
        _explain(run, "topic", topic),
        _explain(run, "subscription", topic, subscription),
    )
    if isinstance(explained, ConfigurationError) and not any(rows for _, rows in found):
        raise explained
    return {
        "explain": None if isinstance(explained, ConfigurationError) else explained,
        "subscription": None if isinstance(of_subscription, ConfigurationError) else of_subscription,
        "regions": [
            {"region": region.name, "rows": rows or [], "problem": problem}
            for region, (problem, rows) in zip(status.regions, found, strict=True)
        ],
    }


async def _explain(run: Runtime, kind: str, *words: str) -> dict[str, Any] | ConfigurationError:
    try:
        return explanations_to_json(kind, words, await explain_in_regions(run, kind, words, None))
    except ConfigurationError as problem:
        return problem


async def show_explanation(run: Runtime, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what `geoemu explain KIND NAME --json` prints; the words of a name are separated by spaces. Raises
    ConfigurationError for an unknown kind or name."""
    kind, words = query.get("kind", ""), query.get("name", "").split(" ")
    return explanations_to_json(kind, words, await explain_in_regions(run, kind, words, None))


async def _get(region: RegionStatus, target: str) -> tuple[str, Any]:
    """Return why a region did not return a list, or an empty text, and the list."""
    if region.state != "running":
        return f"it is {region.state}", None
    try:
        answer = await call(region, "GET", target)
        content = answer.json()
    except (NoHttpResponse, ValueError) as failure:
        return f"it is {region.state} and does not respond ({failure})", None
    if answer.status != 200 or not isinstance(content, list):
        return str(content.get("reason", content)) if isinstance(
            content, dict
        ) else f"status {answer.status}", None
    return "", content
