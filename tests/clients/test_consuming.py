"""Options of consumers and readers of real clients: delays, dead letters, seeks, patterns, batch indexes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.broker.regions import FAST, Regions
from tests.clients.driving import Failed, Program
from tests.clients.telling import CLIENTS, case, driver, now_ms, regions

pytestmark = pytest.mark.real
EACH = [case(one) for one in CLIENTS]
WITH_PLACES = [one for one in EACH if one.values[0] != "rust"]
"""Clients that know positions within a batch, count deliveries, and have `hasMessageAvailable`."""
SEEKS_TO_THE_ENDS = ("own", "python", "java")
"""The Go client rejects it itself: its ids of the ends name no partition."""
OUTCOME_SECONDS = 150
WAIT_MS = 20_000
QUIET_MS = 1_000
PREFIX = "persistent://public/default/"


@contextlib.asynccontextmanager
async def program(client: str) -> AsyncIterator[tuple[Regions, Program]]:
    """A region, and a program with a client of it."""
    async with (
        regions("us", settings=FAST) as world,
        driver(client) as made,
        asyncio.timeout(OUTCOME_SECONDS),
    ):
        url = f"pulsar://127.0.0.1:{world.ports['us']}"
        await made.ask("client", key="client", url=url, timeout_ms=30_000)
        yield world, made


async def subscribe(of: Program, topic: str | None = "orders", key: str = "c", **more: object) -> None:
    await of.ask(
        "subscribe", client="client", key=key, topic=topic, **{"subscription": "s", "type": "Shared", **more}
    )


async def receive(of: Program, key: str = "c", then: str = "acknowledge") -> tuple[str, int]:
    """(payload, redelivery count)."""
    one = await of.ask("receive", key=key, timeout_ms=WAIT_MS, then=then)
    return one["payload"], int(one["count"])


async def nothing_comes(of: Program, key: str = "c") -> bool:
    with pytest.raises(Failed):
        await of.ask("receive", key=key, timeout_ms=QUIET_MS)
    return True


@pytest.mark.parametrize("client", EACH)
@pytest.mark.parametrize("type_", ["Shared", "KeyShared"])
async def test_delayed_messages_come_in_the_order_of_their_times_and_never_early(
    client: str, type_: str
) -> None:
    async with program(client) as (_, it):
        await subscribe(it, type=type_)
        await it.ask("producer", client="client", key="p", topic="orders")
        begin, delays = now_ms(), {"late": 7_000, "soon": 3_500, "now": None}
        for payload, delay_ms in delays.items():
            await it.ask("send", key="p", payload=payload, delay_ms=delay_ms)
        for payload in ("now", "soon", "late"):
            assert (await receive(it))[0] == payload
            assert now_ms() - begin >= (delays[payload] or 0)


@pytest.mark.parametrize("client", WITH_PLACES)
async def test_what_is_given_back_too_often_ends_among_the_dead_letters(client: str) -> None:
    """The region creates the dead-letter topic's first subscription together with its producer, so it misses no
    message."""
    async with program(client) as (_, it):
        await subscribe(it, dead_letters="dead", redeliveries=2, first_subscription="first")
        await it.ask("producer", client="client", key="p", topic="orders")
        payloads = {"0", "1", "2"}
        for payload in sorted(payloads):
            await it.ask("send", key="p", payload=payload)
        came = [await receive(it, then="give back") for _ in range(3 * 3)]
        assert sorted(came) == [(payload, count) for payload in sorted(payloads) for count in range(3)]
        assert await nothing_comes(it)
        await subscribe(it, "dead", key="d", subscription="first", **{"from": "latest"})
        assert {(await receive(it, "d"))[0] for _ in payloads} == payloads


@pytest.mark.parametrize("client", WITH_PLACES)
async def test_messages_from_another_region_end_among_the_dead_letters_too(client: str) -> None:
    """A client copies a message's properties into the dead letter, including those that replication added."""
    async with (
        regions("us", "eu", settings=FAST) as world,
        driver(client) as it,
        asyncio.timeout(OUTCOME_SECONDS),
    ):
        for key, region in (("client", "us"), ("far", "eu")):
            url = f"pulsar://127.0.0.1:{world.ports[region]}"
            await it.ask("client", key=key, url=url, timeout_ms=30_000)
        await subscribe(it, dead_letters="dead", redeliveries=1, first_subscription="first")
        await it.ask("producer", client="far", key="p", topic="orders")
        await it.ask("send", key="p", payload="x")
        assert [await receive(it, then="give back") for _ in range(2)] == [("x", 0), ("x", 1)]
        await subscribe(it, "dead", key="d", subscription="first", **{"from": "earliest"})
        assert (await receive(it, "d"))[0] == "x"


@pytest.mark.parametrize("client", ["own", *(case(one) for one in ("java", "go"))])
async def test_what_is_put_off_comes_again_by_the_retry_topic(client: str) -> None:
    async with program(client) as (_, it):
        await subscribe(it, dead_letters="dead", redeliveries=2, first_subscription="first", retries="retry")
        await it.ask("producer", client="client", key="p", topic="orders")
        await it.ask("send", key="p", payload="x")
        for _ in range(3):
            assert (await receive(it, then="put off"))[0] == "x"
        await subscribe(it, "dead", key="d", subscription="first")
        assert (await receive(it, "d"))[0] == "x"


async def rest(of: Program, key: str = "r") -> list[str]:
    """Return the messages that a reader reports as available, and receives."""
    came = []
    while (await of.ask("available", key=key))["answer"] == "yes":
        came.append((await of.ask("read", key=key, timeout_ms=WAIT_MS))["payload"])
    return came


@pytest.mark.parametrize("client", WITH_PLACES)
async def test_readers_begin_at_any_message_also_within_a_batch_and_know_when_they_are_at_the_end(
    client: str,
) -> None:
    async with program(client) as (_, it):
        await it.ask("reader", client="client", key="empty", topic="orders", start="earliest")
        assert await rest(it, "empty") == []
        await it.ask("producer", client="client", key="p", topic="orders", batch=4)
        payloads = [f"m{number}" for number in range(8)]
        for first in (0, 4):
            await it.ask("send_batch", key="p", payloads=",".join(payloads[first : first + 4]))
        assert await rest(it, "empty") == payloads
        for start in (0, 2, 3, 4, 7):
            for inclusive, begin in (("no", start + 1), ("yes", start)):
                key = f"r-{start}-{inclusive}"
                place = {"start": payloads[start], "inclusive": inclusive}
                await it.ask("reader", client="client", key=key, topic="orders", **place)
                assert await rest(it, key) == payloads[begin:], (start, inclusive)
        await it.ask("reader", client="client", key="latest", topic="orders", start="latest")
        assert await rest(it, "latest") == []
        if client in SEEKS_TO_THE_ENDS:
            await it.ask("seek", key="latest", place="earliest")
            assert await rest(it, "latest") == payloads


async def come(of: Program, count: int, key: str = "c") -> list[str]:
    """Without acknowledging: clients batch acknowledgements, and may send them after the seek."""
    return [(await receive(of, key, then="keep"))[0] for _ in range(count)]


@pytest.mark.parametrize("client", WITH_PLACES)
async def test_a_seek_goes_to_a_message_to_either_end_and_to_a_time(client: str) -> None:
    async with program(client) as (_, it):
        await it.ask("producer", client="client", key="p", topic="orders", batch=4)
        payloads = [f"m{number}" for number in range(8)]
        for first in (0, 4):
            await it.ask("send_batch", key="p", payloads=",".join(payloads[first : first + 4]))
        await subscribe(it, type="Exclusive")
        for start in (5, 0, 7):
            await it.ask("seek", key="c", place=payloads[start])
            assert await come(it, len(payloads[start:])) == payloads[start:]
        if client in SEEKS_TO_THE_ENDS:
            await it.ask("seek", key="c", place="earliest")
            assert await come(it, len(payloads)) == payloads
        if client in SEEKS_TO_THE_ENDS:
            await it.ask("seek", key="c", place="latest")
            assert await nothing_comes(it)
        # A consumer of its own: the Go client keeps dropping messages before the position of its last seek.
        await subscribe(it, key="t", subscription="by-time", type="Exclusive")
        await it.ask("seek", key="t", time_ms=now_ms() + 3_600_000)
        assert await nothing_comes(it, "t")
        await it.ask("seek", key="t", time_ms=1)
        assert await come(it, len(payloads), "t") == payloads


@pytest.mark.parametrize("client", WITH_PLACES)
async def test_parts_of_a_batch_are_acknowledged_and_the_rest_goes_to_the_next_consumer(client: str) -> None:
    async with program(client) as (_, it):
        await subscribe(it)
        await it.ask("producer", client="client", key="p", topic="orders", batch=5)
        payloads = [f"m{number}" for number in range(5)]
        await it.ask("send_batch", key="p", payloads=",".join(payloads))
        for payload in payloads:
            kept = payload in ("m1", "m3")
            assert (await receive(it, then="keep" if kept else "acknowledge"))[0] == payload
        await it.ask("close", key="c")
        await subscribe(it, key="next")
        assert [(await receive(it, "next"))[0] for _ in range(2)] == ["m1", "m3"]
        assert await nothing_comes(it, "next")


@pytest.mark.parametrize("client", EACH)
async def test_a_pattern_finds_the_topics_that_there_are_and_those_that_come(client: str) -> None:
    """The Python client ignores the broker's updates and polls once a minute; so it is tested with the first topics
    only."""
    async with program(client) as (_, it):
        later = [] if client == "python" else ["rx-2"]
        for topic in ("rx-0", "rx-1", "other"):
            await it.ask("producer", client="client", key=topic, topic=topic)
            await it.ask("send", key=topic, payload=topic)
        pattern = f"{PREFIX}rx-.*"
        await subscribe(it, None, pattern=pattern)
        assert {(await receive(it))[0] for _ in range(2)} == {"rx-0", "rx-1"}
        for topic in later:
            await it.ask("producer", client="client", key=topic, topic=topic)
            await it.ask("send", key=topic, payload=topic)
            assert (await receive(it))[0] == topic
