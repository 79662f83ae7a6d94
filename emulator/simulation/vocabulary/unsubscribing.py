"""Consumers that delete their subscription; as an application it comes back and makes it anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.simulation.evidence import full
from emulator.simulation.plan import Plan
from emulator.simulation.vocabulary.of_consumers import ConsumerAct
from emulator.simulation.vocabulary.word import Stage, Word


@dataclass(frozen=True, slots=True)
class Unsubscribe(ConsumerAct):
    word: ClassVar[str] = "unsubscribe"

    async def perform(self, stage: Stage) -> None:
        actor = self.actor(stage)
        consumer = actor.consumer
        if consumer is None:
            return
        began = stage.now
        region, topic, subscription = actor.region, full(actor.plan.topic), actor.plan.subscription
        window = stage.record.windows.begin(region, topic, subscription)
        await consumer.unsubscribe()
        stage.record.windows.end(window)
        stage.did("accepted", began=began, region=region, topic=topic, subscription=subscription)


def draw(random: Random, plan: Plan) -> Plan:
    if random.random() >= 0.15:
        return plan
    consumer = random.choice(plan.consumers)
    at = round(random.uniform(1.0, plan.break_seconds), 3)
    return replace(plan, acts=(*plan.acts, Unsubscribe(at, consumer.region, consumer.name)))


WORD = Word("unsubscribe", draw)
