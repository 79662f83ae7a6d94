"""Producers whose schema evolves in several clusters at once. A consumer asks its region for the schema version that
a message carries and must receive the schema that the message was written with, regardless of crashes and outages."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.broker.replication.entry_forms import RemoteSchemaVersions
from emulator.client import EARLIEST, ClientError, Message, Schema, SchemaType
from emulator.simulation.evidence import full
from emulator.simulation.invariant_check import Found
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import Act, ActContext, Workload

TOPIC = "evolved"
SCHEMAS = 5
"""Number of schemas. Any one is compatible with any other: each adds its own field with a default."""
PROPERTY = "written-with"
READING_SECONDS = 30.0
MEANS_ANOTHER = "means another: "


WORKLOAD = Workload("evolve", runs_in="swarm")


def schema(number: int) -> Schema:
    fields = [
        {"name": "id", "type": "string"},
        {"name": f"field{number}", "type": "string", "default": ""},
    ]
    described = {"type": "record", "name": "Order", "fields": fields}
    return Schema(SchemaType.AVRO, json.dumps(described).encode())


@dataclass(frozen=True, slots=True)
class SchemaEvolutionAct(Act):
    """A publish of one message by a producer with a schema."""

    number: int
    """Number of the schema."""

    workload: ClassVar[str] = "evolve"

    async def perform(self, context: ActContext) -> None:
        client = context.client()
        payload = f"{context.name}/0/1".encode()
        try:
            producer = await client.producer(full(TOPIC), name=context.name, schema=schema(self.number))
            context.note_publish(TOPIC, 0, payload, "asked")
            try:
                place = await producer.send(payload, sequence_id=0, properties={PROPERTY: str(self.number)})
            except ClientError as failure:
                if failure.definite:
                    context.note_publish(TOPIC, 0, payload, "failed")
                raise
            context.note_publish(TOPIC, 0, payload, "ok", message_id=str(place))
            context.note_result("accepted", topic=full(TOPIC))
        finally:
            await client.close()


@dataclass(frozen=True, slots=True)
class ReadBack(Act):
    """Read all messages of a region, and compare the schema of each message's version with its original schema."""

    workload: ClassVar[str] = "evolve"

    async def perform(self, context: ActContext) -> None:
        client = context.client()
        wrong, count = "", 0
        try:
            async with asyncio.timeout(READING_SECONDS):
                reader = await client.reader(full(TOPIC), EARLIEST)
                while await reader.has_message():
                    message = await reader.receive()
                    found = await client.schema(full(TOPIC), message.schema_version)
                    wrong = wrong or _wrong(message, None if found is None else found[0])
                    count += 1
        except TimeoutError:
            pass  # the received messages are checked
        finally:
            await client.close()
        if wrong:
            context.note_result("refused", detail=MEANS_ANOTHER + wrong, topic=full(TOPIC))
        elif count:
            context.note_result("accepted", detail=str(count), topic=full(TOPIC))


def _wrong(message: Message, found: Schema | None) -> str:
    number = message.properties[PROPERTY]
    if message.schema_version and found == schema(int(number)):
        return ""
    version = int.from_bytes(message.schema_version, "big") if message.schema_version else "none"
    return f"{message.producer_name} was written with schema {number}, and has version {version}"


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if random.random() >= 0.2 or len(plan.regions) < 2:
        return plan
    seconds = plan.break_seconds
    evolving = [
        SchemaEvolutionAct(
            round(random.uniform(0.2, seconds), 3), random.choice(plan.regions), random.randrange(SCHEMAS)
        )
        for _ in range(random.randint(4, 12))
    ]
    reading = [
        ReadBack(round(seconds * random.uniform(0.5, 1.2), 3), region)
        for region in plan.regions
        for _ in range(2)
    ]
    return replace(plan, acts=(*plan.acts, *evolving, *reading))


@WORKLOAD.checker("schemas-replicated", "INV-42")
def schemas_travel(evidence: Evidence) -> Found:
    """In every region a message's schema version identifies the schema with which the message was written."""
    for operation in evidence.operations:
        if operation.workload == SchemaEvolutionAct.workload and operation.detail.startswith(MEANS_ANOTHER):
            yield (
                f"{operation.detail.removeprefix(MEANS_ANOTHER)} in {operation.region}, where that is another schema",
                {"region": operation.region, "topic": operation.topic},
            )


@WORKLOAD.mutant("remote-schema-version-kept", "INV-42", patch=part("schema_numbers"))
class _RemoteSchemaVersionKept(RemoteSchemaVersions):
    """A replicated message keeps the schema version of its origin region."""

    def remote_version(self, version: bytes) -> bytes:
        return version
