"""Transactions with real clients: the Java client, and the Go client, which names them in its commands only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import TypeVar

import pytest

from emulator.broker.region import Region
from emulator.client import EARLIEST
from emulator.core.transactions.names import TransactionStatus, TxnId
from tests.broker.regions import FAST, Regions, until
from tests.clients.driving import Failed, Program
from tests.clients.telling import case, driver, regions

pytestmark = pytest.mark.real

CLIENTS = ["own", *(case(one) for one in ("java", "go"))]
"""The Python client has no transactions."""
PATIENT_MS = 60_000
OUTCOME_SECONDS = 60
T = TypeVar("T")


@dataclass
class Story:
    """A region, and a program with a client."""

    world: Regions
    driver: Program

    @property
    def region(self) -> Region:
        return self.world.running["us"]

    async def do(self, verb: str, **arguments: object) -> dict[str, str]:
        return await soon(self.driver.ask(verb, **arguments))

    async def begin(self, key: str = "t", timeout_ms: int = PATIENT_MS) -> TxnId:
        begun = await self.do("begin", client="client", key=key, timeout_ms=timeout_ms)
        return TxnId(int(begun["most"]), int(begun["least"]))

    async def stored(self, topic: str) -> list[bytes]:
        """Return the messages that a reader receives."""
        async with self.world.client("us") as client:
            reader = await client.reader(topic, EARLIEST)
            found = []
            while await reader.has_message():
                found.append((await soon(reader.receive())).payload)
            return found


async def soon(what: Awaitable[T]) -> T:
    async with asyncio.timeout(OUTCOME_SECONDS):
        return await what


@contextlib.asynccontextmanager
async def scenario(client: str) -> AsyncIterator[Story]:
    async with regions("us", settings=FAST) as world, driver(client) as one:
        it = Story(world, one)
        url = f"pulsar://127.0.0.1:{world.ports['us']}"
        await it.do("client", key="client", url=url, timeout_ms=PATIENT_MS, transactions="yes")
        yield it


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
async def test_messages_count_when_their_transaction_commits(client: str, outcome: str) -> None:
    """The plain message has a producer of its own: the Go client (0.15) keeps naming the transaction in later messages
    of the same producer."""
    async with scenario(client) as it:
        for topic in ("orders", "bills"):
            await it.do("producer", client="client", key=topic, topic=topic)
        await it.do("producer", client="client", key="plain", topic="orders")
        txn = await it.begin()
        for topic in ("orders", "bills"):
            await it.do("send", key=topic, payload=f"of {topic}", transaction="t")
        await it.do("send", key="plain", payload="plain")
        assert await it.stored("orders") == await it.stored("bills") == []
        await it.do(outcome, key="t")
        committed = outcome == "commit"
        expected = [b"of orders", b"plain"] if committed else [b"plain"]
        assert await it.stored("orders") == expected
        assert await it.stored("bills") == ([b"of bills"] if committed else [])
        ended = TransactionStatus.COMMITTED if committed else TransactionStatus.ABORTED
        assert it.region.coordinators.status(txn) is ended


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
async def test_acknowledgements_count_when_their_transaction_commits(client: str, outcome: str) -> None:
    async with scenario(client) as it:
        await it.do("producer", client="client", key="p", topic="orders")
        await it.do("subscribe", client="client", key="c", topic="orders", subscription="s", type="Shared")
        await it.do("send", key="p", payload="1")
        await it.begin()
        taken = await it.do("receive", key="c", timeout_ms=PATIENT_MS, transaction="t")
        assert taken["payload"] == "1"
        await it.do(outcome, key="t")
        subscription = it.region.directory.serving["persistent://public/default/orders"].subscriptions["s"]
        await until(lambda: subscription.backlog() == (0 if outcome == "commit" else 1))
        if outcome == "abort":
            again = await it.do("receive", key="c", timeout_ms=PATIENT_MS)
            assert again["payload"] == "1"


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_transaction_goes_on_after_a_crash_of_the_region(client: str) -> None:
    async with scenario(client) as it:
        await it.do("producer", client="client", key="p", topic="orders")
        await it.begin()
        await it.do("send", key="p", payload="before", transaction="t")
        await it.world.crash("us")
        await it.world.start("us")
        await it.do("send", key="p", payload="after", transaction="t")
        await it.do("commit", key="t")
        assert await it.stored("orders") == [b"before", b"after"]


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_transaction_whose_time_is_over_cannot_be_committed(client: str) -> None:
    async with scenario(client) as it:
        await it.do("producer", client="client", key="p", topic="orders")
        txn = await it.begin(timeout_ms=1_500)
        await it.do("send", key="p", payload="no", transaction="t")
        await until(lambda: it.region.coordinators.status(txn) is TransactionStatus.ABORTED, OUTCOME_SECONDS)
        with pytest.raises(Failed):
            await it.do("commit", key="t")
        assert await it.stored("orders") == []
