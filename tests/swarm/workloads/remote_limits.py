"""Programs whose topics reach limits, rates and quotas in one region while it receives messages of the others, and
programs whose partitioned topic grows while regions are down: no limit of a region keeps another region's messages or
positions out, everything arrives once limits are removed, and every region gets the new partitions.

Each program has a topic of its own. Policies are those of its topic in one region.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from emulator.broker.replication.replicator import Replicator
from emulator.core.admission import OwnRegion, Publisher
from emulator.core.policies.lifetime import QuotaAction
from tests.swarm.faults import Cut, Fault, Kill
from tests.swarm.mutant import part, replicator
from tests.swarm.plan import Plan, with_settings
from tests.swarm.workload import Act, Workload
from tests.swarm.workloads.remote_limits_program import (
    HELD,
    NAME,
    PACE,
    SMALL,
    UNEXPLAINED,
    GrowthProgram,
    LimitChange,
    LimitProgram,
)
from tests.swarm.workloads.subscription_retention_program import LOST, STAYS

WORKLOAD = Workload(NAME)


def _dispatch_rate(random: Random) -> dict[str, int]:
    kind = random.choice(("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"))
    return {kind: random.choice((1, 50)), "ratePeriodInSecond": random.choice((1, 10))}


def _publish_rate(random: Random) -> dict[str, int]:
    kind = random.choice(("publishThrottlingRateInMsg", "publishThrottlingRateInByte"))
    return {kind: random.choice((1, 50))}


def _quota(by_size: bool) -> Callable[[Random], dict[str, Any]]:
    def draw_quota(random: Random) -> dict[str, Any]:
        limit = random.choice((0, 300, 2_000)) if by_size else random.choice((0, 1))
        action = random.choice((QuotaAction.HOLD, QuotaAction.EXCEPTION)).value
        return {
            "limitSize": limit if by_size else -1,
            "limitTime": -1 if by_size else limit,
            "policy": action,
        }

    return draw_quota


def _number(random: Random) -> int:
    return random.choice((0, 1, 1, 3))


POLICIES: dict[str, Callable[[Random], Any]] = {
    "backlogQuota?backlogQuotaType=destination_storage": _quota(by_size=True),
    "backlogQuota?backlogQuotaType=message_age": _quota(by_size=False),
    "maxProducers": _number,
    "maxConsumers": _number,
    "maxSubscriptionsPerTopic": _number,
    "maxUnackedMessagesOnSubscription": _number,
    "publishRate": _publish_rate,
    "dispatchRate": _dispatch_rate,
    PACE: _dispatch_rate,
}
"""Admin path of a policy -> function that draws a value."""


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs with two or more regions each. Unused topics are unloaded soon in some plans."""
    if len(plan.regions) < 2:
        return plan
    growing = [_growth(random, plan) for _ in range(random.randint(0, 2))]
    limited = [_limits(random, plan) for _ in range(random.randint(1, 3))]
    acts: list[Act] = [*growing, *limited]
    faults = [fault for one in growing for fault in _fault_of(random, plan, one)]
    topology = with_settings(plan.topology, topic_idle_ms=random.choice((500, 2_000, 60_000)))
    return replace(plan, topology=topology, acts=(*plan.acts, *acts), faults=(*plan.faults, *faults))


def _growth(random: Random, plan: Plan) -> GrowthProgram:
    here, there = random.choice(plan.regions), random.choice(plan.regions)
    partitions = random.randint(1, 3)
    return GrowthProgram(
        round(random.uniform(0.1, 0.5), 3),
        *(here, there, 0, 0.0, plan.break_seconds + 1.0),
        *(partitions, partitions + random.randint(1, 3)),
        round(random.uniform(1.0, plan.break_seconds), 3),
    )


def _fault_of(random: Random, plan: Plan, growth: GrowthProgram) -> list[Fault]:
    """Draw a fault of another region that is active when the topic grows."""
    other = random.choice([name for name in plan.regions if name != growth.region])
    begin = max(0.9, growth.grows_at_seconds - random.uniform(0.1, 1.0))
    lasts = random.uniform(0.5, plan.break_seconds)
    if random.random() < 0.5:
        return [Kill(round(begin, 3), round(lasts, 3), other)]
    return [Cut(round(begin, 3), round(lasts, 3), growth.region, other, random.random() < 0.4)]


def _limits(random: Random, plan: Plan) -> LimitProgram:
    seconds, count = plan.break_seconds, random.randint(10, 60)
    begin = round(random.uniform(0.2, seconds * 0.3), 3)
    reading, onward = random.sample(plan.regions, 2)
    moves = tuple(sorted(round(random.uniform(begin, seconds), 3) for _ in range(random.randint(1, 3))))
    return LimitProgram(
        *(begin, random.choice(plan.regions), reading, count),
        *(round(seconds / count * random.uniform(0.1, 0.7), 4), seconds + 1.0, onward),
        tuple(random.random() < 0.7 for _ in range(count)),
        moves,
        tuple(_changes(random, plan, begin)),
    )


def _changes(random: Random, plan: Plan, begin: float) -> list[LimitChange]:
    chosen = random.sample(list(POLICIES), random.randint(1, 4))
    changes = []
    for _ in range(random.randint(2, 10)):
        policy = random.choice(chosen)
        value = None if random.random() < 0.25 else POLICIES[policy](random)
        at = round(random.uniform(begin, plan.break_seconds), 3)
        changes.append(LimitChange(at, random.choice(plan.regions), policy, value))
    return sorted(changes, key=lambda one: one.at_seconds)


# INV-124


@WORKLOAD.mutant("limits-apply-to-regions", "INV-124", patch=part("is_limited"))
def _limits_apply_to_regions(publisher: Publisher) -> bool:
    """Quotas and the maximum number of producers reject the replicators of other regions, too."""
    return not isinstance(publisher, OwnRegion)


@WORKLOAD.mutant("unused-partitions-not-announced", "INV-93", patch=replicator)
class _UnusedPartitionsNotAnnounced(Replicator):
    """A new partition without messages is unloaded before every other region has opened it."""

    @property
    def announces_partition(self) -> bool:
        return False


WORKLOAD.reports(
    "replicated-over-limits", "INV-124", HELD, "acknowledged, and kept out by limits of a region"
)
WORKLOAD.reports("quota-is-explained", "INV-123", UNEXPLAINED, "no reason is given for rejected producers")
WORKLOAD.reports("complete-after-limits", "INV-124", LOST, "not acknowledged, and never delivered")
WORKLOAD.reports("acknowledged-after-limits", "INV-124", STAYS, "everything was acknowledged")
WORKLOAD.reports("partitions-reach-all-regions", "INV-93", SMALL, "the topic has grown")
