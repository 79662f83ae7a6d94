"""After everything is repaired and consumed, every region is killed and started again: it then knows only what it
stored."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.swarm.plan import Plan
from tests.swarm.workload import Workload

WORKLOAD = Workload("restart", acts=False)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    return replace(plan, restarts_at_the_end=True) if random.random() < 0.15 else plan
