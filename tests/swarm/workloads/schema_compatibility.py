"""Programs that register schemas for a topic with a compatibility strategy, from two regions of a cluster at once:
incompatible schemas are rejected, compatible ones are accepted, and both regions return the same versions.

Each program has a topic of its own, publishes nothing, and compares the responses with a model: records whose fields
have defaults or none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from emulator.client import Client, ClientError, Schema, SchemaType
from emulator.core.schemas.compatibility import CompatibilityStrategy
from emulator.core.schemas.json_text import Incompatible
from emulator.errors import ServerError
from emulator.net.http import NoHttpResponse
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.topics import TRANSACTED
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.expiring_program import CONVERGENCE_SECONDS, STEP_SECONDS, OwnTopicProgram

NAME = "comply"
WORKLOAD = Workload(NAME)
FIELDS = "abc"
LET_IN, KEPT_OUT, DIFFERENT = "let in: ", "kept out: ", "different: "
STRATEGIES = tuple(one for one in CompatibilityStrategy if one is not CompatibilityStrategy.UNDEFINED)
Record = tuple[tuple[str, bool], ...]
"""A record schema: (name of the field, whether it has a default) of each field, sorted."""


def schema_of(record: Record, type_: SchemaType) -> Schema:
    fields = [
        {"name": name, "type": "string"} | ({"default": ""} if default else {}) for name, default in record
    ]
    return Schema(type_, json.dumps({"type": "record", "name": "Order", "fields": fields}).encode())


def record_of(data: str) -> Record:
    """Return the record of a schema definition from a region; inverse of `schema_of`."""
    return tuple(sorted((field["name"], "default" in field) for field in json.loads(data)["fields"]))


def reads(reader: Record, writer: Record) -> bool:
    """Whether the reader schema can read the writer's data: every field without a default was written."""
    return {name for name, default in reader if not default} <= {name for name, _ in writer}


def may_follow(versions: list[Record], new: Record, strategy: CompatibilityStrategy) -> bool:
    """Whether the strategy allows the new schema after these versions; an existing version is always allowed."""
    if not versions or new in versions or strategy is CompatibilityStrategy.ALWAYS_COMPATIBLE:
        return True
    if strategy is CompatibilityStrategy.ALWAYS_INCOMPATIBLE:
        return False
    held_to = versions if strategy.is_transitive else versions[-1:]
    backward = not strategy.new_reads_old or all(reads(new, old) for old in held_to)
    return backward and (not strategy.old_reads_new or all(reads(old, new) for old in held_to))


@dataclass(frozen=True, slots=True)
class SchemaCompatibilityProgram(OwnTopicProgram):
    """A program whose producers register schemas one after the other, half of them in another region of the cluster."""

    strategies: tuple[CompatibilityStrategy, ...]
    """The strategy during the faults, and the one that replaces it afterwards."""
    records: tuple[Record, ...]
    schema_type: SchemaType

    workload: ClassVar[str] = NAME

    def topic(self, context: ActContext) -> str:
        return f"{TRANSACTED}{context.name}"

    async def perform(self, context: ActContext) -> None:
        if not await self._obeyed(context, self.strategies[0]):
            return
        half = len(self.records) // 2
        taken = set[Record]()
        await asyncio.gather(
            self._try_all(context, self.region, self.records[:half:2], taken),
            self._try_all(context, self.reading, self.records[1:half:2], taken),
        )
        await self.wait_for_repair(context)
        reported = await self._checked(context, taken, self.records[half:])
        detail = reported or f"{len(self.records)} schemas, {self.strategies[0].name}"
        context.note_result("refused" if reported else "accepted", topic=self.topic(context), detail=detail)

    # Registering schemas, and admin requests.

    async def _try_all(
        self, context: ActContext, region: str, records: tuple[Record, ...], taken: set[Record]
    ) -> None:
        client = self.client_for(region, context, f"brings-{region}-{len(records)}")
        try:
            for record in records:
                if await self._brought(client, context, record):
                    taken.add(record)
                await asyncio.sleep(self.pause_seconds)
        finally:
            await client.close()

    async def _brought(self, client: Client, context: ActContext, record: Record) -> bool | None:
        """Open a producer with this schema. Return whether the region accepts the schema; None: unknown."""
        try:
            async with asyncio.timeout(STEP_SECONDS):
                schema = schema_of(record, self.schema_type)
                await (await client.producer(self.topic(context), schema=schema)).close()
        except ClientError as failure:
            return False if failure.code is ServerError.IncompatibleSchema else None
        except TimeoutError:
            return None
        return True

    async def _obeyed(self, context: ActContext, strategy: CompatibilityStrategy) -> bool:
        """Set the compatibility strategy. Return whether both regions apply it before the deadline."""
        path = "/schemaCompatibilityStrategy"
        if not await self.retry_until_done(
            context, "PUT", f"{path}?isGlobal=true", strategy.name, done=(204,)
        ):
            return False
        both = [strategy.name, strategy.name]
        return await self._come_about(
            context, lambda reported: reported == both, f"persistent/{{topic}}{path}?applied=true"
        )

    async def _come_about(self, context: ActContext, is_so: Callable[[list[Any]], bool], path: str) -> bool:
        """Wait until the responses of both regions to the path fulfil the condition. Return False at the deadline."""
        give_up_at = max(context.now, self.faults_end_seconds) + CONVERGENCE_SECONDS
        while context.now < give_up_at:
            if is_so([await self._reported(context, region, path) for region in (self.region, self.reading)]):
                return True
            await asyncio.sleep(0.2)
        return False

    async def _reported(self, context: ActContext, region: str, path: str) -> Any:
        name = self.topic(context).partition("://")[2]
        host = context.world.client_host(context.name, self.region)
        try:
            target = f"/admin/v2/{path.format(topic=name)}"
            answer = await context.world.ask_admin(region, "GET", target, host=host)
        except NoHttpResponse:
            return None
        return answer.json() if answer.status == 200 else answer.status

    async def _versions(self, context: ActContext, region: str) -> list[Record]:
        reported = await self._reported(context, region, "schemas/{topic}/schemas")
        if not isinstance(reported, dict):
            return []
        return [record_of(one["data"]) for one in reported["getSchemaResponses"]]

    # After the faults.

    async def _checked(self, context: ActContext, taken: set[Record], records: tuple[Record, ...]) -> str:
        versions = await self._versions(context, self.region)
        strategy = self.strategies[0]
        for number, record in enumerate(versions):
            if not may_follow(versions[:number], record, strategy):
                return f"{LET_IN}{record} after {versions[:number]} under {strategy.name}"
        if not taken <= set(versions):
            return f"{DIFFERENT}{taken - set(versions)} were accepted and are not returned"
        for step, record in enumerate(records):
            if step == len(records) // 2 and not await self._obeyed(context, self.strategies[1]):
                return ""
            strategy = self.strategies[step >= len(records) // 2]
            reported = await self._compared(
                context, (self.region, self.reading)[step % 2], versions, record, strategy
            )
            if reported:
                return reported
        for region in (self.region, self.reading):
            if not await self._come_about_in(context, region, versions):
                return f"{DIFFERENT}{await self._versions(context, region)} in {region}, and {versions} were accepted"
        return ""

    async def _compared(
        self,
        context: ActContext,
        region: str,
        versions: list[Record],
        record: Record,
        strategy: CompatibilityStrategy,
    ) -> str:
        """Register one schema and compare the outcome with the model. Return the violation; empty: none. An accepted
        schema is added to `versions`."""
        client = self.client_for(region, context, f"calm-{len(versions)}-{region}")
        try:
            arrived = await self._brought(client, context, record)
        finally:
            await client.close()
        said = f"{record} after {versions} under {strategy.name}, in {region}"
        if arrived and not may_follow(versions, record, strategy):
            return f"{LET_IN}{said}"
        if arrived is False and may_follow(versions, record, strategy):
            return f"{KEPT_OUT}{said}"
        if arrived and record not in versions:
            versions.append(record)
        return ""

    async def _come_about_in(self, context: ActContext, region: str, versions: list[Record]) -> bool:
        give_up_at = context.now + CONVERGENCE_SECONDS
        while await self._versions(context, region) != versions:
            if context.now >= give_up_at:
                return False
            await asyncio.sleep(0.2)
        return True


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs, each in two regions of one cluster if the cluster has two."""
    return replace(plan, acts=(*plan.acts, *(_act(random, plan) for _ in range(random.randint(1, 4)))))


def _act(random: Random, plan: Plan) -> SchemaCompatibilityProgram:
    cluster = random.choice(plan.topology.clusters)
    names = [region.name for region in cluster.regions]
    seconds = plan.break_seconds
    region = random.choice(names)
    other = random.choice([name for name in names if name != region] or names)
    count = random.randint(12, 30)
    return SchemaCompatibilityProgram(
        round(random.uniform(0.2, seconds * 0.5), 3),
        region,
        other,
        0,
        round(seconds / count * random.uniform(0.1, 1.0), 4),
        seconds + 1.0,
        (random.choice(STRATEGIES), random.choice(STRATEGIES)),
        tuple(_record(random) for _ in range(count)),
        random.choice((SchemaType.AVRO, SchemaType.JSON)),
    )


def _record(random: Random) -> Record:
    names = [name for name in FIELDS if random.random() < 0.6] or [FIELDS[0]]
    return tuple((name, random.random() < 0.6) for name in names)


# INV-114


@WORKLOAD.mutant("any-schema-accepted", "INV-114", patch=part("check_follows"))
def _any_schema_accepted(_earlier: Schema, _new: Schema, _strategy: CompatibilityStrategy) -> None:
    """Every schema is accepted, regardless of the compatibility strategy."""
    return


@WORKLOAD.mutant("no-schema-accepted", "INV-114", patch=part("check_follows"))
def _no_schema_accepted(_earlier: Schema, _new: Schema, _strategy: CompatibilityStrategy) -> None:
    """A topic with a schema rejects every other schema, regardless of the compatibility strategy."""
    raise Incompatible("nothing may")


WORKLOAD.reports("incompatible-schemas-rejected", "INV-114", LET_IN, "an incompatible schema was accepted")
WORKLOAD.reports("compatible-schemas-accepted", "INV-114", KEPT_OUT, "a compatible schema was rejected")
WORKLOAD.reports("schema-versions-agree", "INV-41", DIFFERENT, "versions differ")
