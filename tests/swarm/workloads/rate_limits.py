"""Programs with more clients than a topic allows, or faster than a rate allows: limits and rates are never exceeded,
and a waiting client is admitted once there is room.

Each program has a topic and a policy of its own, which is set during the faults. The program checks itself after the
faults end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from emulator.core.flow.rate_limit import Published, RateLimit, Throttle, ThrottleFactory
from emulator.core.topic.limits import TopicLimits
from emulator.errors import ProtocolError
from tests.swarm.checkers.limits import Allowance
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import Workload
from tests.swarm.workloads.expiring_program import OwnTopicProgram
from tests.swarm.workloads.rate_limits_crowd import CROWDED, KEPT_OUT, LIMITS, NAME, ClientLimitProgram
from tests.swarm.workloads.rate_limits_pacing import STARVED, TOO_FAST, Draining, Publishing

WORKLOAD = Workload(NAME)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    return replace(plan, acts=(*plan.acts, *(_act(random, plan) for _ in range(random.randint(2, 4)))))


def _act(random: Random, plan: Plan) -> OwnTopicProgram:
    region, seconds = random.choice(plan.regions), plan.break_seconds
    begin = round(random.uniform(0.2, seconds * 0.6), 3)
    base = (begin, region, region, random.randint(10, 80), 0.0, seconds + 1.0)
    if random.random() < 0.5:
        most = random.randint(1, 3)
        stays = tuple(round(random.uniform(0.1, 1.5), 3) for _ in range(most + random.randint(1, 3)))
        return ClientLimitProgram(*base, random.choice(LIMITS), most, stays)
    allowance = Allowance(random.choice((5, 20, 60)), 1)
    clients, at_once = random.randint(1, 3), random.choice((1, 5, 20))
    if random.random() < 0.5:
        return Publishing(*base, allowance, clients, at_once)
    allowance = replace(allowance, period_seconds=random.choice((1, 1, 3)))
    return Draining(*base, allowance, clients, at_once, random.random() < 0.5)


# INV-101


@WORKLOAD.mutant("limit-not-enforced", "INV-101", patch=part("topic_limits"))
class _LimitNotEnforced(TopicLimits):
    """Every client is admitted to a topic, regardless of its limits."""

    def check_producers(self, present: int, topic: str) -> None:
        return

    def check_consumers(self, of_topic: int, of_subscription: int, topic: str) -> None:
        return

    def check_subscriptions(self, present: int, topic: str) -> None:
        return


@WORKLOAD.mutant("limit-never-released", "INV-101", patch=part("topic_limits"))
class _LimitNeverReleased(TopicLimits):
    """A topic that rejected one client rejects every later one."""

    def check_producers(self, present: int, topic: str) -> None:
        self._check(super().check_producers, present, topic)

    def check_consumers(self, of_topic: int, of_subscription: int, topic: str) -> None:
        self._check(super().check_consumers, of_topic, of_subscription, topic)

    def check_subscriptions(self, present: int, topic: str) -> None:
        self._check(super().check_subscriptions, present, topic)

    def _check(self, check: Callable[..., None], *of: object) -> None:
        before: ProtocolError | None = self.__dict__.get("refusal")
        if before is not None:
            raise before
        try:
            check(*of)
        except ProtocolError as refusal:
            self.__dict__["refusal"] = refusal
            raise


def _throttle(careless: type[Throttle]) -> ThrottleFactory:
    def made(rate: RateLimit, now_ms: float, published: Published | None = None) -> Throttle | None:
        return careless(rate, now_ms, published) if rate.is_limited else None

    return made


@WORKLOAD.mutant("rate-not-counted", "INV-101", patch=part("throttle_of", _throttle))
class _RateNotCounted(Throttle):
    """Published and dispatched messages do not count against a rate."""

    def take(self, messages: int, size_bytes: int, now_ms: float) -> None:
        return


@WORKLOAD.mutant("unused-rate-accumulates", "INV-101", patch=part("throttle_of", _throttle))
class _UnusedRateAccumulates(Throttle):
    """Unused allowance of a rate accumulates without bound."""

    def __init__(self, rate: RateLimit, now_ms: float, published: Published | None = None) -> None:
        super().__init__(rate, now_ms, published)
        for bucket in (self._messages, self._bytes):
            if bucket is not None:
                bucket._most = float("inf")


@WORKLOAD.mutant("rate-never-refills", "INV-101", patch=part("throttle_of", _throttle))
class _RateNeverRefills(Throttle):
    """A rate allows the messages of one period, and none after it."""

    def __init__(self, rate: RateLimit, now_ms: float, published: Published | None = None) -> None:
        super().__init__(rate, now_ms, published)
        for bucket in (self._messages, self._bytes):
            if bucket is not None:
                bucket._per_ms = 1e-6


WORKLOAD.reports("limits-enforced", "INV-101", CROWDED, "more clients than its limit")
WORKLOAD.reports("admitted-below-limit", "INV-101", KEPT_OUT, "rejected below the limit")
WORKLOAD.reports("rates-enforced", "INV-101", TOO_FAST, "faster than its rate")
WORKLOAD.reports("rates-reached", "INV-101", STARVED, "slower than its rate")
