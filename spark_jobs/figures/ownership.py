"""Topics that each host owned before and after the fault of a host, and the times without an owner: figures only.

    contest    hosts that requested exclusive access to the same topics, directly or through other hosts
    grant      a host receives exclusive access and its epoch: `connect`, ok, with `topic_epoch`
    fault      a step that kills, stops or pauses a host (a `note`: `kill checker-1`); from then on the host owns
               nothing until its next grant
    moment     faults of hosts of one contest, each within SAME_MOMENT_MS of the one before

All figures are computed from the history, on the clock of the machine that drove the run: a host is an owner from the
time at which it received the grant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from spark_jobs.engines.frames import F
from spark_jobs.frames.evidence import Evidence

SHOWN_MAX = 12
"""Maximum number of contests in the report."""
MOMENTS_MAX = 3
"""Maximum number of moments of one contest: the first ones."""
SAME_MOMENT_MS = 100.0
NAMES_MAX = 3
_ENDS = {"kill": "killed", "stop": "stopped", "pause": "paused"}
"""Faults that end a host's ownership of its topics."""

Place = tuple[str, str]
"""Region and topic."""


class AccessRequest(NamedTuple):
    """A host's request for exclusive access; `at_ms`: the time at which it received the grant, if it did."""

    place: Place
    host: str
    at_ms: float | None = None


class HostFault(NamedTuple):
    at_ms: float
    what: str
    """Verb of the fault, as in `kill`."""
    host: str


@dataclass(frozen=True, slots=True)
class Moment:
    """Faults of hosts at about the same time, and the takeover of their topics."""

    words: str
    """Text of the faults: `checker-1 killed`."""
    orphaned: int
    """Topics that lost their owner."""
    still_without: int
    """Number of them without an owner at the next moment, or at the end of the history."""
    without_owner_p50: float | None
    """Median time without an owner, in seconds, of the topics that got an owner again; None: none did."""
    without_owner_max: float | None


@dataclass(frozen=True, slots=True)
class Contest:
    """Hosts that request the same topics, and the number of topics that each owns."""

    name: str
    topics: int
    loads: Mapping[str, tuple[int, ...]]
    """Host -> number of topics that it owned before the first moment, and after the takeover of each moment: when every
    topic has an owner again, or at the next moment."""
    moments: tuple[Moment, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "topics": self.topics,
            "loads": {host: list(loads) for host, loads in self.loads.items()},
            "moments": [dataclasses.asdict(moment) for moment in self.moments],
        }


def measure_ownership(evidence: Evidence, facts: Iterable[Mapping[str, Any]]) -> tuple[Contest, ...]:
    """Return the first SHOWN_MAX contests with a fault of a host, by name. Hosts with shared access are ignored.

    The driver collects the times of grants, of runs with a fault of a host alone."""
    facts = list(facts)
    if not any(_fault_in(fact) for fact in facts):
        return ()
    hosts = evidence.events.where((F.col("op") == "connect") & F.col("outcome").isin("asked", "ok"))
    has_epoch = F.col("topic_epoch").isNotNull()
    rows = (
        hosts.groupBy("region", "topic", "producer")
        .agg(
            F.collect_list(F.when(has_epoch, F.col("at_ms"))).alias("granted"),
            F.count_if((F.col("outcome") == "ok") & ~has_epoch).alias("shared"),
        )
        .collect()
    )
    exclusive = {(row["region"], row["topic"]) for row in rows if row["granted"]}
    requests = []
    for row in rows:
        place = (row["region"], row["topic"])
        if place in exclusive and not row["shared"]:
            requests.append(AccessRequest(place, row["producer"]))
            requests += [AccessRequest(place, row["producer"], at_ms) for at_ms in row["granted"]]
    return contests(requests, faults_of(facts, {one.host for one in requests}))


def faults_of(facts: Iterable[Mapping[str, Any]], hosts: Iterable[str]) -> list[HostFault]:
    """Return the faults of hosts, sorted by time."""
    known, found = set(hosts), []
    for fact in facts:
        fault = _fault_in(fact)
        if fault is not None and fault.host in known:
            found.append(fault)
    return sorted(found)


def _fault_in(fact: Mapping[str, Any]) -> HostFault | None:
    verb, _, host = (fact["detail"] or "").partition(" ")
    return HostFault(fact["at_ms"], verb, host) if fact["op"] == "note" and verb in _ENDS else None


def contests(requests: Sequence[AccessRequest], faults: Sequence[HostFault]) -> tuple[Contest, ...]:
    """Return the first SHOWN_MAX contests of several hosts with faults, by name."""
    found = []
    for hosts in _rival_groups(requests):
        own = [one for one in requests if one.host in hosts]
        done = [fault for fault in faults if fault.host in hosts]
        if done and len(hosts) > 1:
            found.append(_contest(sorted(hosts), own, done))
    return tuple(sorted(found, key=lambda one: one.name)[:SHOWN_MAX])


def _rival_groups(requests: Iterable[AccessRequest]) -> list[set[str]]:
    """Return the groups of hosts that request the same topics, directly or through other hosts."""
    wanted: dict[Place, set[str]] = {}
    for one in requests:
        wanted.setdefault(one.place, set()).add(one.host)
    groups: list[set[str]] = []
    for hosts in {frozenset(hosts) for hosts in wanted.values()}:
        touching = [group for group in groups if group & hosts]
        groups = [group for group in groups if not group & hosts]
        groups.append(set(hosts).union(*touching))
    return groups


def _contest(hosts: Sequence[str], requests: Sequence[AccessRequest], faults: Sequence[HostFault]) -> Contest:
    grants = sorted((one.at_ms, one.place, one.host) for one in requests if one.at_ms is not None)
    owner: dict[Place, str] = {}
    loads: dict[str, list[int]] = {host: [] for host in hosts}
    moments: list[Moment] = []

    def note_loads() -> None:
        for host in hosts:
            loads[host].append(sum(one == host for one in owner.values()))

    together = _group_by_moment(faults)[:MOMENTS_MAX]
    next_grant = _apply_grants(grants, together[0][0].at_ms, owner)
    note_loads()
    for number, done in enumerate(together):
        fault_ms = {fault.host: fault.at_ms for fault in done}
        until_ms = together[number + 1][0].at_ms if number + 1 < len(together) else float("inf")
        orphans = {place: fault_ms[host] for place, host in owner.items() if host in fault_ms}
        for place in orphans:
            del owner[place]
        waits: list[float] = []
        while next_grant < len(grants) and len(waits) < len(orphans) and grants[next_grant][0] < until_ms:
            at_ms, place, host = grants[next_grant]
            next_grant += 1
            if place in orphans and place not in owner:
                waits.append(max(at_ms - orphans[place], 0.0) / 1000)
            owner[place] = host
        note_loads()
        moments.append(_moment(done, len(orphans), waits))
        next_grant = max(next_grant, _apply_grants(grants, until_ms, owner, next_grant))
    topics = len({one.place for one in requests})
    return Contest(
        _name(hosts), topics, {host: tuple(numbers) for host, numbers in loads.items()}, tuple(moments)
    )


def _apply_grants(
    grants: Sequence[tuple[float, Place, str]], at_ms: float, owner: dict[Place, str], start: int = 0
) -> int:
    """Apply the grants before that time to `owner`; return the index of the next grant."""
    while start < len(grants) and grants[start][0] < at_ms:
        _, place, host = grants[start]
        owner[place] = host
        start += 1
    return start


def _group_by_moment(faults: Sequence[HostFault]) -> list[list[HostFault]]:
    moments: list[list[HostFault]] = []
    for fault in faults:
        if moments and fault.at_ms - moments[-1][-1].at_ms < SAME_MOMENT_MS:
            moments[-1].append(fault)
        else:
            moments.append([fault])
    return moments


def _moment(done: Sequence[HostFault], orphaned: int, waits: Sequence[float]) -> Moment:
    words = ", ".join(f"{fault.host} {_ENDS[fault.what]}" for fault in done)
    return Moment(
        words,
        orphaned,
        orphaned - len(waits),
        round(median(waits), 4) if waits else None,
        round(max(waits), 4) if waits else None,
    )


def _name(hosts: Sequence[str]) -> str:
    """Return the names of the hosts without their numbers."""
    bases = sorted({host.rstrip("-_.0123456789") or host for host in hosts})
    return " and ".join(bases) if len(bases) <= NAMES_MAX else f"{bases[0]} and {len(hosts) - 1} others"
