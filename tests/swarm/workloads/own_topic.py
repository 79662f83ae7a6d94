"""An act whose program has a topic of its own, and reads it in one region: what it published it knows itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from emulator.client import Client, Consumer, InitialPosition, Message
from emulator.run.history_events import payload_digest
from emulator.simulation.evidence import full
from emulator.simulation.history import place_of, text_of
from tests.swarm.workload import Act, Stage


@dataclass(frozen=True, slots=True)
class OwnTopic(Act):
    reading: str
    """The region in which it reads."""

    is_waited_for: ClassVar[bool] = True

    @property
    def places(self) -> tuple[str, ...]:
        return (self.region, self.reading)

    def topic(self, stage: Stage) -> str:
        """Its full name."""
        return full(stage.name)

    def reader(self, stage: Stage) -> Client:
        """On the program's own host, wherever the region is."""
        return self.client_for(self.reading, stage, "reader")

    def client_for(self, region: str, stage: Stage, instance: str) -> Client:
        """On the program's own host, for any region."""
        host = stage.world.client_host(stage.name, self.region)
        return stage.world.client_on(host, (region,), instance=instance)

    async def subscribed(self, client: Client, stage: Stage, subscription: str) -> Consumer:
        earliest = InitialPosition.EARLIEST
        return await client.subscribe(self.topic(stage), subscription, initial_position=earliest)

    async def given(self, consumer: Consumer, stage: Stage, region: str = "") -> Message:
        """The next message, on record. `region`: another one than where it usually reads."""
        message = await consumer.receive()
        region = region or self.reading
        stage.record.note(
            stage.name,
            "receive",
            "ok",
            region=region,
            topic=stage.name,
            subscription=consumer.subscription,
            origin_region=message.replicated_from or region,
            producer=message.producer_name,
            sequence_id=message.sequence_id,
            message_id=place_of(message),
            payload_digest=payload_digest(message.payload),
            detail=text_of(message),
        )
        return message

    async def stats(self, stage: Stage, region: str) -> dict[str, Any] | None:
        """Of its topic there. None: it has none. NoAnswer."""
        host = stage.world.client_host(stage.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(stage).partition('://')[2]}/stats"
        answer = await stage.world.ask_admin(region, "GET", target, host=host)
        return dict(answer.json()) if answer.status == 200 else None
