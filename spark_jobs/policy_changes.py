"""Policies that were changed while a run went on: `regions/<name>/metadata.jsonl`, what each region was told and when.

A message is judged by what held when it was published. Region a owes it to region b if both were among the replication
clusters of its namespace then, as far as all regions knew, and stayed there until the end: what had not arrived when
a region was taken out is owed no more, and what was published before one was added never was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

from emulator.model import TopicName
from emulator.stored_keys import NamespacePath, StoredKey, TopicPoliciesPath, parse_path

DELIVERIES_FILE = "metadata.jsonl"
CLUSTERS = "replication_clusters"
NEVER_MS = 1e300
SETTLING_MS = 1_000.0
"""Between a region's being told of a change and its acting upon it; a publish meanwhile is judged by neither."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Of one namespace."""

    regions: frozenset[str]
    """All that were among its replication clusters at any time."""
    deduplication: bool
    """All the time."""
    owed_since_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(origin, other region) -> only what was asked for from then on is owed. Pairs of which all is owed are not
    there."""
    own_topics: frozenset[str] = frozenset()
    """Those that had replication clusters of their own at some time. What they owe to others is not judged."""


Told = tuple[float, Mapping[str, Any]]
"""When a region was told, and what; nothing where the place was deleted."""


def read_changes(run: Path) -> tuple[dict[str, Changes], list[tuple[str, str]]]:
    """By namespace. Then (region, sentence) for files that cannot be read."""
    told: dict[str, dict[str, list[Told]]] = {}
    own_topics: dict[str, set[str]] = {}
    unreadable: list[tuple[str, str]] = []
    for file in sorted((run / "regions").glob(f"*/{DELIVERIES_FILE}")):
        region = file.parent.name
        try:
            of_region = list(_read(file))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            unreadable.append((region, f"regions/{region}/{DELIVERIES_FILE} cannot be read: {problem!r}"))
            continue
        for key, one in of_region:
            if isinstance(key, NamespacePath):
                told.setdefault(key.name, {}).setdefault(region, []).append(one)
            elif isinstance(key, TopicPoliciesPath) and CLUSTERS in one[1]:
                own_topics.setdefault(TopicName.parse(key.topic).full_namespace, set()).add(key.topic)
    return {name: _changes(told[name], own_topics.get(name, ())) for name in sorted(told)}, unreadable


def _read(file: Path) -> Iterable[tuple[StoredKey, Told]]:
    """What a region was told, in the order of revisions, each when it was told first: one that starts again is told
    everything again."""
    first: dict[int, tuple[StoredKey, Told]] = {}
    text = file.read_text()
    # A line that is cut off tells of nothing that the region acted upon.
    for line in text[: text.rfind("\n") + 1].splitlines():
        said = json.loads(line)
        key = parse_path(said["path"])
        if key is not None and said["revision"] not in first:
            value = {} if said["value"] is None else json.loads(said["value"]).get("policies", {})
            first[said["revision"]] = key, (float(said["at_ms"]), value)
    return [first[revision] for revision in sorted(first)]


def _changes(told: Mapping[str, list[Told]], own_topics: Iterable[str]) -> Changes:
    """`told`: by region."""
    said = [policies for of_region in told.values() for _, policies in of_region]
    ever = {name for policies in said for name in policies.get(CLUSTERS, ())}
    member_since = {name: max(_member_since(of_region, name) for of_region in told.values()) for name in ever}
    since: dict[tuple[str, str], float] = {}
    for origin, other in permutations(sorted(ever), 2):
        # A region that is not among them itself sends nobody anything.
        at_ms = max(member_since[origin], member_since[other])
        if at_ms > 0:
            since[origin, other] = at_ms if at_ms == NEVER_MS else at_ms + SETTLING_MS
    deduplication = all(bool(policies.get("deduplication", False)) for policies in said)
    return Changes(frozenset(ever), deduplication, since, frozenset(own_topics))


def _member_since(told: Iterable[Told], region: str) -> float:
    """0: from the beginning. NEVER_MS: it was not there in the end."""
    since, is_first = NEVER_MS, True
    for at_ms, policies in told:
        if region not in policies.get(CLUSTERS, ()):
            since = NEVER_MS
        elif since == NEVER_MS:
            since = 0.0 if is_first else at_ms
        is_first = False
    return since
