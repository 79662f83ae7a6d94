"""Remove from a failing plan everything that is not needed for the failure, and print the rest as a sequence of events.

A part is removed if the same check still fails without it: faults and programs (halves, then single ones), regions,
messages, faults of disks and clocks, seconds. A smaller plan may pass by chance, since a run depends on its whole plan;
it is therefore run with several random sources before the next part is tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from emulator.config.topology import Topology
from emulator.simulation.evidence import seconds_of
from emulator.simulation.invariant_check import Violation
from emulator.simulation.region import AS_SHIPPED, Overrides
from tests.swarm.plan import Plan
from tests.swarm.runner import Outcome, run_plan

Change = dict[str, Any]
T = TypeVar("T")

RUNS_MAX = 600
VARIATIONS = 4
HEAL_SECONDS_MAX = 40.0
"""Deadline for convergence of smaller plans, in virtual seconds; shorter than in a full run to save time."""


def shrink(
    outcome: Outcome,
    *,
    overrides: Overrides = AS_SHIPPED,
    runs_max: int = RUNS_MAX,
    seconds_max: float = 120.0,
) -> Outcome:
    """Return the outcome of the smallest failing plan found within `runs_max` runs and `seconds_max` seconds."""
    violation = outcome.violation
    assert violation is not None, "a plan that does not fail cannot be shrunk"
    end = time.monotonic() + seconds_max
    best, runs, improved = outcome, 0, True
    while improved:
        improved = False
        for smaller in _smaller(best.plan):
            if runs >= runs_max or time.monotonic() >= end:
                return best
            tried = _fails_as_well(smaller, violation, overrides)
            runs += VARIATIONS
            if tried is not None:
                best, improved = tried, True
                break
    return best


def _fails_as_well(plan: Plan, violation: Violation, overrides: Overrides) -> Outcome | None:
    """Return the first failing outcome of the plan over several variations of its random sources; None: all pass."""
    for variation in range(plan.variation, plan.variation + VARIATIONS):
        tried = run_plan(replace(plan, variation=variation), overrides=overrides)
        if _is_the_same(tried.violation, violation):
            return tried
    return None


def _is_the_same(found: Violation | None, wanted: Violation) -> bool:
    return found is not None and (found.invariant, found.check) == (wanted.invariant, wanted.check)


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield smaller plans, those with the largest reduction first."""
    if plan.heal_seconds_max > HEAL_SECONDS_MAX:
        yield replace(plan, heal_seconds_max=HEAL_SECONDS_MAX)
    for part in ("faults", "acts", "consumers", "readers", "claimants", "workers", "producers"):
        for fewer in _fewer(getattr(plan, part)):
            change: Change = {part: fewer}
            yield _without_strangers(replace(plan, **change))
    for region in plan.regions:
        if len(plan.regions) > 1:
            yield _without_region(plan, region)
    for index, producer in enumerate(plan.producers):
        if producer.messages > 1:
            yield _with(plan, "producers", index, replace(producer, messages=producer.messages // 2))
        if producer.batching is not None:
            yield _with(plan, "producers", index, replace(producer, batching=None))
    for index, consumer in enumerate(plan.consumers):
        for moves in _fewer(consumer.moves):
            yield _with(plan, "consumers", index, replace(consumer, moves=moves))
    sound = tuple((name, type(faults)()) for name, faults in plan.disks)
    if plan.disks != sound:
        yield replace(plan, disks=sound)
    if plan.clocks:
        yield replace(plan, clocks=())
    if plan.break_seconds > 2:
        yield replace(plan, break_seconds=plan.break_seconds * 0.7)


def _fewer(parts: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    half = len(parts) // 2
    if half > 1:
        yield parts[:half]
        yield parts[half:]
    for index in range(len(parts)):
        yield parts[:index] + parts[index + 1 :]


def _with(plan: Plan, part: str, index: int, changed: object) -> Plan:
    parts = list(getattr(plan, part))
    parts[index] = changed
    change: Change = {part: tuple(parts)}
    return replace(plan, **change)


def _without_strangers(plan: Plan) -> Plan:
    """Remove the faults and acts of clients, regions and clusters that the plan no longer has."""
    clients = set(plan.clients)
    known = clients | set(plan.regions) | {one.name for one in plan.topology.clusters}
    faults = tuple(fault for fault in plan.faults if set(fault.places) <= known)
    acts = tuple(act for act in plan.acts if set(act.places) <= known)
    return replace(plan, faults=faults, acts=acts)


def _without_region(plan: Plan, region: str) -> Plan:
    """Remove a region with its programs, links, faults and acts."""
    keep: Callable[[str], bool] = lambda name: name != region  # noqa: E731
    return _without_strangers(
        replace(
            plan,
            topology=_topology_without(plan.topology, region),
            producers=tuple(p for p in plan.producers if keep(p.region) and keep(p.place or p.region)),
            consumers=tuple(
                replace(c, moves=tuple(move for move in c.moves if keep(move[1])))
                for c in plan.consumers
                if keep(c.region)
            ),
            readers=tuple(r for r in plan.readers if keep(r.region)),
            workers=tuple(w for w in plan.workers if keep(w.region) and keep(w.place or w.region)),
            disks=tuple(one for one in plan.disks if keep(one[0])),
            clocks=tuple(one for one in plan.clocks if keep(one[0])),
        )
    )


def _topology_without(topology: Topology, region: str) -> Topology:
    clusters = (
        replace(cluster, regions=tuple(one for one in cluster.regions if one.name != region))
        for cluster in topology.clusters
    )
    return replace(
        topology,
        clusters=tuple(cluster for cluster in clusters if cluster.regions),
        links=tuple(link for link in topology.links if region not in (link.source, link.target)),
        namespaces=tuple(
            replace(one, regions=tuple(name for name in one.regions if name != region))
            for one in topology.namespaces
        ),
    )


def story_of(outcome: Outcome) -> list[str]:
    """Describe a plan and its violation in lines: programs, acts, faults, and the events of the violating message."""
    plan, violation = outcome.plan, outcome.violation
    lines = [f"{len(plan.regions)} regions: {', '.join(plan.regions)}"]
    lines += [f"{one.name} publishes {one.messages} messages in {one.region}" for one in plan.producers]
    for consumer in plan.consumers:
        moves = "".join(f", at {at:.2f} s continues in {region}" for at, region in consumer.moves)
        kind = ("replicated " if consumer.replicated else "") + consumer.type.lower()
        lines.append(
            f"{consumer.name} ({consumer.subscription}, {kind}) consumes in {consumer.region}{moves}"
        )
    lines += [f"{reader.name} reads in {reader.region}" for reader in plan.readers]
    lines += [
        f"{worker.name} runs in {worker.region} with the transaction key {worker.key}"
        for worker in plan.workers
    ]
    lines += [str(act) for act in plan.acts]
    lines += [str(fault) for fault in plan.faults]
    if violation is not None:
        number = violation.witness.get("text")
        touching = [event for event in outcome.events if number and event.detail == number]
        for event in sorted(touching, key=seconds_of)[:12]:
            where = f" at {event.message_id}" if event.message_id else ""
            lines.append(
                f"{seconds_of(event):.2f} s: {event.actor} {event.op} {event.outcome} {number} in {event.region}{where}"
            )
        lines.append(f"violates {violation.invariant}: {violation.sentence}")
    return lines
