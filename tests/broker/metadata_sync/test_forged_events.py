"""Forged metadata events, from clients and from other clusters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emulator.broker.metadata_sync.event_topic import ReceivedEvent
from emulator.broker.metadata_sync.inbox import EventInbox
from emulator.broker.region import Region
from emulator.client import ClientError, ConsumerType, InitialPosition
from emulator.core.metadata.event import NUMBER_MAX, SyncEvent
from emulator.core.metadata.messages import PARTS_MAX, decode
from emulator.core.metadata.version_vector import ORIGINS_MAX, stored_vector
from emulator.core.policies.topics import DEDUPLICATION
from emulator.errors import StorageError
from emulator.model.stored_keys import SYNC_APPLIED_PATH, TenantPath
from tests.broker.metadata_sync.clusters import (
    EVENTS,
    NAMESPACE,
    TWO,
    clusters,
    create,
    leading,
    soon,
    synchronizer,
)
from tests.broker.regions import Regions

pytestmark = pytest.mark.within(120)


def event(path: str, value: Any = None, kind: str = "Modified", **changes: Any) -> dict[str, Any]:
    """An event of americas."""
    return {
        "path": path,
        "value": value,
        "type": kind,
        "lastUpdatedTimestamp": 9_000_000_000_000,
        "sourceCluster": "americas",
        "sequence": 1_000_000,
        "incarnation": "forged",
    } | changes


def pack(*events: dict[str, Any], **changes: Any) -> bytes:
    content = {
        "version": 1,
        "kind": "events",
        "source": "americas",
        "incarnation": "forged",
        "after": 0,
        "upto": 1_000_000,
        "events": list(events),
    }
    return json.dumps(content | changes).encode()


async def publish_forged(region: Region, *payloads: bytes) -> None:
    """Let the region that publishes its cluster's events publish these."""
    await (await leading(region)).channel.publish(payloads)


async def still_in_step(world: Regions) -> None:
    """Check that a change made in either cluster arrives in the other."""
    us, eu = world.running["us"], world.running["eu"]
    for here, there, name in ((us, eu, "from-us"), (eu, us, "from-eu")):
        await here.metadata.put(TenantPath(name).text, b"{}")
        await soon(lambda there=there, name=name: name in there.policies.tenants())


async def test_a_client_cannot_publish_events_of_its_cluster() -> None:
    """Other clusters apply what a region publishes, and cannot see which of its clients published it."""
    async with clusters(TWO) as world, world.client("us") as client:
        eu = world.running["eu"]
        await create(world.running["us"])
        await soon(lambda: eu.policies.has_namespace("acme/orders"))

        async def forge() -> None:
            producer = await client.producer(EVENTS)
            await producer.send(pack(event(NAMESPACE.text, kind="Deleted")))

        with pytest.raises(ClientError, match="only regions may publish to it"):
            await forge()
        await still_in_step(world)
        assert eu.policies.has_namespace("acme/orders")


async def test_a_client_may_read_events_and_acknowledges_none_for_the_leader() -> None:
    async with clusters(TWO) as world, world.client("us") as client:
        with pytest.raises(ClientError, match="reserved for regions"):
            await client.subscribe(EVENTS, "metadata-syncer", type_=ConsumerType.FAILOVER)
        reader = await client.subscribe(EVENTS, "mine", initial_position=InitialPosition.EARLIEST)
        await still_in_step(world)
        assert json.loads((await reader.receive()).payload)["version"] == 1


HOSTILE = {
    "half a character": event("tenant/\ud800", kind="Created"),
    "half a character in an element": event("tenant/acme/\ud800", 1),
    "a zero": event("tenant/a\0b", kind="Created"),
    "no name": event("tenant/", kind="Created"),
    "a namespace of a name that is none": event("namespace/a b", kind="Created"),
    "a path of a topic that is none": event("topic-policies/nonsense/policies/message_ttl", 1),
    "a field that is policies": event("namespace/acme%2Forders/policies", [1]),
    "a partitioned topic of nonsense": event("partitioned-topic/x", kind="Created"),
    "not a number": event("namespace/acme%2Forders/policies/message_ttl", float("nan")),
    "infinitely many": event("tenant/acme/adminRoles", float("inf")),
    "roles that are none": event("tenant/acme/adminRoles", 7),
    "clusters that are none": event("tenant/acme/allowedClusters", {"a": [[]]}),
    "everything deep": event("tenant/acme/x", json.loads("[" * 900 + "]" * 900)),
    "a deletion with a value": event("namespace/acme%2Forders/policies/x", 1, kind="Deleted"),
    "an incarnation of nonsense": event("tenant/acme/y", 1, incarnation=["forged"]),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_an_invalid_event_is_skipped(what: str) -> None:
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us)
        await soon(lambda: eu.policies.has_namespace("acme/orders"))
        await publish_forged(us, pack(HOSTILE[what]))
        await still_in_step(world)
        eu.policies.tenants()
        eu.policies.namespaces()


async def test_an_ephemeral_event_belongs_to_its_source_and_is_not_applied() -> None:
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us)
        await soon(lambda: eu.policies.has_namespace("acme/orders"))
        element = f"{NAMESPACE.text}/policies/deduplication"
        await publish_forged(us, pack(event(element, True, options=["Ephemeral"])))
        await still_in_step(world)
        assert not eu.policies.of_namespace("acme/orders", DEDUPLICATION)
        later = event(element, True, options=["Sequential"], sequence=1_000_001)
        await publish_forged(us, pack(later, after=1_000_000, upto=1_000_001))
        await soon(lambda: eu.policies.of_namespace("acme/orders", DEDUPLICATION))


@pytest.mark.parametrize("hybrid", [False, True])
async def test_an_event_far_in_the_future_does_not_block_later_changes(hybrid: bool) -> None:
    """INV-81. It is also counted in a metric."""
    async with clusters(TWO, metadata_sync_hybrid_clocks=hybrid) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us)
        await soon(lambda: eu.policies.has_namespace("acme/orders"))
        forged = event(f"{NAMESPACE.text}/policies/deduplication", True, lastUpdatedTimestamp=NUMBER_MAX)
        await publish_forged(us, pack(forged))
        await soon(lambda: eu.policies.of_namespace("acme/orders", DEDUPLICATION))
        figures = synchronizer(eu).metrics
        await soon(lambda: figures.from_the_future == 1)  # a moment after it was applied
        await eu.policies.set(NAMESPACE, DEDUPLICATION, False)
        assert eu.policies.of_namespace("acme/orders", DEDUPLICATION) is False
        await soon(lambda: us.policies.of_namespace("acme/orders", DEDUPLICATION) is False)
        await still_in_step(world)


def test_a_path_that_no_store_accepts_is_rejected() -> None:
    """On SQLite it would stop the sync leader for good: the same message would be applied again and again."""
    with pytest.raises(ValueError, match="is not a text"):
        SyncEvent.from_json(event("tenant/\ud800", kind="Created"))


# Contents of an inbox.


async def test_a_repeated_batch_counts_the_changes_that_it_undoes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report in the batch that had failed counted as received before its events."""
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us)
        await soon(lambda: eu.policies.has_namespace("acme/orders"))
        world.cut("us", "eu")
        await eu.policies.set(NAMESPACE, DEDUPLICATION, True)
        clock = (await leading(eu))._state.clock
        vector = {f"europe:{clock.incarnation}": clock.sequence}
        report = json.dumps({"version": 1, "kind": "standing", "source": "americas", "vector": vector})
        events = pack(event(f"{NAMESPACE.text}/policies/deduplication", False))

        async def fail(work: object) -> None:
            raise StorageError("the store is away", definite=True)

        with monkeypatch.context() as broken:
            broken.setattr(eu.metadata, "transact", fail)
            with pytest.raises(StorageError):
                await take(eu, events, report.encode())
        await take(eu, events, report.encode())
        assert eu.policies.of_namespace("acme/orders", DEDUPLICATION) is False
        assert synchronizer(eu).metrics.undone == 1


def answer(number: int, part: int, parts: int, *, whole: bool = True, stamps: int = 3) -> bytes:
    content = {
        "version": 1,
        "kind": "answer",
        "source": "americas",
        "to": "europe",
        "number": number,
        "part": part,
        "parts": parts,
        "vector": {},
        "whole": whole,
        "events": [
            event(f"tenant/{number}-{part}-{one}", kind="Created", sequence=one + 1) for one in range(stamps)
        ],
    }
    return json.dumps(content).encode()


def standing(origins: int, first: int) -> bytes:
    vector = {f"americas:{first + one}": 1 for one in range(origins)}
    return json.dumps({"version": 1, "kind": "standing", "source": "americas", "vector": vector}).encode()


async def take(region: Region, *payloads: bytes) -> EventInbox:
    """Let the region's sync leader apply these, as if they came from us."""
    inbox = (await leading(region)).inbox
    await inbox.apply([ReceivedEvent(0, "us", payload) for payload in payloads], list)
    return inbox


async def test_an_inbox_remembers_one_unfinished_answer_of_each_cluster() -> None:
    """It kept every part of every response for as long as its region was the leader."""
    async with clusters(TWO) as world:
        eu = world.running["eu"]
        for number in range(50):
            inbox = await take(eu, *[answer(number, part, 3) for part in range(3)])
        assert not inbox._partial_answers, "every response is complete"
        for number in range(50, 100):
            await take(eu, answer(number, 0, 3))
        assert [one.number for one in inbox._partial_answers.values()] == [99]
        assert len(inbox._partial_answers["americas"].stamps) == 3
        await take(eu, answer(99, 1, 3), answer(99, 1, 3), answer(99, 2, 3))
        assert not inbox._partial_answers, "a repeated part counts once"


async def test_invented_origins_are_bounded() -> None:
    """Each of its messages may name ORIGINS_MAX origins, and each of them different ones."""
    async with clusters(TWO) as world:
        eu = world.running["eu"]
        for message in range(5):
            inbox = await take(eu, standing(ORIGINS_MAX, message * ORIGINS_MAX))
        assert set(inbox.reported) == {"americas"}
        assert len(inbox.reported["americas"]) == ORIGINS_MAX
        for message in range(3):
            vector = {f"asia:{message * ORIGINS_MAX + one}": 1 for one in range(ORIGINS_MAX)}
            content = json.loads(answer(message, 0, 1, whole=False)) | {"vector": vector}
            await take(eu, json.dumps(content).encode())
        assert len(stored_vector(eu.metadata.get(SYNC_APPLIED_PATH.text))) <= ORIGINS_MAX
        await still_in_step(world)


@pytest.mark.parametrize("parts", [PARTS_MAX + 1, NUMBER_MAX])
def test_an_answer_with_too_many_parts_is_rejected(parts: int) -> None:
    with pytest.raises(ValueError, match="at most"):
        decode(answer(1, 0, parts))
