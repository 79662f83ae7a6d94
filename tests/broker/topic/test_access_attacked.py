"""Exclusive producers while stores fail, topics are unloaded and administrators intervene."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator.broker.explain.topics import access_sentences
from emulator.broker.topic import checkpoints
from emulator.broker.topic import topic as topics
from emulator.broker.topic.access_store import newest_grant
from emulator.client import AccessMode, ClientError
from emulator.errors import ServerError, StorageError
from emulator.model.stored_keys import GrantKey, WaitQueueKey
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.world import World
from emulator.storage.contract import Versioned
from tests.broker.regions import broker_of
from tests.broker.topic.test_exclusive_producers import (
    SLOW,
    TOPIC,
    WITH_GRACE_PERIOD,
    Contender,
    contenders,
    entries,
    fenced,
    in_line,
    stored_line,
)

EXCLUSIVE, FENCING = AccessMode.EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING
OTHER = "persistent://public/default/other"


async def unload(w: World, times: int = 1) -> None:
    directory = broker_of(w).directory
    unloading = [directory.unload(TOPIC, "requested by the admin API") for _ in range(times)]
    await asyncio.gather(*map(w.regions["us"].host.ask, unloading))


async def store(w: World, key: str, value: bytes) -> None:
    async def put() -> None:
        broker = broker_of(w)
        broker.store.get(key)
        await broker.store.put(key, value)

    await w.regions["us"].host.ask(put())


DAMAGED = [
    b"",
    b"\xff\xfe",
    b"[]",
    b"{}",
    b'{"epoch": 0, "owner": "a", "first_entry": 1e999, "end_entry": null}',
    b'{"epoch": 7, "owner": "a", "first_entry": 0, "end_entry": null}',
    b'{"epoch": -1, "owner": "a", "first_entry": 0, "end_entry": null}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("value", DAMAGED, ids=lambda value: repr(value[:24]))
async def test_a_damaged_grant_makes_only_its_topic_unavailable_with_a_clear_error(
    world: World, value: bytes
) -> None:
    (owner,) = await contenders(world, "owner")
    await owner.producer.send(b"mine")
    await owner.producer.close()
    await store(world, GrantKey.of(TOPIC, 0).text, value)
    await unload(world)
    with pytest.raises(ClientError, match=r"grant/.* is damaged .*: the owner of the topic is unknown"):
        await world.client("us").producer(TOPIC, access_mode=EXCLUSIVE)
    other = await world.client("us").producer(OTHER, access_mode=EXCLUSIVE)
    await other.send(b"fine")
    assert len(entries(world)) == 1


@pytest.mark.parametrize(
    "value", [*DAMAGED, b'[["c"]]', b'[["c", null]]', b'[["c", 1e999]]'], ids=lambda v: repr(v[:24])
)
@pytest.mark.world("us", settings=WITH_GRACE_PERIOD)
async def test_a_damaged_wait_queue_loses_only_the_order(world: World, value: bytes) -> None:
    owner, *_ = await contenders(world, "owner", "c", "a")
    world.kill("us")
    world.regions["us"].medium.values[WaitQueueKey(TOPIC).text] = Versioned(value, 0)
    world.start("us")
    await owner.producer.send(b"still mine")
    await world.simulation.until(lambda: sorted(in_line(world)) == ["a", "c"])


@pytest.mark.world("us", settings=WITH_GRACE_PERIOD)
async def test_owner_and_queue_order_survive_fifty_concurrent_unloads(world: World) -> None:
    owner, *_ = await contenders(world, "owner", "c", "a", "b")
    began = world.simulation.now
    await unload(world, 50)
    await owner.producer.send(b"still mine")
    await world.simulation.until(lambda: in_line(world) == ["c", "a", "b"])
    assert owner.producer.topic_epoch == 0
    assert world.simulation.now - began < 5


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.world("us", settings=WITH_GRACE_PERIOD)
async def test_waiting_producers_are_served_in_the_new_topic_after_a_deletion(
    world: World, seed: int
) -> None:
    owner, first, second = await contenders(world, "owner", "first", "second")
    await owner.producer.send(b"gone with it")
    await world.regions["us"].host.ask(broker_of(world).directory.delete(TOPIC, force=True))
    owner.die()
    await world.simulation.until(lambda: first.has_it or second.has_it)
    holder, other = (first, second) if first.has_it else (second, first)
    await holder.producer.close()
    await other.opening


def owns(w: World) -> str:
    topic = broker_of(w).directory.serving.get(TOPIC)
    owner = None if topic is None else topic.access.owner
    return "" if owner is None else owner.producer_name


@pytest.mark.world("us", settings=WITH_GRACE_PERIOD)
async def test_waiting_producers_survive_a_failing_store(world: World) -> None:
    owner, first, second = await contenders(world, "owner", "first", "second")
    disk = world.regions["us"].medium
    disk.faults = DiskFaults(failure_probability=1.0)
    owner.producer.send_nowait(b"lost")
    await asyncio.sleep(4)
    disk.faults = DiskFaults()
    await owner.producer.send(b"still mine")
    await world.simulation.until(lambda: in_line(world) == ["first", "second"])
    await owner.producer.close()
    await first.opening
    await first.producer.close()
    await second.opening


@pytest.mark.world("us", settings=WITH_GRACE_PERIOD)
async def test_a_failed_promotion_is_repeated_when_the_store_recovers(world: World) -> None:
    owner, first, second = await contenders(world, "owner", "first", "second")
    disk = world.regions["us"].medium
    disk.faults = DiskFaults(failure_probability=1.0)
    owner.die()
    await asyncio.sleep(4)
    disk.faults = DiskFaults()
    await world.simulation.until(lambda: first.has_it or second.has_it)
    holder, other = (first, second) if first.has_it else (second, first)
    await holder.producer.send(b"mine")
    await holder.producer.close()
    await other.opening
    await other.producer.close()
    standing = broker_of(world).directory.serving[TOPIC].access.ownership
    await world.simulation.until(lambda: "no producer waits" in standing.last_change)
    assert standing.ownerless_since is None, "rejected producers do not wait any more"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.world("us", disk=SLOW)
async def test_no_pending_send_of_a_fenced_producer_is_stored_after_the_new_epoch(
    world: World,
    seed: int,
) -> None:
    loser = await world.client("us").producer(TOPIC, name="loser", access_mode=EXCLUSIVE)
    sends = [loser.send_nowait(b"%d" % number) for number in range(300)]
    winner = await world.client("us").producer(TOPIC, name="winner", access_mode=FENCING)
    await winner.send(b"after")
    assert (await fenced(loser)).code is ServerError.ProducerFenced
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    stored = entries(world)
    assert [b"winner" in entry for entry in stored].index(True) == len(stored) - 1
    refused = [one for one in outcomes if isinstance(one, ClientError)]
    assert all(one.code is ServerError.ProducerFenced for one in refused)
    assert len(outcomes) - len(refused) <= len(stored) - 1


@pytest.mark.world("us", disk=SLOW, settings=WITH_GRACE_PERIOD)
async def test_a_stop_during_a_promotion_leaves_one_owner(world: World) -> None:
    owner, first, second = await contenders(world, "owner", "first", "second")
    owner.die()
    await world.simulation.until(lambda: owns(world) == "first")
    region = broker_of(world)
    await world.regions["us"].host.ask(region.stop())
    world.kill("us")
    world.start("us")
    await world.simulation.until(lambda: first.has_it or second.has_it)
    holder, other = (first, second) if first.has_it else (second, first)
    await holder.producer.send(b"mine")
    assert not other.has_it
    await holder.producer.close()
    await other.opening


@pytest.mark.parametrize(
    "home", [5, True, [], {}, ["us"], "", " ", "nowhere", "us/../eu", "us\n", "u" * 5_000]
)
async def test_an_invalid_exclusive_region_is_refused_and_an_empty_one_means_none(
    world: World, home: object
) -> None:
    (owner,) = await contenders(world, "owner")
    path = "/admin/v2/namespaces/public/default/exclusiveHome"
    answer = await world.ask_admin("us", "POST", path, home)
    assert answer.status in ((204,) if home == "" else (400, 412))
    await owner.producer.send(b"still mine")
    assert owner.producer.topic_epoch == 0


@pytest.mark.world("us", "eu")
async def test_admin_requests_for_missing_topics_are_answered(world: World) -> None:
    await world.client("eu").producer(OTHER, access_mode=EXCLUSIVE)
    for topic, status in (("nothing", 404), ("other", 404), ("a%00b", 400), ("..", 404)):
        answer = await world.ask_admin("us", "PUT", f"/admin/v2/persistent/public/default/{topic}/unload")
        assert answer.status in (status, 404), (topic, answer)


async def test_a_long_wait_queue_is_explained_in_a_readable_line(world: World) -> None:
    (owner,) = await contenders(world, "owner")
    client = world.client("us")
    waiting = [
        asyncio.ensure_future(
            client.producer(TOPIC, name=f"w{number:04d}", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        )
        for number in range(200)
    ]
    await world.simulation.until(lambda: len(in_line(world)) == 200)
    said = " ".join(access_sentences(broker_of(world).directory.serving[TOPIC]))
    assert "200 wait: " in said
    assert " and 180 more" in said
    assert said.count("'w") == 20
    for one in waiting:
        one.cancel()
    await owner.producer.send(b"fine")


@pytest.mark.world("us", settings=WITH_GRACE_PERIOD)
async def test_queue_places_survive_a_restart_for_the_grace_period_only(
    world: World,
) -> None:
    """Also where no owner is expected back, because the topic was shared."""
    shared = await world.client("us").producer(TOPIC, name="shared")
    early = Contender(world, "early")
    await world.simulation.until(lambda: in_line(world) == ["early"])
    await world.simulation.until(lambda: stored_line(world) == ["early"])
    early.die()
    world.kill("us")
    world.start("us")
    await shared.send(b"still here")
    second = Contender(world, "second")
    await world.simulation.until(lambda: in_line(world) == ["second"])
    await asyncio.sleep(6)
    client = world.client("us")
    again = asyncio.ensure_future(
        client.producer(TOPIC, name="early", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    )
    await world.simulation.until(lambda: len(in_line(world)) == 2)
    assert in_line(world) == ["second", "early"]
    again.cancel()
    assert not second.has_it


@pytest.mark.world("us", settings=WITH_GRACE_PERIOD)
async def test_a_topic_that_failed_to_load_decides_nothing_afterwards(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log did not respond. It knows the former owner, and decides nothing when the grace period is over."""
    fails = 0

    async def replay(*arguments: Any) -> int:
        nonlocal fails
        if fails > 0:
            fails -= 1
            raise StorageError("the log does not answer", definite=True)
        return await checkpoints.replay(*arguments)

    monkeypatch.setattr(topics, "replay", replay)

    (owner,) = await contenders(world, "owner")
    fails = 3
    await unload(world)
    await owner.producer.send(b"still mine")
    assert fails == 0
    await asyncio.sleep(3 * WITH_GRACE_PERIOD.exclusive_grace_period_ms / 1000)
    await owner.producer.send(b"and still")
    granted = newest_grant(broker_of(world).store, TOPIC)
    assert granted is not None
    assert granted.end_entry is None, "the owner's grant is still open"
