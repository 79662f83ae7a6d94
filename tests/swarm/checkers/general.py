"""The checks of every generated run: those of any simulated run, and those that need evidence of the swarm's runner."""

from __future__ import annotations

from typing import Final

from emulator.simulation.checkers import ALWAYS, CONSUMED, CONVERGED, REPLICATED
from emulator.simulation.invariant_check import Found, InvariantCheck, witness_of
from tests.swarm.evidence import Evidence


def older_owners_end(evidence: Evidence) -> Found:
    """After healing no replaced region still runs: each has detected its loss of ownership and stopped."""
    for host in evidence.running_former_hosts:
        yield f"{host} was replaced and still runs", {"host": host}


def publishes_completed(evidence: Evidence) -> Found:
    """After healing every publish has an outcome. The check `consumed` covers deliveries."""
    for origin, attempts in evidence.published.items():
        last = list(attempts.values())[-1]
        if not last.acknowledged and last.text in evidence.waiting:
            yield f"{origin} still waits for its receipt", {"message": str(origin), "text": last.text}


def position_replicated(evidence: Evidence) -> Found:
    """After healing a subscription whose consumers acknowledged everything has no backlog. This includes regions of a
    replicated subscription that have no consumer."""
    for (region, topic, subscription), left in sorted(evidence.left.items()):
        if left.messages and left.must_be_none:
            yield (
                f"{subscription} was consumed to the end, and in {region} {len(left.messages)} messages are left, "
                f"the first at {left.messages[0].message_id}",
                {"subscription": subscription, "topic": topic, **witness_of(left.messages[0])},
            )


def backlog_as_reported(evidence: Evidence) -> Found:
    """The backlog that a region reports to administrators equals the number of unacknowledged entries."""
    for (region, topic, subscription), left in sorted(evidence.left.items()):
        entries = len({one.entry for one in left.messages})
        if left.claim is not None and left.claim != entries:
            yield (
                f"{entries or 'no'} entries are left of {subscription} in {region}, which reports {left.claim}",
                {"subscription": subscription, "region": region, "topic": topic},
            )


def regions_become_quiet(evidence: Evidence) -> Found:
    """Once nothing is outstanding, regions stop writing markers: they do not answer each other's markers for ever."""
    for region, topic in sorted(evidence.restless):
        yield (
            f"no client publishes and no message is outstanding, and {region} still writes to {topic}",
            {"region": region, "topic": topic},
        )


CHECKS: Final[tuple[InvariantCheck[Evidence], ...]] = (
    *ALWAYS,
    InvariantCheck("fenced-owners-end", "INV-11", older_owners_end, only_healed=True),
    REPLICATED,
    CONVERGED,
    InvariantCheck("publishes-completed", "INV-14", publishes_completed, only_healed=True),
    CONSUMED,
    InvariantCheck("position-replicated", "INV-17", position_replicated, only_healed=True),
    InvariantCheck("backlog-as-reported", "INV-17", backlog_as_reported, only_healed=True),
    InvariantCheck("regions-become-quiet", "INV-19", regions_become_quiet, only_healed=True),
)
"""All checks, in the order in which they run. The first violation is the one that is printed."""
