"""Background services of a region: an error in one step ends no service and stops no timer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.policies.lifetime import RETENTION, Retention
from emulator.model.stored_keys import NamespacePath, TenantPath
from tests.broker.regions import regions, until
from tests.broker.replication.test_replication import TOPIC, drained, publish

OTHER = "persistent://public/default/other"
NAMESPACE = NamespacePath("public/default")


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken")


async def test_a_link_is_retried_after_an_error_other_than_of_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An invalid host name, or a replicator that raises when its link goes down."""
    async with regions("us", "eu", peer_reconnect_backoff_ms=5) as world, world.client("us") as client:
        await publish(client, "p", 1)
        await until(lambda: drained(world))
        us = world.running["us"]
        peer, replicator = us.peers["eu"], us.directory.serving[TOPIC].replicators["eu"]
        with monkeypatch.context() as once:
            once.setattr(replicator, "link_down", broken)
            once.setattr(us.environment.peer_network, "connect", broken)
            assert peer._transport is not None
            peer._transport.abort()
            await until(lambda: "broken" in peer.why_not)
        replicator.link_down()
        await until(lambda: peer.connected)
        await publish(client, "q", 1)
        await until(lambda: drained(world))


async def test_a_link_has_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was lost while its establishment timed out was retried twice, and so for ever."""
    async with regions("us", "eu", peer_reconnect_backoff_ms=100) as world:
        peer = world.running["us"].peers["eu"]
        reconnection, started = peer._reconnection, 0

        def start() -> None:
            nonlocal started
            started += 1

        monkeypatch.setattr(reconnection, "_connect", start)
        assert peer._transport is not None
        peer._transport.abort()
        await until(lambda: reconnection._timer is not None)
        reconnection.schedule()
        await until(lambda: started > 0)
        assert (started, reconnection._timer) == (1, None)


async def test_a_failing_watch_does_not_prevent_other_watches() -> None:
    """Watches after the failing one got no change, and the caller that made the change waited for ever."""
    async with regions("us") as world:
        metadata, heard = world.running["us"].metadata, []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        metadata.watch(TenantPath.prefix(), broken)
        metadata.watch(TenantPath.prefix(), lambda change: heard.append(change.path))
        path = TenantPath("acme").text
        await asyncio.wait_for(metadata.put(path, b"{}"), 10)
        assert heard == [path]


async def test_a_store_is_read_again_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region stopped reading changes of its cluster."""
    async with regions("us") as world:
        metadata = world.running["us"].metadata
        with monkeypatch.context() as once:
            once.setattr(metadata._medium, "read", broken)
            metadata._start_reading()
            await until(lambda: metadata.read_failure is not None)
        await until(lambda: metadata.read_failure is None)
        await asyncio.wait_for(metadata.put(TenantPath("acme").text, b"{}"), 10)


async def test_failed_housekeeping_of_a_topic_does_not_prevent_that_of_others() -> None:
    async with regions("us", housekeeping_interval_ms=5) as world, world.client("us") as client:
        us = world.running["us"]
        await publish(client, "p", 1)
        first = us.housekeeper._tracked[(await us.directory.acquire(TOPIC, OpenMode.EXISTING)).full_name]
        object.__setattr__(first, "apply", broken)
        producer = await client.producer(OTHER)
        await producer.send(b"x")
        topic = us.directory.serving[OTHER]
        await us.policies.set(NAMESPACE, RETENTION, Retention(0, 0))
        await until(lambda: topic.log.first_entry_id == 1)


async def test_unused_topics_are_unloaded_although_the_check_of_one_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with regions("us", topic_idle_ms=20) as world:
        async with world.client("us") as client:
            await publish(client, "p", 1)
        us = world.running["us"]
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        seen = asyncio.Event()

        def fail(_: Any) -> bool:
            seen.set()
            return broken()

        with monkeypatch.context() as once:
            once.setattr(us.housekeeper.idle, "_is_idle", fail)
            await asyncio.wait_for(seen.wait(), 10)
        await until(lambda: TOPIC not in us.directory.serving)
