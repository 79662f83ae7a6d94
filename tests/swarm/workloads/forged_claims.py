"""Clients with forged claims: messages of another region, another producer's name, markers, the name of a region.

No forged message is stored, and no other client is affected. Deduplication by producer name and watermarks by region
are computed from the log, so one forged entry would make a region drop honest messages as duplicates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from emulator.broker.replication.peer_auth import REPLICATOR_PREFIX, publisher_of, replicator_name
from emulator.core.admission import ClientProducer, EntrySizeLimits, Peer, Publisher, Refusal, Scanned, check
from emulator.model.markers import Marker, SubscriptionUpdate
from emulator.model.values import Position
from emulator.simulation.evidence import full
from emulator.simulation.invariant_check import Found
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.commands import create_producer
from emulator.wire.entry import plain_entry, with_replication
from emulator.wire.entry_layout import ensure_checksum
from emulator.wire.markers import encode_marker
from emulator.wire.protobuf import length_delimited, tag, varint
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import part, parts
from tests.swarm.plan import Plan
from tests.swarm.workload import Act, ActContext, Workload
from tests.swarm.workloads.oversized_messages import SinglePublish

FAR = 10**9
"""A sequence id and an entry id beyond any of a run."""
ANSWER_SECONDS = 5.0


WORKLOAD = Workload("forge", runs_in="swarm")


@dataclass(frozen=True, slots=True)
class ForgedClaimAct(Act):
    topic: str
    kind: str
    """A key of KINDS, or REGION_NAME."""
    victim: str
    """A producer of that topic, whose name the client may claim."""
    other: str
    """The region that the client claims as origin of its message."""

    workload: ClassVar[str] = "forge"

    async def perform(self, context: ActContext) -> None:
        client = context.client()
        try:
            connection = await client.connection_for(full(self.topic))
            sender, name = SinglePublish(), self._name(context)
            producer_id, request_id = client.new_id(), client.new_id()
            connection.producers[producer_id] = sender
            await connection.request(create_producer(request_id, full(self.topic), producer_id, name))
            forged = KINDS.get(self.kind, _origin)(self, name)
            connection.write(send_frame(producer_id, 0, data=forged))
            async with asyncio.timeout(ANSWER_SECONDS):
                place = await sender.place
            if place is not None:
                context.note_result(
                    "accepted" if place else "refused", detail=self.kind, topic=full(self.topic)
                )
        except TimeoutError:
            context.note_result("nothing")
        finally:
            await client.close()

    def _name(self, context: ActContext) -> str:
        return replicator_name(self.other, self.region) if self.kind == REGION_NAME else context.name


def _origin(act: ForgedClaimAct, name: str) -> bytes:
    return with_replication(plain_entry(name, 0, 1, b"forged"), act.other, Position(FAR, FAR))


def _update(act: ForgedClaimAct, name: str) -> bytes:
    marker, _ = encode_marker(SubscriptionUpdate("sub-0", ((act.region, Position(1, 0)),)), 1)
    return with_replication(marker, act.other, Position(FAR, FAR))


def _name_of_another(act: ForgedClaimAct, name: str) -> bytes:
    return plain_entry(act.victim, FAR, 1, b"forged")


def _garbled_marker(act: ForgedClaimAct, name: str) -> bytes:
    """Return a marker with an invalid payload. Metadata: producer_name, sequence_id, publish_time, marker_type."""
    metadata = b"".join(
        (
            length_delimited(1, name.encode()),
            tag(2) + varint(0),
            tag(3) + varint(1),
            tag(20) + varint(11),
        )
    )
    return ensure_checksum(len(metadata).to_bytes(4, "big") + metadata + b"\xff\xff")


REGION_NAME = "a region's name"
KINDS: dict[str, Callable[[ForgedClaimAct, str], bytes]] = {
    "an origin": _origin,
    "an update": _update,
    "another producer": _name_of_another,
    "a marker": _garbled_marker,
}


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if random.random() >= 0.25:
        return plan
    acts = []
    for _ in range(random.randint(1, 2)):
        victim = random.choice(plan.producers)
        at = round(random.uniform(0.5, plan.break_seconds * 0.8), 3)
        others = [name for name in plan.regions if name != victim.region] or ["elsewhere"]
        kind = random.choice((*KINDS, REGION_NAME))
        acts.append(ForgedClaimAct(at, victim.region, victim.topic, kind, victim.name, random.choice(others)))
    return replace(plan, acts=(*plan.acts, *acts))


@WORKLOAD.checker("forged-claims-rejected", "INV-21")
def forgeries_refused(evidence: Evidence) -> Found:
    """No region stores an entry with a forged claim of a client."""
    for operation in evidence.operations:
        if operation.workload == ForgedClaimAct.workload and operation.outcome == "accepted":
            yield (
                f"{operation.region} stored what a client forged: {operation.detail}",
                {"region": operation.region, "topic": operation.topic},
            )


# Mutants of the check of entries.


def _overlooks(**shown: Any) -> Callable[..., Refusal | None]:
    """Return a check of entries that replaces a client's claims by these values, so that it overlooks them."""

    def careless(
        publisher: Publisher, entry: Scanned, marker: Marker | None, entry_bytes: int, limits: EntrySizeLimits
    ) -> Refusal | None:
        if isinstance(publisher, ClientProducer):
            entry = copy(entry)
            for field, value in shown.items():
                setattr(entry, field, value)
        return check(publisher, entry, marker, entry_bytes, limits)

    return careless


@WORKLOAD.mutant("forged-producer-accepted", "INV-3", "INV-1", "INV-21", patch=part("check_entry"))
def _forged_producer_accepted(
    publisher: Publisher, entry: Scanned, marker: Marker | None, entry_bytes: int, limits: EntrySizeLimits
) -> Refusal | None:
    """Deduplication uses the producer name in the entry, not the name of its sender."""
    named = ClientProducer(entry.producer_name, "?") if isinstance(publisher, ClientProducer) else publisher
    return check(named, entry, marker, entry_bytes, limits)


@WORKLOAD.mutant("forged-replicator-accepted", "INV-2", "INV-3", "INV-21", patch=part("publisher_of"))
def _forged_replicator_accepted(peer: Peer | None, name: str, connection: str) -> Publisher:
    """Any producer with the name of a replicator is accepted as that replicator."""
    if name.startswith(REPLICATOR_PREFIX):
        return Peer(name.removeprefix(REPLICATOR_PREFIX).partition("-->")[0])
    return publisher_of(peer, name, connection)


WORKLOAD.mutant(
    "forged-origin-accepted",
    "INV-3",
    "INV-2",
    "INV-21",
    safeguard="A client may claim that its message came from another region, with a source position.",
)(parts(check_entry=_overlooks(replicated_from=None, source_position=None)))
WORKLOAD.mutant(
    "client-marker-accepted", "INV-21", "INV-2", "INV-14", safeguard="A client may write markers."
)(parts(check_entry=_overlooks(marker_type=None)))
