"""Clients that send messages above the size limit: a payload that is too large, or metadata that leaves no room for
what replication adds. Regions reject both where they are published; the largest allowed entry reaches every
region."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Literal

from emulator.broker.topic.pending_publish import limits_of
from emulator.client import Batching
from emulator.core.admission import EntrySizeLimits, Publisher, Refusal, Scanned, check
from emulator.errors import ServerError
from emulator.model.markers import Marker
from emulator.run.history_events import payload_digest
from emulator.simulation.evidence import full
from emulator.simulation.invariant_check import Found
from emulator.wire.codec_hot.publishing import Receipt, send_frame
from emulator.wire.commands import create_producer
from emulator.wire.entry_layout import ensure_checksum
from emulator.wire.protobuf import length_delimited, tag, varint
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import part
from tests.swarm.plan import Plan, ProducerPlan, with_settings
from tests.swarm.workload import Act, ActContext, Workload

MESSAGE_BYTES_MAX = 4_000
"""Largest message of every region, in bytes; small enough for the slowest links."""
ANSWER_SECONDS = 30.0
CHECKSUM_BYTES = 6
LARGEST = "the largest"
"""The only kind that regions must accept."""
EXCESS: dict[str, tuple[int, int]] = {
    LARGEST: (0, 0),
    "a payload": (1, 0),
    "a replicated form": (0, 1),
}
"""Kind -> (bytes of the payload above its limit, bytes of the entry above its limit)."""


WORKLOAD = Workload("oversize", runs_in="swarm")


@dataclass(frozen=True, slots=True)
class OversizedMessageAct(Act):
    topic: str
    kind: str
    """A key of EXCESS."""

    workload: ClassVar[str] = "oversize"

    async def perform(self, context: ActContext) -> None:
        client = context.client()
        try:
            connection = await client.connection_for(full(self.topic))
            sender = SinglePublish()
            producer_id, request_id = client.new_id(), client.new_id()
            connection.producers[producer_id] = sender
            await connection.request(create_producer(request_id, full(self.topic), producer_id, context.name))
            payload, entry = self._entry(context)
            self._note(context, payload, "asked")
            connection.write(send_frame(producer_id, 0, data=entry))
            async with asyncio.timeout(ANSWER_SECONDS):
                place = await sender.place
            if place:
                self._note(context, payload, "ok", message_id=place)
                context.note_result("accepted", detail=self.kind, topic=full(self.topic))
            elif place is not None:
                self._note(context, payload, "failed")
                context.note_result("refused", detail=self.kind, topic=full(self.topic))
        except TimeoutError:
            context.note_result("nothing")
        finally:
            await client.close()

    def _entry(self, context: ActContext) -> tuple[bytes, bytes]:
        """Return (payload, entry with it)."""
        limits = limits_of(context.world.regions[self.region].config)
        more_payload, more_entry = EXCESS[self.kind]
        text = f"{context.name}/0/1"
        if more_payload:
            payload = text.encode().ljust(limits.payload_bytes + more_payload)
            return payload, entry_of(context.name, payload)
        payload = text.encode().ljust(limits.payload_bytes)
        return payload, entry_of(context.name, payload, limits.entry_bytes + more_entry)

    def _note(
        self, context: ActContext, payload: bytes, outcome: Literal["asked", "ok", "failed"], **fields: Any
    ) -> None:
        """Record the publish in the history, so that the common checks require its replication and delivery."""
        context.record.note(
            context.name,
            "publish",
            outcome,
            region=self.region,
            topic=self.topic,
            origin_region=self.region,
            producer=context.name,
            sequence_id=0,
            session=f"{context.name}#1",
            payload_digest=payload_digest(payload),
            detail=payload.rstrip(b" ").decode(),
            **fields,
        )


def entry_of(name: str, payload: bytes, total_bytes: int = 0) -> bytes:
    """Return an entry padded to exactly `total_bytes` by a property; 0: without padding. Metadata: producer_name,
    sequence_id, publish_time, properties."""
    head = length_delimited(1, name.encode()) + tag(2) + varint(0) + tag(3) + varint(1)
    size = max(0, total_bytes - len(payload))
    while True:
        filler = length_delimited(1, b"filler") + length_delimited(2, b"." * size)
        metadata = head + (length_delimited(4, filler) if total_bytes else b"")
        excess = CHECKSUM_BYTES + 4 + len(metadata) + len(payload) - total_bytes
        if not total_bytes or excess <= 0:
            return ensure_checksum(len(metadata).to_bytes(4, "big") + metadata + payload)
        size -= excess


class SinglePublish:
    """A producer of a connection that receives the response to its only entry."""

    def __init__(self) -> None:
        self.place: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        """Message id of the stored entry; empty: rejected; None: unknown."""

    def _settle(self, place: str | None) -> None:
        if not self.place.done():
            self.place.set_result(place)

    def receipt(self, receipt: Receipt) -> None:
        self._settle(f"{receipt.ledger_id}:{receipt.entry_id}:-1")

    def send_error(self, sequence_id: int, code: ServerError, message: str) -> None:
        # Any other error comes from the store: the broker had accepted the entry.
        self._settle("" if code is ServerError.NotAllowedError else None)

    def connection_lost(self) -> None:
        self._settle(None)

    def closed_by_broker(self) -> None:
        self._settle(None)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if random.random() >= 0.12:
        return plan
    acts = []
    for _ in range(random.randint(1, 3)):
        producer = random.choice(plan.producers)
        at = round(random.uniform(0.5, plan.break_seconds * 0.8), 3)
        acts.append(OversizedMessageAct(at, producer.region, producer.topic, random.choice(tuple(EXCESS))))
    return replace(
        plan,
        topology=with_settings(plan.topology, max_message_bytes=MESSAGE_BYTES_MAX),
        producers=tuple(map(_that_fit, plan.producers)),
        acts=(*plan.acts, *acts),
    )


def _that_fit(producer: ProducerPlan) -> ProducerPlan:
    """Limit the batches of an honest producer, so that they stay below the maximum size."""
    if producer.batching is None:
        return producer
    return replace(producer, batching=Batching(2, delay_ms_max=producer.batching.delay_ms_max))


@WORKLOAD.checker("oversized-rejected", "INV-23")
def oversized_refused(evidence: Evidence) -> Found:
    """A region rejects a publish that cannot be replicated, and no other."""
    for operation in evidence.operations:
        if operation.workload != OversizedMessageAct.workload or operation.outcome == "nothing":
            continue
        if (operation.outcome == "accepted") != (operation.detail == LARGEST):
            yield (
                f"{operation.region} {operation.outcome} an entry above the limit by {operation.detail}"
                if operation.outcome == "accepted"
                else f"{operation.region} rejected the largest allowed entry",
                {"region": operation.region, "topic": operation.topic},
            )


@WORKLOAD.mutant("replicated-size-ignored", "INV-23", "INV-2", "INV-6", patch=part("check_entry"))
def _replicated_size_ignored(
    publisher: Publisher, entry: Scanned, marker: Marker | None, entry_bytes: int, limits: EntrySizeLimits
) -> Refusal | None:
    """An entry may be so large that it leaves no room for what replication adds."""
    return check(publisher, entry, marker, entry_bytes, replace(limits, entry_bytes=2 * limits.entry_bytes))
