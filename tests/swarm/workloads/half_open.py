"""Consumers with a half-open connection: their host is frozen or without power, so they neither read nor respond.

Their region receives no reset. It detects them with PING, closes the connection, and redelivers their messages to other
consumers. Checked on the network, and by the honest consumers of the same subscription.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.broker.connection.liveness import Liveness
from emulator.client import ConsumerType, InitialPosition
from emulator.simulation.host import Host, HostState
from emulator.simulation.invariant_check import Found
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import part
from tests.swarm.plan import ConsumerPlan, Plan, with_settings
from tests.swarm.workload import Act, ActContext, Workload

KEEP_ALIVE_MS = 1_000
SECONDS_MAX = 2 * KEEP_ALIVE_MS / 1000 + 0.5
"""Longest time until a half-open connection is closed: one interval until the PING, one without its PONG, 0.5 s."""
LOOK_SECONDS = 0.25
QUEUE = 1_000


WORKLOAD = Workload("fall-silent", runs_in="swarm")


@dataclass(frozen=True, slots=True)
class HalfOpenClient(Act):
    """A consumer that joins the subscription of an honest one, and whose connection becomes half-open."""

    consumer: ConsumerPlan
    """Plan of the honest consumer, whose topic and subscription the act uses."""
    loses_power: bool
    """True: the host loses power. False: the program is paused, and its kernel keeps the connection open."""

    workload: ClassVar[str] = "fall-silent"

    async def perform(self, context: ActContext) -> None:
        one, client = self.consumer, context.client()
        await client.subscribe(
            one.topic,
            one.subscription,
            type_=ConsumerType[one.type],
            initial_position=InitialPosition.EARLIEST,
            replicated=one.replicated,
            name=context.name,
            receiver_queue_size=QUEUE,
        )
        host = context.world.client_host(context.name, self.region)
        _Lookout(context, host).look()
        if self.loses_power:
            host.power_off()
        else:
            host.pause()
        await asyncio.get_running_loop().create_future()


class _Lookout:
    """Measures on the network how long a running region keeps the half-open connection."""

    def __init__(self, context: ActContext, silent: Host) -> None:
        self._stage = context
        self._silent = silent
        self._region = context.world.regions[context.act.region].host
        self._life = self._region.incarnation
        self._began = context.now
        self._seconds = 0.0

    def look(self) -> None:
        region, context = self._region, self._stage
        if region.incarnation != self._life or region.state is HostState.DOWN:
            context.note_result("nothing", began=self._began)
        elif not any(one.peer_name[0] == self._silent.name for one in region.network.endpoints):
            context.note_result("refused", began=self._began)
        elif self._seconds > SECONDS_MAX:
            context.note_result("accepted", began=self._began, detail=f"{self._seconds:g}")
        else:
            # The time restarts when a paused region resumes: it could not send a PING before.
            self._seconds = self._seconds + LOOK_SECONDS if region.state is HostState.UP else 0.0
            context.world.simulation.at(context.now + LOOK_SECONDS, self.look)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if random.random() >= 0.12:
        return plan
    acts = []
    for _ in range(random.randint(1, 2)):
        consumer = random.choice(plan.consumers)
        at = round(random.uniform(0.5, plan.break_seconds * 0.8), 3)
        acts.append(HalfOpenClient(at, consumer.region, consumer, random.random() < 0.5))
    topology = with_settings(plan.topology, keep_alive_interval_ms=KEEP_ALIVE_MS)
    return replace(plan, topology=topology, acts=(*plan.acts, *acts))


@WORKLOAD.checker("half-open-disconnected", "INV-24")
def silent_ones_go(evidence: Evidence) -> Found:
    """A region closes a connection on which it no longer receives any frame."""
    for operation in evidence.operations:
        if operation.workload == HalfOpenClient.workload and operation.outcome == "accepted":
            yield (
                f"{operation.region} kept a connection for {operation.detail} s that sent nothing",
                {"region": operation.region},
            )


@WORKLOAD.mutant("no-keep-alive-timeout", "INV-24", "INV-5", "INV-14", patch=part("liveness"))
class _NoKeepAliveTimeout(Liveness):
    """A client that sends nothing is considered alive."""

    def _check(self) -> None:
        self.heard()
        super()._check()

    async def is_alive(self) -> bool:
        return True
