"""What admin requests, metrics and `explain` show of exclusive producers, and how an administrator removes one."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import AccessMode, ClientError
from emulator.simulation.world import World
from tests.broker.regions import broker_of
from tests.broker.topic.test_exclusive_producers import TOPIC, Contender, in_line

UNLOAD = "/admin/v2/persistent/public/default/orders/unload"
EXPLAIN = "/geoemu/v1/explain/topic/orders"
KEEP_ALIVE = "/admin/v2/namespaces/public/default/keepAliveInterval"
WAITING = AccessMode.WAIT_FOR_EXCLUSIVE


async def admin_request(w: World, method: str, target: str, body: object = None) -> tuple[int, str]:
    answer = await w.ask_admin("us", method, target, body)
    return answer.status, answer.body.decode()


async def an_owner_and_two_who_wait(w: World) -> list[Contender]:
    made = [Contender(w, "owner")]
    await made[0].opening
    for name, priority in (("low", 0), ("high", 5)):
        made.append(Contender(w, name, priority))
        await w.simulation.until(lambda name=name: name in in_line(w))  # type: ignore[misc]
    return made


async def test_an_unloaded_topic_stays_its_owner_s(world: World) -> None:
    owner, *_ = await an_owner_and_two_who_wait(world)
    assert await admin_request(world, "PUT", UNLOAD) == (204, "")
    await owner.producer.send(b"still mine")
    await world.simulation.until(lambda: in_line(world) == ["high", "low"])


async def test_a_topic_that_does_not_exist_is_not_unloaded(world: World) -> None:
    await world.ready()
    status, reason = await admin_request(world, "PUT", UNLOAD)
    assert status == 404
    assert "not found" in reason


async def test_stats_show_the_owner_of_a_topic_and_the_number_of_waiting_producers(world: World) -> None:
    await an_owner_and_two_who_wait(world)
    answer = await world.ask_admin("us", "GET", UNLOAD.replace("unload", "stats"))
    stats = answer.json()
    assert (stats["waitingPublishers"], stats["topicEpoch"]) == (2, 0)
    (publisher,) = stats["publishers"]
    assert (publisher["accessMode"], publisher["queuePriority"]) == ("WaitForExclusive", 0)


async def test_explain_shows_owner_epoch_order_and_the_last_change(world: World) -> None:
    owner, *_ = await an_owner_and_two_who_wait(world)
    one = (await world.ask_admin("us", "GET", EXPLAIN)).json()
    assert "'owner' (WaitForExclusive" in one["what"]
    assert "is the owner in epoch 0" in one["what"]
    assert "2 wait: 'high' (priority 5), 'low'" in one["what"]
    assert one["waits_for"][0] == "'owner' to close"
    assert one["waits_for"][1].startswith("or its client at ")
    assert one["waits_for"][2:] == ["or a producer with ExclusiveWithFencing to take the topic"]
    owner.die()
    await world.simulation.until(lambda: in_line(world) == ["low"])
    await world.simulation.until(lambda: broker_of(world).directory.serving[TOPIC].access.machine.epoch == 1)
    one = (await world.ask_admin("us", "GET", EXPLAIN)).json()
    assert (
        "'high' became the owner in epoch 1, because 'owner' closed: its connection was lost" in one["what"]
    )


async def test_metrics_count_promotions_fences_and_the_time_without_an_owner(world: World) -> None:
    owner, low, _ = await an_owner_and_two_who_wait(world)
    assert (
        'geoemu_exclusive_waiting{topic="persistent://public/default/orders"} 2\n'
        in (await admin_request(world, "GET", "/metrics"))[1]
    )
    owner.die()
    await world.simulation.until(lambda: in_line(world) == ["low"])
    await world.client("us").producer(TOPIC, name="new", access_mode=AccessMode.EXCLUSIVE_WITH_FENCING)
    assert isinstance(low.opening.exception(), ClientError)
    text = (await admin_request(world, "GET", "/metrics"))[1]
    assert "geoemu_exclusive_promotions_total 1\n" in text
    assert "geoemu_exclusive_fences_total 2\n" in text
    assert "geoemu_exclusive_waiting_sum 0\n" in text
    (line,) = [line for line in text.splitlines() if line.startswith("geoemu_exclusive_ownerless_seconds")]
    assert 0 < float(line.split()[1]) < 1


@pytest.mark.parametrize(("interval_ms", "seconds"), [(0, 60.5), (1_000, 2.5)])
async def test_a_frozen_owner_is_detected_within_the_keep_alive_interval_of_its_namespace(
    world: World, interval_ms: int, seconds: float
) -> None:
    """A frozen owner keeps its connection open and sends nothing. With a probe every 30 s it takes a minute to
    notice."""

    async def own() -> None:
        client = world.client_on(world.simulation.host("owner"), ("us",))
        await client.producer(TOPIC, name="owner", access_mode=WAITING)
        await asyncio.Event().wait()

    host = world.client_host("owner", "us")
    host.start(own())
    await world.simulation.until(lambda: TOPIC in broker_of(world).directory.serving)
    waiter = Contender(world, "waiter")
    await world.simulation.until(lambda: in_line(world) == ["waiter"])
    assert (await admin_request(world, "POST", KEEP_ALIVE, interval_ms))[0] == 204
    host.pause()
    began = world.simulation.now
    await waiter.opening
    assert seconds / 3 < world.simulation.now - began < seconds


@pytest.mark.parametrize(
    ("value", "expected"), [(-1, 412), (3_600_001, 412), (1.5, 400), ("1s", 400), (True, 400)]
)
async def test_an_interval_that_is_none_is_refused(world: World, value: object, expected: int) -> None:
    await world.ready()
    status, reason = await admin_request(world, "POST", KEEP_ALIVE, value)
    assert status == expected
    assert "is not a whole number of milliseconds, 0 to 3600000" in reason
