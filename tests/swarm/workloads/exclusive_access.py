"""Producers that request exclusive access to a topic (PIP-68) and wait for it in a queue (PIP-440).

They claim, wait, fence each other off, freeze and die on a topic of their own, while everything else goes on beside
them: its region is killed, its disk is slow or fails, an administrator has the topic unloaded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.config.topology import Topology
from emulator.net.http import NoHttpResponse
from emulator.simulation.evidence import full
from emulator.simulation.world import NAMESPACE
from tests.swarm.faults import FailingDisk, Fault, Kill, KillClient, PauseClient, Reset, SlowDisk
from tests.swarm.plan import ClaimantPlan, Plan
from tests.swarm.workload import Act, ActContext, Workload
from tests.swarm.workloads.exclusive_access_checks import CHECKS
from tests.swarm.workloads.exclusive_access_mutants import MUTANTS

TOPIC = "leader"
MODES = (
    "WAIT_FOR_EXCLUSIVE",
    "WAIT_FOR_EXCLUSIVE",
    "WAIT_FOR_EXCLUSIVE",
    "EXCLUSIVE",
    "EXCLUSIVE_WITH_FENCING",
    "SHARED",
)
UNLOAD = f"/admin/v2/persistent/{NAMESPACE}/{TOPIC}/unload"
DONE = 204
GRACE_PERIODS_MS = (0, 200, 1_000, 5_000)


WORKLOAD = Workload("claim")


@dataclass(frozen=True, slots=True)
class Unload(Act):
    """An administrator's request to unload the topic."""

    workload: ClassVar[str] = "unload"

    async def perform(self, context: ActContext) -> None:
        host = context.world.client_host(context.name, self.region)
        try:
            answer = await context.world.ask_admin(self.region, "PUT", UNLOAD, host=host)
        except NoHttpResponse:
            return
        context.note_result("accepted" if answer.status == DONE else "refused", topic=full(TOPIC))


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if random.random() >= 0.25:
        return plan
    regions = random.sample(plan.regions, 1 if random.random() < 0.7 else min(2, len(plan.regions)))
    for region in regions:
        plan = (_in_a_hush if random.random() < 0.3 else _with_claimants)(random, plan, region)
    topology = _with_grace_period(plan.topology, random.choice(GRACE_PERIODS_MS))
    return replace(plan, topology=topology, faults=tuple(sorted(plan.faults, key=lambda one: one.at_seconds)))


def _with_claimants(random: Random, plan: Plan, region: str) -> Plan:
    seconds = plan.break_seconds
    only_wait = random.random() < 0.4
    claimants = tuple(
        ClaimantPlan(
            f"claimant-{number}-{region}",
            region,
            TOPIC,
            "WAIT_FOR_EXCLUSIVE" if only_wait else random.choice(MODES),
            random.choice((0, 0, 1, 5, -3)),
            place=random.choice((region, region, region, random.choice(plan.regions))),
            burst=random.choice((1, 2, 5)),
            pause_seconds=random.choice((0.02, 0.1, 0.3)),
            holds_seconds=random.choice((0.2, 1.0, seconds)),
            gives_up_seconds=random.choice((None, None, 1.0)),
        )
        for number in range(random.randint(2, 5))
    )
    faults = [
        _trouble(random, region, [one.name for one in claimants], seconds)
        for _ in range(random.randint(1, 6))
    ]
    acts = [
        Unload(round(random.uniform(0.5, seconds), 3), region) for _ in range(random.choice((0, 0, 1, 2)))
    ]
    return replace(
        plan,
        claimants=(*plan.claimants, *claimants),
        faults=(*plan.faults, *faults),
        acts=(*plan.acts, *acts),
    )


def _in_a_hush(random: Random, plan: Plan, region: str) -> Plan:
    """Add claimants that all wait and hardly publish, on a failing disk: promotions fail, and no other event makes the
    region load the topic again."""
    seconds = plan.break_seconds
    claimants = tuple(
        ClaimantPlan(
            *(f"claimant-{number}-{region}", region, TOPIC, "WAIT_FOR_EXCLUSIVE", random.choice((0, 0, 1))),
            messages=1,
            burst=1,
            holds_seconds=seconds / 8,
        )
        for number in range(random.randint(3, 5))
    )
    begins = random.uniform(0.2, 0.7) * seconds
    faults = [
        FailingDisk(round(begins, 3), seconds, region, random.choice((0.3, 0.6, 1.0))),
        *(
            KillClient(round(random.uniform(begins, seconds), 3), 0.3, random.choice(claimants).name)
            for _ in range(3)
        ),
    ]
    return replace(plan, claimants=(*plan.claimants, *claimants), faults=(*plan.faults, *faults))


def _trouble(random: Random, region: str, clients: list[str], seconds: float) -> Fault:
    """Draw a fault of a claimant or of the claimants' region."""
    at = round(random.uniform(0.3, seconds), 3)
    lasts = round(min(random.expovariate(1.0) * random.choice((0.1, 1.0, 4.0)), seconds), 3)
    client = random.choice(clients)
    kinds: list[Fault] = [
        KillClient(at, lasts, client, random.random() < 0.5),
        KillClient(at, lasts, client, random.random() < 0.5),
        PauseClient(at, lasts, client),
        Reset(at, lasts, region, region),
        Kill(at, round(min(lasts, 1.0), 3), region),
        FailingDisk(at, lasts, region, random.choice((0.3, 1.0))),
        SlowDisk(at, lasts, region, random.choice((0.1, 0.5))),
    ]
    return random.choice(kinds)


def _with_grace_period(topology: Topology, milliseconds: int) -> Topology:
    clusters = tuple(
        replace(
            cluster,
            regions=tuple(
                replace(one, settings=replace(one.settings, exclusive_grace_period_ms=milliseconds))
                for one in cluster.regions
            ),
        )
        for cluster in topology.clusters
    )
    return replace(topology, clusters=clusters)


WORKLOAD.checks += CHECKS
WORKLOAD.mutants += MUTANTS
