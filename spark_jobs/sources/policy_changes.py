"""Policy changes during a run: `regions/<name>/metadata.jsonl`, which change each region received, and when.

A message is checked against the policy in force when it was published. Region a must replicate it to region b if both
were replication clusters of its namespace then, in the view of all regions, and remained so until the end. A message
that had not arrived when a region was removed is not required any more; one published before a region was added never
was. The clusters of a topic, while it sets its own, replace those of its namespace.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

from emulator.model.stored_keys import (
    BROKER_POLICIES_PATH,
    NamespacePath,
    RegionTopicPoliciesPath,
    StoredKey,
    TopicPoliciesPath,
    parse_path,
)
from emulator.model.values import TopicName
from spark_jobs.sources.lifetimes import KEPT, Lifetime, lifetime_over

DELIVERIES_FILE = "metadata.jsonl"
CLUSTERS = "replication_clusters"
NEVER_MS = 1e300
SETTLING_MS = 1_000.0
"""Time between a region's receipt of a change and its effect; a publish meanwhile is checked against neither policy."""


@dataclass(frozen=True, slots=True)
class Owed:
    """Between which regions, and since when."""

    regions: frozenset[str]
    """All that were among the replication clusters at any time."""
    since_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(origin, other region) -> messages published from then on must be replicated. Pairs without a limit are
    absent."""


@dataclass(frozen=True, slots=True)
class PolicyHistory:
    """Of one namespace."""

    owed: Owed
    deduplication: bool
    """All the time."""
    own_topics: Mapping[str, Owed] = field(default_factory=dict)
    """Those that had replication clusters of their own at some time."""
    lifetime: Lifetime = KEPT
    own_lifetimes: Mapping[str, Lifetime] = field(default_factory=dict)
    """Of topics whose own policies trim or expire messages."""


Told = tuple[float, Mapping[str, Any]]
"""When a region received a change, and its policies; none where the place was deleted."""


def read_changes(run: Path) -> tuple[dict[str, PolicyHistory], list[tuple[str, str]]]:
    """By namespace. Then (region, sentence) for files that cannot be read."""
    told: dict[str, list[tuple[StoredKey, Told]]] = {}
    """By region, in the order of revisions."""
    unreadable: list[tuple[str, str]] = []
    for file in sorted((run / "regions").glob(f"*/{DELIVERIES_FILE}")):
        region = file.parent.name
        try:
            told[region] = list(_read(file))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            unreadable.append((region, f"regions/{region}/{DELIVERIES_FILE} cannot be read: {problem!r}"))
    keys = {key for of_region in told.values() for key, _ in of_region}
    names = sorted(key.name for key in keys if isinstance(key, NamespacePath))
    return {name: _changes(told, name) for name in names}, unreadable


def _read(file: Path) -> Iterable[tuple[StoredKey, Told]]:
    """The changes that a region received, by revision, each at its first receipt: a restarted region receives
    everything again."""
    first: dict[int, tuple[StoredKey, Told]] = {}
    text = file.read_text()
    # The region did not act upon a line that is cut off.
    for line in text[: text.rfind("\n") + 1].splitlines():
        said = json.loads(line)
        if "away" in said:
            continue  # of the store, not of a policy
        key = parse_path(said["path"])
        if key is not None and said["revision"] not in first:
            value = {} if said["value"] is None else json.loads(said["value"])
            # A path of another kind may have a list.
            policies = value.get("policies", {}) if isinstance(value, dict) else {}
            first[said["revision"]] = key, (float(said["at_ms"]), policies)
    return [first[revision] for revision in sorted(first)]


def _changes(told: Mapping[str, Sequence[tuple[StoredKey, Told]]], name: str) -> PolicyHistory:
    by_region = [[one for key, one in of_region if key == NamespacePath(name)] for of_region in told.values()]
    by_region = [of_region for of_region in by_region if of_region]
    topics = {
        key.topic
        for of_region in told.values()
        for key, (_, policies) in of_region
        if isinstance(key, TopicPoliciesPath | RegionTopicPoliciesPath)
        and CLUSTERS in policies
        and TopicName.parse(key.topic).full_namespace == name
    }
    return PolicyHistory(
        _owed(by_region),
        all(
            bool(policies.get("deduplication", False)) for of_region in by_region for _, policies in of_region
        ),
        {
            topic: _owed([_of_topic(of_region, region, name, topic) for region, of_region in told.items()])
            for topic in sorted(topics)
        },
        _lifetime(told.values(), {NamespacePath(name)}).and_(
            _lifetime(told.values(), {BROKER_POLICIES_PATH})
        ),
        _own_lifetimes(told.values(), name),
    )


def _lifetime(told: Iterable[Iterable[tuple[StoredKey, Told]]], places: Collection[StoredKey]) -> Lifetime:
    return lifetime_over(policies for of_region in told for key, (_, policies) in of_region if key in places)


def _own_lifetimes(told: Collection[Iterable[tuple[StoredKey, Told]]], namespace: str) -> dict[str, Lifetime]:
    """Policies of a topic in all regions of a cluster, and those for one region alone."""
    places: dict[str, set[StoredKey]] = {}
    for of_region in told:
        for key, _ in of_region:
            if not isinstance(key, TopicPoliciesPath | RegionTopicPoliciesPath):
                continue
            if TopicName.parse(key.topic).full_namespace == namespace:
                places.setdefault(key.topic, set()).add(key)
    found = {topic: _lifetime(told, keys) for topic, keys in places.items()}
    return {topic: one for topic, one in sorted(found.items()) if one != KEPT}


def _of_topic(
    of_region: Iterable[tuple[StoredKey, Told]], region: str, namespace: str, topic: str
) -> list[Told]:
    """The changes of a region that affect one topic."""
    told: list[Told] = []
    of_namespace: Mapping[str, Any] = {}
    own: Mapping[str, Any] = {}
    here: Mapping[str, Any] = {}
    """What was set for this region alone; it outranks the others."""
    for key, (at_ms, policies) in of_region:
        if key == NamespacePath(namespace):
            of_namespace = policies
        elif key == TopicPoliciesPath(topic):
            own = policies
        elif key == RegionTopicPoliciesPath(region, topic):
            here = policies
        else:
            continue
        told.append((at_ms, next((one for one in (here, own) if CLUSTERS in one), of_namespace)))
    return told


def _owed(told: Collection[Sequence[Told]]) -> Owed:
    """`told`: of each region."""
    told = [of_region for of_region in told if of_region]
    ever = {name for of_region in told for _, policies in of_region for name in policies.get(CLUSTERS, ())}
    member_since = {name: max(_member_since(of_region, name) for of_region in told) for name in ever}
    since: dict[tuple[str, str], float] = {}
    for origin, other in permutations(sorted(ever), 2):
        # A region that is not among them replicates to none.
        at_ms = max(member_since[origin], member_since[other])
        if at_ms > 0:
            since[origin, other] = at_ms if at_ms == NEVER_MS else at_ms + SETTLING_MS
    return Owed(frozenset(ever), since)


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
