"""Policies that decide which copies and deliveries are required: those that the topology declares, and the changes that
each region received, with their times (`regions/<name>/metadata.jsonl`).

*Replication.* A message is checked against the policy in force when it was published. Region a must replicate it to
region b if, in the view of all regions, both were replication clusters of its namespace then and remained so until the
end. So a message is not required in a region that was removed later, or that was added after its publish. The
replication clusters of a topic, while it has its own, replace those of its namespace.

*Lifetime.* The absence of a trimmed message proves nothing, and an expired one need not be delivered. Every policy that
was in force at any time in any region counts, even if it was removed later: regions apply a change at different times.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from emulator.run.json_text import parse_json, require_unicode

DELIVERIES_FILE = "metadata.jsonl"
CLUSTERS = "replication_clusters"
EVICTION = "consumer_backlog_eviction"
INDIVIDUAL_ACKS = "replicate_individual_acks"
CLAIM_INTERVAL_MS_MAX = 1_000
"""Maximum of `individual_ack_interval_ms` with which claims are sent within `quiescence.REST_MS`."""
CLAIM_RANGES_MIN = 1_000
"""Minimum of `individual_acks_max` with which the claims that `checks.unclaimed` compares are whole."""
NEVER_MS = 1e300
SETTLING_MS = 1_000.0
"""Time between a region's receipt of a change and its effect; a publish meanwhile is checked against neither policy."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Trimming and expiry of the messages of a namespace or a topic."""

    trims: bool = False
    """Whether messages that every subscription acknowledged may be trimmed."""
    expires_after_ms: float = NEVER_MS
    """Age at which a message may expire before its delivery; 0: at any age."""

    @property
    def expires(self) -> bool:
        return self.expires_after_ms < NEVER_MS

    def combine(self, other: Lifetime) -> Lifetime:
        """Combine two lifetimes: trimming or expiry is allowed if either allows it."""
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
    """The regions between which messages are replicated, and since when."""

    regions: frozenset[str]
    """All regions that were replication clusters at any time."""
    since_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(origin, other region) -> messages published from then on must be replicated. Pairs without a limit are
    absent."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The policies of a namespace that decide which copies and deliveries are required."""

    regions: tuple[str, ...]
    """Regions that were its replication clusters at any time."""
    deduplication: bool
    """Whether deduplication was on during the whole run."""
    lifetime: Lifetime = KEPT
    """Combination of the lifetimes that its policies had at any time."""
    own_lifetimes: Mapping[str, Lifetime] = field(default_factory=dict)
    """Lifetimes of topics whose own policies trim or expire messages."""
    replicated_since_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(origin, other region) -> messages published from then on must be replicated; for other pairs all."""
    own_topics: Mapping[str, ReplicationPolicy] = field(default_factory=dict)
    """Policies of topics that had replication clusters of their own at any time."""
    individual_acks_since_ms: float = NEVER_MS
    """Since when all regions replicate individual acknowledgements by a policy of the namespace; NEVER_MS: they do not
    at the end, a topic has a policy of its own, or claims may be late or incomplete by a policy or setting."""


Received = tuple[float, Mapping[str, Any]]
"""Time at which a region received a change, and the new policies; empty if they were deleted."""


def declared_namespaces(entries: Iterable[Mapping[str, Any]]) -> dict[str, Namespace]:
    """Parse the namespaces of a topology. Raises AttributeError, KeyError or TypeError for entries of another shape."""
    return {
        entry["name"]: Namespace(
            tuple(entry["regions"]), bool(entry["deduplication"]), lifetime=_declared_lifetime(entry)
        )
        for entry in entries
    }


def declared_otherwise(config: Mapping[str, Any], declared: Mapping[str, Namespace]) -> list[str]:
    """Return the names of the namespaces that a region's configuration declares with other policies than the topology,
    or that only one of them declares; the configuration adds the namespace of the event topic. Raises
    AttributeError, KeyError, TypeError or ValueError for a configuration of another shape."""
    if "namespaces" not in config:
        return []
    own = declared_namespaces(config["namespaces"])
    events = config["settings"].get("configuration_metadata_sync_event_topic")
    added = {str(TopicName.parse(events).full_namespace)} if events else set()
    differing = {name for name in {*own, *declared} if own.get(name) != declared.get(name)}
    return sorted(differing - (added - set(declared)))


def read_namespaces(run: Path, declared: Mapping[str, Namespace]) -> tuple[dict[str, Namespace], list[str]]:
    """Return the namespaces by name, as the regions received them, else as the topology declares them; and a sentence
    for each unreadable file."""
    namespaces = dict(declared)
    received: dict[str, list[tuple[StoredKey, Received]]] = {}
    """Changes that each region received, in the order of revisions."""
    unreadable: list[str] = []
    for file in sorted((run / "regions").glob(f"*/{DELIVERIES_FILE}")):
        region = file.parent.name
        try:
            received[region] = list(_read(file))
        except (OSError, ValueError) as problem:
            unreadable.append(f"regions/{region}/{DELIVERIES_FILE} cannot be read: {problem}")
    keys = {key for of_region in received.values() for key, _ in of_region}
    for name in sorted(key.name for key in keys if isinstance(key, NamespacePath)):
        before = namespaces[name].regions if name in namespaces else ()
        namespaces[name] = _changed(received, name, before)
    if not all(map(_has_whole_claims, _settings(run))):
        namespaces = {
            name: replace(one, individual_acks_since_ms=NEVER_MS) for name, one in namespaces.items()
        }
    return namespaces, unreadable


def _settings(run: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of each region. Other readers report files that cannot be read."""
    for file in sorted((run / "regions").glob("*/region.json")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            settings = parse_json(file.read_text())["settings"]
            if isinstance(settings, dict):
                yield settings


def _has_whole_claims(values: Mapping[str, Any]) -> bool:
    """Return whether claims of individual acknowledgements are prompt and whole with these policies or settings."""
    interval_ms, ranges = values.get("individual_ack_interval_ms"), values.get("individual_acks_max")
    return (interval_ms is None or (type(interval_ms) is int and interval_ms <= CLAIM_INTERVAL_MS_MAX)) and (
        ranges is None or (type(ranges) is int and ranges >= CLAIM_RANGES_MIN)
    )


def _declared_lifetime(entry: Mapping[str, Any]) -> Lifetime:
    ttl_seconds = entry.get("message_ttl_seconds", 0)
    return Lifetime(
        entry.get("retention_minutes", -1) >= 0 or entry.get("retention_megabytes", -1) >= 0,
        ttl_seconds * 1000.0 if ttl_seconds else NEVER_MS,
    )


def _read(file: Path) -> Iterable[tuple[StoredKey, Received]]:
    """Return the changes that a region received, by revision, each at its first receipt: a restarted region receives
    all of them again. Raises ValueError with the number and the problem of the first invalid line."""
    first: dict[int, tuple[StoredKey, Received]] = {}
    text = file.read_text()
    # The region did not apply the change of a torn last line.
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            revision, change = _parsed(parse_json(line))
        except KeyError as problem:
            raise ValueError(f"line {number} has no {problem.args[0]}") from problem
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
            raise ValueError(f"line {number}: {problem}") from problem
        if change is not None and revision not in first:
            first[revision] = change
    return [first[revision] for revision in sorted(first)]


def _parsed(change: Any) -> tuple[int, tuple[StoredKey, Received] | None]:
    """Return the revision and the change of a line; None if the line is no change of a path that the verdict uses."""
    if "away" in change:
        return 0, None  # an outage of the store
    key, revision = parse_path(change["path"]), int(change["revision"])
    value = {} if change["value"] is None else json.loads(change["value"])
    if key is None:
        return revision, None
    # The value of a path of another kind may be a list.
    policies = value.get("policies", {}) if isinstance(value, dict) else {}
    if not isinstance(policies, dict):
        policies = {}
    clusters = policies.get(CLUSTERS, [])
    if not isinstance(clusters, list) or not all(isinstance(one, str) for one in clusters):
        raise ValueError(f"{CLUSTERS} must be a list of names, not {clusters!r}")
    require_unicode(clusters)  # the frames have no other texts of a document
    lifetime_of(policies)
    return revision, (key, (float(change["at_ms"]), policies))


def _changed(
    received: Mapping[str, Sequence[tuple[StoredKey, Received]]], name: str, before: tuple[str, ...]
) -> Namespace:
    """Return a namespace with the changes that regions received. `before`: the regions that the topology declares."""
    by_region = [
        [one for key, one in of_region if key == NamespacePath(name)] for of_region in received.values()
    ]
    by_region = [of_region for of_region in by_region if of_region]
    replication = _replication(by_region)
    places: dict[str, set[StoredKey]] = {}
    """Topic of the namespace -> paths of its own policies: for all regions of a cluster, or for one region."""
    own_topics: set[str] = set()
    claimed_since_ms = max((_claimed_since(of_region) for of_region in by_region), default=NEVER_MS)
    if len(by_region) < len({*before, *replication.regions}):
        claimed_since_ms = NEVER_MS  # the policies of a region are unknown
    for of_region in received.values():
        for key, (_, policies) in of_region:
            if not _has_whole_claims(policies):  # of this or any other namespace: a run rarely has several
                claimed_since_ms = NEVER_MS
            if not isinstance(key, TopicPoliciesPath | RegionTopicPoliciesPath):
                continue
            if TopicName.parse(key.topic).full_namespace == name:
                places.setdefault(key.topic, set()).add(key)
                if CLUSTERS in policies:
                    own_topics.add(key.topic)
                if INDIVIDUAL_ACKS in policies:
                    claimed_since_ms = NEVER_MS
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
        claimed_since_ms,
    )


def _lifetime(
    received: Iterable[Iterable[tuple[StoredKey, Received]]], places: Collection[StoredKey]
) -> Lifetime:
    """Combine the lifetimes of all policies that these paths ever had."""
    found = KEPT
    for of_region in received:
        for key, (_, policies) in of_region:
            if key in places:
                found = found.combine(lifetime_of(policies))
    return found


def _of_topic(
    of_region: Iterable[tuple[StoredKey, Received]], region: str, namespace: str, topic: str
) -> list[Received]:
    """Return the changes of a region that affect one topic, each with the policies that were then in force."""
    found: list[Received] = []
    of_namespace: Mapping[str, Any] = {}
    own: Mapping[str, Any] = {}
    here: Mapping[str, Any] = {}
    """Policies for this region alone, which override the others."""
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
    """Compute the replication policy from the changes that each region received."""
    received = [of_region for of_region in received if of_region]
    ever = {
        name for of_region in received for _, policies in of_region for name in policies.get(CLUSTERS, ())
    }
    member_since = {name: max(_member_since(of_region, name) for of_region in received) for name in ever}
    since: dict[tuple[str, str], float] = {}
    for origin, other in permutations(sorted(ever), 2):
        # A region that is not a replication cluster replicates to no region.
        at_ms = max(member_since[origin], member_since[other])
        if at_ms > 0:
            since[origin, other] = at_ms if at_ms == NEVER_MS else at_ms + SETTLING_MS
    return ReplicationPolicy(frozenset(ever), since)


def _member_since(received: Iterable[Received], region: str) -> float:
    """Return since when a region is a replication cluster: 0: from the beginning, NEVER_MS: not at the end."""
    since, is_first = NEVER_MS, True
    for at_ms, policies in received:
        if region not in policies.get(CLUSTERS, ()):
            since = NEVER_MS
        elif since == NEVER_MS:
            since = 0.0 if is_first else at_ms
        is_first = False
    return since


def _claimed_since(received: Iterable[Received]) -> float:
    """Return since when a region replicates individual acknowledgements; NEVER_MS: not at the end."""
    since = NEVER_MS
    for at_ms, policies in received:
        if policies.get(INDIVIDUAL_ACKS) is not True:
            since = NEVER_MS
        elif since == NEVER_MS:
            since = at_ms
    return since
