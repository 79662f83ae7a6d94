"""Errors of real clients at a limit, at a full backlog, and at the end of a topic."""

from __future__ import annotations

import pytest

from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.flow.rate_limit import RateLimit
from emulator.core.policies.lifetime import BACKLOG_QUOTAS, Quota, QuotaAction, QuotaKind
from emulator.core.policies.limits import MAX_CONSUMERS, MAX_PRODUCERS, PUBLISH_RATE
from emulator.model.stored_keys import NamespacePath
from tests.broker.regions import until
from tests.clients.harness import ORDERS, Scene, clients, rejected

pytestmark = [
    pytest.mark.real,
    pytest.mark.scene(housekeeping_interval_ms=20, timeout_ms=5_000, seconds=40),
    clients(),
]
NAMESPACE = NamespacePath("public/default")


async def loaded(scene: Scene) -> Topic:
    return await scene.region.directory.acquire(ORDERS, OpenMode.EXISTING)


async def test_a_full_backlog_fails_producers_until_it_is_smaller(scene: Scene) -> None:
    program = scene.program
    await program.subscribe()
    await program.producer()
    await program.send(*["x" * 10_000] * 3)
    quota = {QuotaKind.SIZE: Quota(15_000, -1, QuotaAction.EXCEPTION)}
    await scene.region.policies.set(NAMESPACE, BACKLOG_QUOTAS, quota)
    error = str(await rejected(program.producer(key="q")))
    assert "Quota" in error or "quota" in error, error
    topic = await loaded(scene)
    await scene.region.housekeeper.truncate(topic)
    await until(lambda: topic.retention.quota_refusal is None, 30)
    await program.producer(key="r")
    await program.send("after", key="r")


async def test_the_end_of_a_terminated_topic(scene: Scene) -> None:
    """Earlier messages are received; no later one is sent."""
    program = scene.program
    await program.subscribe()
    await program.producer()
    await program.send("last")
    await (await loaded(scene)).termination.terminate()
    assert await program.receive() == "last"
    error = str(await rejected(program.producer(key="q")))
    assert "Terminated" in error, error
    await rejected(program.ask("send", key="p", payload="too late"))


async def test_a_topic_has_its_maximum_of_producers_and_consumers(scene: Scene) -> None:
    program = scene.program
    await scene.region.policies.set(NAMESPACE, MAX_PRODUCERS, 1)
    await scene.region.policies.set(NAMESPACE, MAX_CONSUMERS, 1)
    await program.producer()
    await program.subscribe()
    await rejected(program.producer(key="q"))
    await rejected(program.subscribe(key="d", subscription="t"))
    await program.send("x")
    assert await program.receive() == "x"


async def test_a_producer_above_the_publish_rate_is_slowed_down(scene: Scene) -> None:
    await scene.region.policies.set(NAMESPACE, PUBLISH_RATE, RateLimit(10, 0, 1))
    await scene.program.producer()
    await scene.program.send(*map(str, range(15)))
    assert (await loaded(scene)).state.stored_end == 15
