"""Exclusive producers while the region's store, its topics and its administrators do their worst."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.explain.access import access_sentences
from emulator.broker.topic import recovery as loading
from emulator.broker.topic import topic as topics
from emulator.broker.topic.exclusive_access import newest_grant
from emulator.broker.topic.topic import Topic
from emulator.client import AccessMode, ClientError
from emulator.errors import ServerError, StorageError
from emulator.model.stored_keys import GrantKey, LineKey
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.world import World, world
from emulator.storage.contract import Versioned
from tests.broker.topic.test_exclusive_producers import (
    PATIENT,
    SLOW,
    TOPIC,
    Contender,
    broker_of,
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
def test_a_damaged_grant_costs_its_topic_one_clear_sentence_and_other_topics_nothing(value: bytes) -> None:
    with world("us") as w:

        async def story() -> None:
            (owner,) = await contenders(w, "owner")
            await owner.producer.send(b"mine")
            await owner.producer.close()
            await store(w, GrantKey.of(TOPIC, 0).text, value)
            await unload(w)
            with pytest.raises(
                ClientError, match=r"grant/.* is damaged .*: the owner of the topic is unknown"
            ):
                await w.client("us").producer(TOPIC, access_mode=EXCLUSIVE)
            other = await w.client("us").producer(OTHER, access_mode=EXCLUSIVE)
            await other.send(b"fine")
            assert len(entries(w)) == 1

        w.play(story())


@pytest.mark.parametrize(
    "value", [*DAMAGED, b'[["c"]]', b'[["c", null]]', b'[["c", 1e999]]'], ids=lambda v: repr(v[:24])
)
def test_a_damaged_line_costs_an_order_and_nothing_else(value: bytes) -> None:
    with world("us", settings=PATIENT) as w:

        async def story() -> None:
            owner, *_ = await contenders(w, "owner", "c", "a")
            w.kill("us")
            w.regions["us"].disk.values[LineKey(TOPIC).text] = Versioned(value, 0)
            w.start("us")
            await owner.producer.send(b"still mine")
            await w.simulation.until(lambda: sorted(in_line(w)) == ["a", "c"])

        w.play(story())


def test_fifty_unloads_at_once_leave_the_owner_its_topic_and_the_line_its_order() -> None:
    with world("us", settings=PATIENT) as w:

        async def story() -> None:
            owner, *_ = await contenders(w, "owner", "c", "a", "b")
            began = w.simulation.now
            await unload(w, 50)
            await owner.producer.send(b"still mine")
            await w.simulation.until(lambda: in_line(w) == ["c", "a", "b"])
            assert owner.producer.topic_epoch == 0
            assert w.simulation.now - began < 5

        w.play(story())


@pytest.mark.parametrize("seed", range(4))
def test_when_a_topic_is_deleted_those_who_wait_are_served_in_the_new_one(seed: int) -> None:
    with world("us", settings=PATIENT, seed=seed) as w:

        async def story() -> None:
            owner, first, second = await contenders(w, "owner", "first", "second")
            await owner.producer.send(b"gone with it")
            await w.regions["us"].host.ask(broker_of(w).directory.delete(TOPIC, force=True))
            owner.die()
            await w.simulation.until(lambda: first.has_it or second.has_it)
            holder, other = (first, second) if first.has_it else (second, first)
            await holder.producer.close()
            await other.opening

        w.play(story())


def owns(w: World) -> str:
    topic = broker_of(w).directory.serving.get(TOPIC)
    owner = None if topic is None else topic.access.owner
    return "" if owner is None else owner.producer_name


def test_those_who_wait_notice_nothing_of_a_store_that_fails_for_a_while() -> None:
    with world("us", settings=PATIENT) as w:

        async def story() -> None:
            owner, first, second = await contenders(w, "owner", "first", "second")
            disk = w.regions["us"].disk
            disk.faults = DiskFaults(failure_probability=1.0)
            owner.producer.send_nowait(b"lost")
            await asyncio.sleep(4)
            disk.faults = DiskFaults()
            await owner.producer.send(b"still mine")
            await w.simulation.until(lambda: in_line(w) == ["first", "second"])
            await owner.producer.close()
            await first.opening
            await first.producer.close()
            await second.opening

        w.play(story())


def test_a_promotion_that_a_failing_store_prevents_comes_when_it_is_well_again() -> None:
    with world("us", settings=PATIENT) as w:

        async def story() -> None:
            owner, first, second = await contenders(w, "owner", "first", "second")
            disk = w.regions["us"].disk
            disk.faults = DiskFaults(failure_probability=1.0)
            owner.die()
            await asyncio.sleep(4)
            disk.faults = DiskFaults()
            await w.simulation.until(lambda: first.has_it or second.has_it)
            holder, other = (first, second) if first.has_it else (second, first)
            await holder.producer.send(b"mine")
            await holder.producer.close()
            await other.opening
            await other.producer.close()
            standing = broker_of(w).directory.serving[TOPIC].access.standing
            await w.simulation.until(lambda: "no producer waits" in standing.last_change)
            assert standing.ownerless_since is None, "those who were refused wait no more"

        w.play(story())


@pytest.mark.parametrize("seed", range(6))
def test_a_loser_with_many_sends_under_way_is_fenced_and_none_of_them_follows_the_new_epoch(
    seed: int,
) -> None:
    with world("us", disk=SLOW, seed=seed) as w:

        async def story() -> None:
            loser = await w.client("us").producer(TOPIC, name="loser", access_mode=EXCLUSIVE)
            sends = [loser.send_nowait(b"%d" % number) for number in range(300)]
            winner = await w.client("us").producer(TOPIC, name="winner", access_mode=FENCING)
            await winner.send(b"after")
            assert (await fenced(loser)).code is ServerError.ProducerFenced
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            stored = entries(w)
            assert [b"winner" in entry for entry in stored].index(True) == len(stored) - 1
            refused = [one for one in outcomes if isinstance(one, ClientError)]
            assert all(one.code is ServerError.ProducerFenced for one in refused)
            assert len(outcomes) - len(refused) <= len(stored) - 1

        w.play(story())


def test_a_region_that_stops_while_it_promotes_leaves_one_owner_when_it_is_back() -> None:
    with world("us", disk=SLOW, settings=PATIENT) as w:

        async def story() -> None:
            owner, first, second = await contenders(w, "owner", "first", "second")
            owner.die()
            await w.simulation.until(lambda: owns(w) == "first")
            region = broker_of(w)
            await w.regions["us"].host.ask(region.stop())
            w.kill("us")
            w.start("us")
            await w.simulation.until(lambda: first.has_it or second.has_it)
            holder, other = (first, second) if first.has_it else (second, first)
            await holder.producer.send(b"mine")
            assert not other.has_it
            await holder.producer.close()
            await other.opening

        w.play(story())


@pytest.mark.parametrize(
    "home", [5, True, [], {}, ["us"], "", " ", "nowhere", "us/../eu", "us\n", "u" * 5_000]
)
def test_a_home_that_is_none_is_refused_or_means_none_and_the_owner_goes_on(home: object) -> None:
    with world("us") as w:

        async def story() -> None:
            (owner,) = await contenders(w, "owner")
            path = "/admin/v2/namespaces/public/default/exclusiveHome"
            answer = await w.ask_admin("us", "POST", path, home)
            assert answer.status in ((204,) if home == "" else (400, 412))
            await owner.producer.send(b"still mine")
            assert owner.producer.topic_epoch == 0

        w.play(story())


def test_what_an_administrator_asks_of_topics_that_are_not_here_is_answered() -> None:
    with world("us", "eu") as w:

        async def story() -> None:
            await w.client("eu").producer(OTHER, access_mode=EXCLUSIVE)
            for topic, status in (("nothing", 404), ("other", 404), ("a%00b", 400), ("..", 404)):
                answer = await w.ask_admin("us", "PUT", f"/admin/v2/persistent/public/default/{topic}/unload")
                assert answer.status in (status, 404), (topic, answer)

        w.play(story())


def test_hundreds_that_wait_are_explained_in_a_line_that_people_can_read() -> None:
    with world("us") as w:

        async def story() -> None:
            (owner,) = await contenders(w, "owner")
            client = w.client("us")
            waiting = [
                asyncio.ensure_future(
                    client.producer(TOPIC, name=f"w{number:04d}", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
                )
                for number in range(200)
            ]
            await w.simulation.until(lambda: len(in_line(w)) == 200)
            said = " ".join(access_sentences(broker_of(w).directory.serving[TOPIC]))
            assert "200 wait: " in said
            assert " and 180 more" in said
            assert said.count("'w") == 20
            for one in waiting:
                one.cancel()
            await owner.producer.send(b"fine")

        w.play(story())


def test_places_of_before_a_restart_are_kept_for_as_long_as_an_owner_would_be_and_no_longer() -> None:
    """Also where no owner is awaited, because the topic was shared."""
    with world("us", settings=PATIENT) as w:

        async def story() -> None:
            shared = await w.client("us").producer(TOPIC, name="shared")
            early = Contender(w, "early")
            await w.simulation.until(lambda: in_line(w) == ["early"])
            await w.simulation.until(lambda: stored_line(w) == ["early"])
            early.die()
            w.kill("us")
            w.start("us")
            await shared.send(b"still here")
            second = Contender(w, "second")
            await w.simulation.until(lambda: in_line(w) == ["second"])
            await asyncio.sleep(6)
            client = w.client("us")
            again = asyncio.ensure_future(
                client.producer(TOPIC, name="early", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
            )
            await w.simulation.until(lambda: len(in_line(w)) == 2)
            assert in_line(w) == ["second", "early"]
            again.cancel()
            assert not second.has_it

        w.play(story())


def test_a_topic_that_could_not_be_loaded_decides_nothing_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log did not answer. It knows who had the topic before, and decides nothing when its patience is over."""
    fails = 0

    async def replay(topic: Topic, at: int) -> int:
        nonlocal fails
        if fails > 0:
            fails -= 1
            raise StorageError("the log does not answer", definite=True)
        return await loading.replay(topic, at)

    monkeypatch.setattr(topics, "replay", replay)
    with world("us", settings=PATIENT) as w:

        async def story() -> None:
            nonlocal fails
            (owner,) = await contenders(w, "owner")
            fails = 3
            await unload(w)
            await owner.producer.send(b"still mine")
            assert fails == 0
            await asyncio.sleep(3 * PATIENT.exclusive_patience_ms / 1000)
            await owner.producer.send(b"and still")
            granted = newest_grant(broker_of(w).store, TOPIC)
            assert granted is not None
            assert granted.end_entry is None, "nobody ended what the owner has"

        w.play(story())
