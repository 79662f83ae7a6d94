"""Base class of acts of the plan's consumers: each runs on the host on which its consumer currently runs."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.simulation.host import Host, HostState
from tests.swarm.actors.clients import ConsumerActor
from tests.swarm.workload import Act, ActContext


@dataclass(frozen=True, slots=True)
class ConsumerAct(Act):
    """An operation of one of the plan's consumers, in its current region."""

    consumer: str

    @property
    def places(self) -> tuple[str, ...]:
        return (self.consumer,)

    def host(self, context: ActContext) -> Host | None:
        actor = self.actor(context)
        return actor.host if actor.host.state is HostState.UP and actor.consumer is not None else None

    def actor(self, context: ActContext) -> ConsumerActor:
        actor = context.world.actors[self.consumer]
        assert isinstance(actor, ConsumerActor)
        return actor
