"""Outages of a cluster's configuration store, as its regions noticed them: `regions/<name>/metadata.jsonl`.

A region whose store is unavailable goes on with its mirror, so nothing else in a run shows the outage. The next line of
the region ends it: a region receives changes only from a store that responds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from spark_jobs.frames.faults import Interval
from spark_jobs.sources.policy_changes import DELIVERIES_FILE


def store_absences(
    run: Path, clusters: Mapping[str, str], start_ms: float, end_s: float
) -> tuple[Interval, ...]:
    """Return each time that any region of a cluster missed its store, by start. `clusters`: the cluster of each region.
    Unreadable lines are skipped; the checks that use the frame report them."""
    stretches: dict[str, list[tuple[float, float | None]]] = {}
    for file in sorted((run / "regions").glob(f"*/{DELIVERIES_FILE}")):
        region = file.parent.name
        stretches.setdefault(clusters.get(region, region), []).extend(_noticed(file))
    found = []
    for cluster, of_cluster in stretches.items():
        for from_ms, to_ms in _joined(of_cluster):
            from_s = round((from_ms - start_ms) / 1000, 3)
            to_s = end_s if to_ms is None else round((to_ms - start_ms) / 1000, 3)
            if to_s > max(from_s, 0):
                found.append(Interval(max(from_s, 0.0), to_s, "away", cluster, ended=to_ms is not None))
    return tuple(sorted(found, key=lambda one: (one.from_s, one.region)))


def _noticed(file: Path) -> Iterable[tuple[float, float | None]]:
    """Yield start and end of each time that this region missed its store; None: until the end of the run."""
    since: float | None = None
    for line in _lines(file):
        if line.get("away"):
            since = line["at_ms"] if since is None else since
        elif since is not None:
            yield since, line["at_ms"]
            since = None
    if since is not None:
        yield since, None


def _lines(file: Path) -> list[dict[str, float]]:
    try:
        text = file.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    except (OSError, ValueError):
        return []


def _joined(stretches: Iterable[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Stretches that overlap are one."""
    joined: list[tuple[float, float | None]] = []
    for from_ms, to_ms in sorted(stretches, key=lambda one: one[0]):
        last = joined[-1] if joined else None
        if last is None or (last[1] is not None and last[1] < from_ms):
            joined.append((from_ms, to_ms))
        elif last[1] is not None and (to_ms is None or to_ms > last[1]):
            joined[-1] = (last[0], to_ms)
    return joined
