"""Exclusive producers with real clients: which access modes exclude each other, and the error that the loser gets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from _pytest.mark import ParameterSet

from emulator.broker.region import Region
from emulator.core.policies.topics import KEEP_ALIVE_INTERVAL
from emulator.model.stored_keys import NamespacePath
from tests.broker.regions import FAST, until
from tests.clients.driving import Failed, Program
from tests.clients.telling import CLIENTS, QUICK, case, driver, regions

pytestmark = pytest.mark.real

MODES = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")
IN, WAITS, FENCED, BUSY = "in", "waits", "ProducerFenced", "ProducerBusy"
BESIDE_SHARED = {"Shared": IN, "Exclusive": FENCED, "WaitForExclusive": WAITS, "ExclusiveWithFencing": IN}
BESIDE_AN_OWNER = BESIDE_SHARED | {"Shared": BUSY}
WITHOUT_FENCING = ("go",)
"""Clients that do not offer ExclusiveWithFencing."""
WITHOUT_EPOCHS = ("rust",)
"""Clients that do not send their former epoch when they reconnect: the broker takes them for new producers. They also
do not report a fenced producer to their application, but try to open it again."""
GIVES_UP_WAITING = ("python",)
"""Clients whose operation timeout ends the creation of a producer, although the broker told them to wait."""
TOPIC = "persistent://public/default/orders"
PATIENT_MS = 60_000
OUTCOME_SECONDS = 20
FROZEN_SECONDS = 6
"""Two seconds on an idle machine."""


def _cell(client: str, *modes: str) -> ParameterSet:
    return case(client, *modes)


ALL_CLIENTS = [case(one) for one in CLIENTS]
CELLS = [
    _cell(client, first, second)
    for client in CLIENTS
    for first in MODES
    for second in MODES
    if client not in WITHOUT_FENCING or "ExclusiveWithFencing" not in (first, second)
]
MODES_OF_CLIENTS = [
    _cell(client, mode)
    for client in CLIENTS
    for mode in MODES
    if client not in WITHOUT_FENCING or mode != "ExclusiveWithFencing"
]


@dataclass
class Story:
    """A region, and two programs with a client each."""

    region: Region
    one: Program
    other: Program

    def line(self, topic: str) -> list[str]:
        found = self.region.directory.serving.get(f"persistent://public/default/{topic}")
        return [] if found is None else [producer.producer_name for producer in found.access.line]

    def epoch(self, topic: str) -> int | None:
        return self.region.directory.serving[f"persistent://public/default/{topic}"].access.epoch


@contextlib.asynccontextmanager
async def scenario(client: str, *, timeout_ms: int = PATIENT_MS) -> AsyncIterator[Story]:
    async with regions("us", settings=FAST) as world, driver(client) as one, driver(client) as other:
        for each in (one, other):
            url = f"pulsar://127.0.0.1:{world.ports['us']}"
            await each.ask("client", key="client", url=url, timeout_ms=timeout_ms)
        yield Story(world.running["us"], one, other)


async def opened(of: Program, topic: str, access: str, key: str = "p", **more: object) -> str:
    asked = of.ask("producer", client="client", key=key, topic=topic, access=access, **more)
    await asyncio.wait_for(asked, OUTCOME_SECONDS)
    return asked.result()["name"]


async def met(of: asyncio.Future[dict[str, str]]) -> str:
    with pytest.raises(Failed) as caught:
        await asyncio.wait_for(of, OUTCOME_SECONDS)
    return caught.value.name


@pytest.mark.parametrize(("client", "first", "second"), CELLS)
async def test_who_gets_in_beside_whom(client: str, first: str, second: str) -> None:
    async with scenario(client) as it:
        await opened(it.one, "orders", first)
        asked = it.other.ask("producer", client="client", key="p", topic="orders", access=second)
        expected = (BESIDE_SHARED if first == "Shared" else BESIDE_AN_OWNER)[second]
        if expected == WAITS:
            await until(lambda: len(it.line("orders")) == 1)
            assert not asked.done()
        elif expected == IN:
            await asyncio.wait_for(asked, OUTCOME_SECONDS)
        else:
            assert await met(asked) == expected
        if second == "ExclusiveWithFencing" and client in WITHOUT_EPOCHS:
            return
        sent = it.one.ask("send", key="p", payload="after")
        if second == "ExclusiveWithFencing":
            assert await met(sent) == FENCED
        else:
            await asyncio.wait_for(sent, OUTCOME_SECONDS)


@pytest.mark.parametrize("client", ALL_CLIENTS)
@pytest.mark.parametrize("how", ["closes", "is killed"])
async def test_whoever_waits_takes_over_when_the_owner(client: str, how: str) -> None:
    async with scenario(client) as it:
        await opened(it.one, "orders", "WaitForExclusive")
        waiting = asyncio.ensure_future(opened(it.other, "orders", "WaitForExclusive"))
        await until(lambda: len(it.line("orders")) == 1)
        if how == "closes":
            await it.one.ask("close", key="p")
        else:
            it.one.kill()
        await waiting
        await it.other.ask("send", key="p", payload="mine")
        assert it.epoch("orders") == 1


@pytest.mark.parametrize("client", [one for one in ALL_CLIENTS if one.values[0] not in WITHOUT_EPOCHS])
async def test_the_owner_keeps_a_topic_that_is_unloaded_while_another_waits(client: str) -> None:
    async with scenario(client) as it:
        await opened(it.one, "orders", "WaitForExclusive", name="owner")
        waiting = asyncio.ensure_future(opened(it.other, "orders", "WaitForExclusive", name="waiter"))
        await until(lambda: it.line("orders") == ["waiter"])
        await it.region.directory.unload("persistent://public/default/orders", "requested by the admin API")
        await asyncio.wait_for(it.one.ask("send", key="p", payload="still mine"), OUTCOME_SECONDS)
        await until(lambda: it.line("orders") == ["waiter"])
        assert it.epoch("orders") == 0
        assert not waiting.done()
        await it.one.ask("close", key="p")
        await asyncio.wait_for(waiting, OUTCOME_SECONDS)


@pytest.mark.parametrize("client", ALL_CLIENTS)
async def test_whoever_gives_up_waiting_leaves_the_line(client: str) -> None:
    async with scenario(client) as it:
        await opened(it.one, "orders", "Exclusive")
        asked = it.other.ask("producer", client="client", key="p", topic="orders", access="WaitForExclusive")
        await until(lambda: len(it.line("orders")) == 1)
        it.other.kill()
        await until(lambda: it.line("orders") == [])
        assert await met(asked) == "Gone"
        await it.one.ask("close", key="p")


@pytest.mark.parametrize(("client", "mode"), MODES_OF_CLIENTS)
async def test_a_producer_of_every_mode_goes_on_after_an_unload(client: str, mode: str) -> None:
    async with scenario(client) as it:
        await opened(it.one, "orders", mode, name="owner")
        await it.one.ask("send", key="p", payload="before")
        epoch = it.epoch("orders")
        for _ in range(2):
            await it.region.directory.unload(TOPIC, "requested by the admin API")
            await asyncio.wait_for(it.one.ask("send", key="p", payload="after"), OUTCOME_SECONDS)
        assert client in WITHOUT_EPOCHS or it.epoch("orders") == epoch


@pytest.mark.parametrize(("client", "mode"), MODES_OF_CLIENTS)
async def test_a_producer_of_every_mode_goes_on_after_its_topic_was_deleted(client: str, mode: str) -> None:
    """The new topic has epochs of its own."""
    async with scenario(client) as it:
        await opened(it.one, "orders", mode, name="owner")
        await it.one.ask("send", key="p", payload="before")
        await it.region.directory.delete(TOPIC, force=True)
        await asyncio.wait_for(it.one.ask("send", key="p", payload="after"), OUTCOME_SECONDS)
        assert it.epoch("orders") == (None if mode == "Shared" else 0)


@pytest.mark.parametrize("client", [one for one in ALL_CLIENTS if one.values[0] not in GIVES_UP_WAITING])
async def test_whoever_waits_does_so_longer_than_its_operations_may_take(client: str) -> None:
    async with scenario(client, timeout_ms=1_500) as it:
        await opened(it.one, "orders", "Exclusive")
        asked = it.other.ask("producer", client="client", key="p", topic="orders", access="WaitForExclusive")
        await until(lambda: len(it.line("orders")) == 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asked), 4)
        await it.one.ask("close", key="p")
        await asyncio.wait_for(asked, OUTCOME_SECONDS)


@pytest.mark.parametrize("client", QUICK)
async def test_consumers_do_not_keep_a_topic_from_an_exclusive_producer(client: str) -> None:
    async with scenario(client) as it:
        await it.one.ask("subscribe", client="client", key="c", topic="orders", subscription="s")
        await opened(it.one, "orders", "Exclusive")
        await it.one.ask("send", key="p", payload="hello")
        assert (await it.one.ask("receive", key="c", timeout_ms=5_000))["payload"] == "hello"


@pytest.mark.parametrize("client", ALL_CLIENTS)
async def test_a_frozen_owner_is_replaced_as_soon_as_its_namespace_asks_for(client: str) -> None:
    """With a probe every second, it is replaced after two (real Pulsar, with a probe every 30 s: a minute)."""
    async with scenario(client) as it:
        await it.region.policies.set(NamespacePath("public/default"), KEEP_ALIVE_INTERVAL, 1_000)
        await opened(it.one, "orders", "WaitForExclusive", name="owner")
        waiting = asyncio.ensure_future(opened(it.other, "orders", "WaitForExclusive"))
        await until(lambda: len(it.line("orders")) == 1)
        it.one.freeze()
        await asyncio.wait_for(waiting, FROZEN_SECONDS)
        await it.other.ask("send", key="p", payload="mine")
        assert it.epoch("orders") == 1
