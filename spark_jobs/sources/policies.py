"""Policies that decide what may be expected of messages, as the topology declares them and as regions received changes
to them (`regions/<name>/metadata.jsonl`: which change each region received, and when).

*Replication.* A message is checked against the policy in force when it was published. Region a must replicate it to
region b if both were replication clusters of its namespace then, in the view of all regions, and remained so until the
end. A message that had not arrived when a region was removed is not required any more; one published before a region
was added never was. The clusters of a topic, while it sets its own, replace those of its namespace.

*Lifetime.* Trimmed messages are neither lost nor a proof, and expired ones need not be delivered. Every policy that was
in force at any time in any region counts, even if it was removed later: regions apply a change at different times.
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

DELIVERIES_FILE = "metadata.jsonl"
CLUSTERS = "replication_clusters"
EVICTION = "consumer_backlog_eviction"
NEVER_MS = 1e300
SETTLING_MS = 1_000.0
"""Time between a region's receipt of a change and its effect; a publish meanwhile is checked against neither policy."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Of a namespace's messages, or of a topic's."""

    trims: bool = False
    """Messages that every subscription has acknowledged may be trimmed."""
    expires_after_ms: float = NEVER_MS
    """Age at which a message may expire before its delivery; 0: at any age."""

    @property
    def expires(self) -> bool:
        return self.expires_after_ms < NEVER_MS

    def and_(self, other: Lifetime) -> Lifetime:
        """Combine two lifetimes: allowed is what either allows."""
        return Lifetime(self.trims or other.trims, min(self.expires_after_ms, other.expires_after_ms))


KEPT = Lifetime()


def lifetime_of(policies: Mapping[str, Any]) -> Lifetime:
    """Parse the policies of one namespace or topic. Raises KeyError, TypeError or ValueError for invalid ones."""
    retention = policies.get("retention")
    trims = retention is not None and (
        int(retention["retentionTimeInMinutes"]) >= 0 or int(retention["retentionSizeInMB"]) >= 0
    )
    ends = [NEVER_MS]
    if ttl_seconds := int(policies.get("message_ttl") or 0):
        ends.append(ttl_seconds * 1000.0)
    for kind, quota in (policies.get("backlog_quotas") or {}).items():
        if quota["policy"] == EVICTION:
            ends.append(int(quota["limitTime"]) * 1000.0 if kind == "message_age" else 0.0)
    return Lifetime(trims, min(ends))


@dataclass(frozen=True, slots=True)
class ReplicationPolicy:
    """Between which regions, and since when."""

    regions: frozenset[str]
    """All that were among the replication clusters at any time."""
    since_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(origin, other region) -> messages published from then on must be replicated. Pairs without a limit are
    absent."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The policies of a namespace that change what may be expected."""

    regions: tuple[str, ...]
    """Regions it is replicated between."""
    deduplication: bool
    """All the time."""
    lifetime: Lifetime = KEPT
    """What its policies trimmed or expired at any time."""
    own_lifetimes: Mapping[str, Lifetime] = field(default_factory=dict)
    """Of topics whose own policies trim or expire messages."""
    replicated_since_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(origin, other region) -> messages published from then on must be replicated; for other pairs all."""
    own_topics: Mapping[str, ReplicationPolicy] = field(default_factory=dict)
    """Topics that had replication clusters of their own at some time."""


Received = tuple[float, Mapping[str, Any]]
"""When a region received a change, and its policies; none where the place was deleted."""


def read_namespaces(
    run: Path, declared: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, Namespace], list[str]]:
    """By name, as the topology declares them or as the regions received them; then a sentence for each file that cannot
    be read."""
    namespaces = {
        entry["name"]: Namespace(
            tuple(entry["regions"]), bool(entry["deduplication"]), lifetime=_declared_lifetime(entry)
        )
        for entry in declared
    }
    received: dict[str, list[tuple[StoredKey, Received]]] = {}
    """By region, in the order of revisions."""
    unreadable: list[str] = []
    for file in sorted((run / "regions").glob(f"*/{DELIVERIES_FILE}")):
        region = file.parent.name
        try:
            received[region] = list(_read(file))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            unreadable.append(f"regions/{region}/{DELIVERIES_FILE} cannot be read: {problem!r}")
    keys = {key for of_region in received.values() for key, _ in of_region}
    for name in sorted(key.name for key in keys if isinstance(key, NamespacePath)):
        before = namespaces[name].regions if name in namespaces else ()
        namespaces[name] = _changed(received, name, before)
    return namespaces, unreadable


def _declared_lifetime(entry: Mapping[str, Any]) -> Lifetime:
    ttl_seconds = entry.get("message_ttl_seconds", 0)
    return Lifetime(
        entry.get("retention_minutes", -1) >= 0 or entry.get("retention_megabytes", -1) >= 0,
        ttl_seconds * 1000.0 if ttl_seconds else NEVER_MS,
    )


def _read(file: Path) -> Iterable[tuple[StoredKey, Received]]:
    """The changes that a region received, by revision, each at its first receipt: a restarted region receives
    everything again."""
    first: dict[int, tuple[StoredKey, Received]] = {}
    text = file.read_text()
    # The region did not act upon a line that is cut off.
    for line in text[: text.rfind("\n") + 1].splitlines():
        change = json.loads(line)
        if "away" in change:
            continue  # of the store, not of a policy
        key = parse_path(change["path"])
        if key is not None and change["revision"] not in first:
            value = {} if change["value"] is None else json.loads(change["value"])
            # A path of another kind may have a list.
            policies = value.get("policies", {}) if isinstance(value, dict) else {}
            first[change["revision"]] = key, (float(change["at_ms"]), policies)
    return [first[revision] for revision in sorted(first)]


def _changed(
    received: Mapping[str, Sequence[tuple[StoredKey, Received]]], name: str, before: tuple[str, ...]
) -> Namespace:
    """`before`: the regions that the topology declares."""
    by_region = [
        [one for key, one in of_region if key == NamespacePath(name)] for of_region in received.values()
    ]
    by_region = [of_region for of_region in by_region if of_region]
    replication = _replication(by_region)
    places: dict[str, set[StoredKey]] = {}
    """By topic of the namespace, where policies of its own were set: in all regions of a cluster, or in one."""
    own_topics: set[str] = set()
    for of_region in received.values():
        for key, (_, policies) in of_region:
            if not isinstance(key, TopicPoliciesPath | RegionTopicPoliciesPath):
                continue
            if TopicName.parse(key.topic).full_namespace == name:
                places.setdefault(key.topic, set()).add(key)
                if CLUSTERS in policies:
                    own_topics.add(key.topic)
    lifetimes = {topic: _lifetime(received.values(), keys) for topic, keys in sorted(places.items())}
    return Namespace(
        (*before, *sorted(replication.regions - set(before))),
        all(
            bool(policies.get("deduplication", False)) for of_region in by_region for _, policies in of_region
        ),
        _lifetime(received.values(), {NamespacePath(name), BROKER_POLICIES_PATH}),
        {topic: lifetime for topic, lifetime in lifetimes.items() if lifetime != KEPT},
        replication.since_ms,
        {
            topic: _replication(
                [_of_topic(of_region, region, name, topic) for region, of_region in received.items()]
            )
            for topic in sorted(own_topics)
        },
    )


def _lifetime(
    received: Iterable[Iterable[tuple[StoredKey, Received]]], places: Collection[StoredKey]
) -> Lifetime:
    """Combine the policies that these places ever had."""
    found = KEPT
    for of_region in received:
        for key, (_, policies) in of_region:
            if key in places:
                found = found.and_(lifetime_of(policies))
    return found


def _of_topic(
    of_region: Iterable[tuple[StoredKey, Received]], region: str, namespace: str, topic: str
) -> list[Received]:
    """The changes of a region that affect one topic."""
    found: list[Received] = []
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
        found.append((at_ms, next((one for one in (here, own) if CLUSTERS in one), of_namespace)))
    return found


def _replication(received: Collection[Sequence[Received]]) -> ReplicationPolicy:
    """`received`: of each region."""
    received = [of_region for of_region in received if of_region]
    ever = {
        name for of_region in received for _, policies in of_region for name in policies.get(CLUSTERS, ())
    }
    member_since = {name: max(_member_since(of_region, name) for of_region in received) for name in ever}
    since: dict[tuple[str, str], float] = {}
    for origin, other in permutations(sorted(ever), 2):
        # A region that is not among them replicates to none.
        at_ms = max(member_since[origin], member_since[other])
        if at_ms > 0:
            since[origin, other] = at_ms if at_ms == NEVER_MS else at_ms + SETTLING_MS
    return ReplicationPolicy(frozenset(ever), since)


def _member_since(received: Iterable[Received], region: str) -> float:
    """0: from the beginning. NEVER_MS: it was not there in the end."""
    since, is_first = NEVER_MS, True
    for at_ms, policies in received:
        if region not in policies.get(CLUSTERS, ()):
            since = NEVER_MS
        elif since == NEVER_MS:
            since = 0.0 if is_first else at_ms
        is_first = False
    return since
