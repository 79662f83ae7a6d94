"""Completion in the shell: regions, clusters, topics, subscriptions and scenarios.

A shell waits for the answer while a person types. So names of regions are read from the run record, names of topics are
requested from all regions at once within QUERY_SECONDS, and nothing here imports what it takes long to import.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import typer

import emulator
from emulator.errors import GeoemuError
from emulator.run.directory import find_run
from emulator.run.record import RegionRecord

QUERY_SECONDS: Final = 0.15
"""Time within which regions must respond; names of those that do not are not offered."""
SHORT: Final = ("persistent://public/default/", "persistent://")
"""Prefixes that a topic is offered without: a shell takes the colon as the end of a word."""
SCENARIOS: Final = Path(emulator.__file__).parent / "scenarios"
BUILT_IN: Final = "built-in"


def complete_region(context: typer.Context, incomplete: str) -> list[str]:
    """Return the regions of the run in `--run-dir` that match, without those that were typed already."""
    typed = {
        name
        for value in context.params.values()
        for name in (value if isinstance(value, list | tuple) else [value])
    }
    return [name for name in _regions(context) if name.startswith(incomplete) and name not in typed]


def complete_cluster(context: typer.Context, incomplete: str) -> list[str]:
    """Return the clusters of the run in `--run-dir` that match."""
    clusters = {region.cluster for region in _regions(context).values()}
    return sorted(cluster for cluster in clusters if cluster.startswith(incomplete))


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that a region of the run in `--run-dir` has."""
    return complete_object(context, "topic", (), incomplete)


def complete_subscription(context: typer.Context, incomplete: str) -> list[str]:
    """Return the subscriptions of the topic that was typed before."""
    return complete_object(context, "subscription", (str(context.params.get("topic")),), incomplete)


def complete_object(context: typer.Context, kind: str, typed: Sequence[str], incomplete: str) -> list[str]:
    """Return the words that may follow `typed` in the name of an object of this kind that a region of the run knows."""
    at, before = len(typed), [_short(word) for word in typed]
    names = asyncio.run(_names(_regions(context).values(), kind))
    fitting = {
        name[at] for name in names if len(name) > at and [_short(word) for word in name[:at]] == before
    }
    offered = (_short(word) if "://" not in incomplete else word for word in fitting)
    return sorted({word for word in offered if word.startswith(incomplete)})


def complete_scenario(incomplete: str) -> list[str]:
    """Return the shipped scenarios, YAML files and folders that match."""
    return [*(name for name in shipped() if name.startswith(incomplete)), *_files(incomplete)]


def complete_workload(incomplete: str) -> list[str]:
    """Return what is a workload of random faults: a scenario, or the built-in one."""
    return [*([BUILT_IN] if BUILT_IN.startswith(incomplete) else []), *complete_scenario(incomplete)]


def shipped() -> list[str]:
    """Return the names of the scenarios that geoemu includes."""
    return sorted(file.stem for file in SCENARIOS.glob("*.yaml"))


def _files(incomplete: str) -> Iterator[str]:
    """Yield the YAML files and folders that match. Hidden ones are offered only if their dot was typed."""
    folder, slash, start = incomplete.rpartition("/")
    where = Path(f"{folder}{slash}" or ".").expanduser()
    for path in sorted(where.iterdir()) if where.is_dir() else ():
        is_offered = path.is_dir() or path.suffix in (".yaml", ".yml")
        is_hidden = path.name.startswith(".") and not start
        if is_offered and not is_hidden and path.name.startswith(start):
            yield f"{folder}{slash}{path.name}{'/' if path.is_dir() else ''}"


def _regions(context: typer.Context) -> dict[str, RegionRecord]:
    """Return the regions of the run in `--run-dir`; none if there is no run."""
    try:
        return find_run(context.params.get("run_dir")).read().regions
    except GeoemuError:
        return {}


async def _names(regions: Iterable[RegionRecord], kind: str) -> list[list[str]]:
    """Return the names of all objects of a kind, in words, of the regions that respond in time."""
    from emulator.runtimes.admin_client import NoHttpResponse, call

    async def query(region: RegionRecord) -> list[list[str]]:
        target = f"/geoemu/v1/explain/{quote(kind, safe='')}"
        try:
            answer = await call(region, "GET", target, seconds=QUERY_SECONDS)
        except NoHttpResponse:
            return []
        return [name.split(" ") for name in answer.json()] if answer.status == 200 else []

    queries = [asyncio.ensure_future(query(region)) for region in regions]
    if not queries:
        return []
    done, late = await asyncio.wait(queries, timeout=QUERY_SECONDS)
    for one in late:
        one.cancel()
    return [name for one in done for name in one.result()]


def _short(word: str) -> str:
    for prefix in SHORT:
        if word.startswith(prefix):
            return word.removeprefix(prefix)
    return word
