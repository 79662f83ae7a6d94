"""Base class of acts whose program has its own topic, reads it in one region and records its own publishes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from emulator.client import Client, Consumer, InitialPosition, Message
from emulator.simulation.evidence import full
from tests.swarm.record import received_fields
from tests.swarm.workload import Act, ActContext


@dataclass(frozen=True, slots=True)
class OwnTopic(Act):
    reading: str
    """The region in which the program reads."""

    is_awaited: ClassVar[bool] = True

    @property
    def places(self) -> tuple[str, ...]:
        return (self.region, self.reading)

    def topic(self, context: ActContext) -> str:
        """Return the full name of the program's topic."""
        return full(context.name)

    def reader(self, context: ActContext) -> Client:
        """Return a client on the program's host for the reading region."""
        return self.client_for(self.reading, context, "reader")

    def client_for(self, region: str, context: ActContext, instance: str) -> Client:
        """Return a client on the program's host for the given region."""
        host = context.world.client_host(context.name, self.region)
        return context.world.client_on(host, (region,), instance=instance)

    async def subscribed(self, client: Client, context: ActContext, subscription: str) -> Consumer:
        earliest = InitialPosition.EARLIEST
        return await client.subscribe(self.topic(context), subscription, initial_position=earliest)

    async def next_message(self, consumer: Consumer, context: ActContext, region: str = "") -> Message:
        """Receive the next message and record it in the history. `region`: the consumer's region; empty: `reading`."""
        message = await consumer.receive()
        region = region or self.reading
        context.record.note(
            context.name,
            "receive",
            "ok",
            region=region,
            topic=context.name,
            subscription=consumer.subscription,
            **received_fields(message, region),
        )
        return message

    async def stats(self, context: ActContext, region: str) -> dict[str, Any] | None:
        """Return the topic's stats in the region; None: the region does not have it. Raises NoHttpResponse."""
        host = context.world.client_host(context.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(context).partition('://')[2]}/stats"
        answer = await context.world.ask_admin(region, "GET", target, host=host)
        return dict(answer.json()) if answer.status == 200 else None
