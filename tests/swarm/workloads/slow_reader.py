"""Clients that send requests and never read the responses. Such a client must not exhaust a region's memory.

Checked on the network, not by a region's own accounting: the number of bytes that wait at its side of the connection.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.broker.connection.flow_control import ANSWERS_BYTES_MAX, FlowControl, PauseReason
from emulator.client import ClientError
from emulator.simulation.host import Host
from emulator.simulation.invariant_check import Found
from emulator.simulation.world import SERVICE_PORT
from emulator.wire.commands import PROTOCOL_VERSION, Connect, Lookup
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import Act, ActContext, Workload

HELD_BYTES_MAX = 2 * ANSWERS_BYTES_MAX
"""Largest number of unsent bytes: the limit of a region, and the responses to requests that it had read before."""
REQUESTS = 1_600
TOPIC = "persistent://" + "long" * 480
"""A topic of no namespace. The error response to its lookup contains the name, so each response has 2 KB."""
LOOKS = 20
LOOK_SECONDS = 0.1


WORKLOAD = Workload("hoard", runs_in="swarm")


class _Deaf(asyncio.Protocol):
    """A client connection that reads nothing after CONNECTED."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.welcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """True: CONNECTED was received. False: the region closed the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(Connect("deaf", PROTOCOL_VERSION).encode())

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.pause_reading()
        if not self.welcome.done():
            self.welcome.set_result(True)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.welcome.done():
            self.welcome.set_result(False)


@dataclass(frozen=True, slots=True)
class SlowReaderAct(Act):
    workload: ClassVar[str] = "hoard"

    async def perform(self, context: ActContext) -> None:
        host = context.world.client_host(context.name, self.region)
        deaf = _Deaf()
        try:
            async with asyncio.timeout(5.0):
                await host.network.connect(lambda: deaf, self.region, SERVICE_PORT)
                if not await deaf.welcome:
                    return
        except OSError as failure:  # TimeoutError is an OSError
            raise ClientError(f"no connection: {failure}", definite=True) from None
        assert deaf.transport is not None
        deaf.transport.write(b"".join(Lookup(number, TOPIC).encode() for number in range(REQUESTS)))
        most = 0
        for _ in range(LOOKS):
            await asyncio.sleep(LOOK_SECONDS)
            most = max(most, _waiting_bytes(context, host))
        deaf.transport.abort()
        if most:
            context.note_result("accepted" if most > HELD_BYTES_MAX else "refused", detail=str(most))


def _waiting_bytes(context: ActContext, host: Host) -> int:
    """Return the number of bytes that the region has for this host and cannot send."""
    endpoints = context.world.regions[context.act.region].host.network.endpoints
    return sum(one.unsent_bytes for one in endpoints if one.peer_name[0] == host.name)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if random.random() >= 0.06:
        return plan
    at = round(random.uniform(1.0, plan.break_seconds), 3)
    return replace(plan, acts=(*plan.acts, SlowReaderAct(at, random.choice(plan.regions))))


@WORKLOAD.checker("memory-is-bounded", "INV-22")
def memory_is_bounded(evidence: Evidence) -> Found:
    """A region stops reading requests of a client that does not read responses."""
    for operation in evidence.operations:
        if operation.workload == SlowReaderAct.workload and operation.outcome == "accepted":
            yield (
                f"{operation.region} holds {operation.detail} bytes for one client that reads nothing",
                {"region": operation.region},
            )


@WORKLOAD.mutant("no-backpressure", "INV-22", patch=part("flow_control"))
class _NoBackpressure(FlowControl):
    """A region reads from a client regardless of the memory that its pending responses use."""

    def pause(self, reason: PauseReason) -> None:
        pass
