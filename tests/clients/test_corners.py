"""Rarely used corners of the protocol that client authors test: the ends of a topic, zero-length queues, non-persistent
topics, table views, messages that are too large."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from emulator.broker.compaction.compaction import CompactionStatus
from emulator.broker.topic_directory.loaded_topic import OpenMode
from tests.broker.regions import FAST, Regions, until
from tests.clients.driving import Failed, Program
from tests.clients.telling import CLIENTS, case, driver, now_ms, regions

pytestmark = pytest.mark.real
OUTCOME_SECONDS = 60
WAIT_MS = 20_000
QUIET_MS = 700
ORDERS = "persistent://public/default/orders"
LIVE = "non-persistent://public/default/live"
HOUR_MS = 3_600_000
MAX_MESSAGE_BYTES = 1_048_576
TOO_LARGE = {
    "own": "NotAllowedError",
    "python": "MessageTooBig",
    "java": "InvalidMessage",
    "go": "MessageTooBig",
}
"""Raised by the client itself, which received the maximum when it connected. The Rust client does not check, and the
region rejects the message. One that does not even fit into a frame closes the connection, and the Rust client sends it
again and again."""

REMOVES_NOTHING = ("go",)
"""Clients whose open table views keep a key although an empty value arrives for it."""


def clients(*without: str) -> pytest.MarkDecorator:
    """Leave out clients without this feature: docs/CLIENTS.md has the reasons."""
    return pytest.mark.parametrize(
        "client",
        [case(one) for one in CLIENTS if one not in without],
    )


@contextlib.asynccontextmanager
async def program(client: str, *names: str) -> AsyncIterator[tuple[Regions, Program]]:
    """Start regions, and a program with a client of each, named like it."""
    async with (
        regions(*names, settings=FAST, max_message_bytes=MAX_MESSAGE_BYTES) as world,
        driver(client) as made,
        asyncio.timeout(OUTCOME_SECONDS),
    ):
        for name in names:
            url = f"pulsar://127.0.0.1:{world.ports[name]}"
            await made.ask("client", key=name, url=url, timeout_ms=30_000)
        yield world, made


async def subscribe(of: Program, topic: str | None, key: str = "c", **more: object) -> None:
    given = {"client": "us", "subscription": "s", "type": "Shared", **more}
    await of.ask("subscribe", key=key, topic=topic, **given)


async def receive(of: Program, key: str = "c", then: str = "acknowledge") -> str:
    return (await of.ask("receive", key=key, timeout_ms=WAIT_MS, then=then))["payload"]


async def nothing_comes(of: Program, key: str = "c") -> bool:
    with pytest.raises(Failed):
        await of.ask("receive", key=key, timeout_ms=QUIET_MS)
    return True


async def rest(of: Program, key: str) -> list[str]:
    """Return the messages that a reader reports as available, and receives."""
    came = []
    while (await of.ask("available", key=key))["answer"] == "yes":
        came.append((await of.ask("read", key=key, timeout_ms=WAIT_MS))["payload"])
    return came


async def send(of: Program, *payloads: str, topic: str = "orders", client: str = "us") -> None:
    key = f"p {topic}"
    await of.ask("producer", client=client, key=key, topic=topic)
    for payload in payloads:
        await of.ask("send", key=key, payload=payload)


@clients("rust")
async def test_at_the_end_a_reader_knows_that_there_is_nothing_more_however_it_came_there(
    client: str,
) -> None:
    async with program(client, "us") as (_, it):
        for start in ("earliest", "latest"):
            for inclusive in ("no", "yes"):
                key = f"empty {start} {inclusive}"
                place = {"start": start, "inclusive": inclusive}
                await it.ask("reader", client="us", key=key, topic="orders", **place)
                assert await rest(it, key) == [], key
        await send(it, "m0", "m1", "m2")
        for start, inclusive, expected in (
            ("latest", "no", []),
            ("latest", "yes", ["m2"]),
            ("m2", "no", []),
            ("m2", "yes", ["m2"]),
        ):
            key = f"{start} {inclusive}"
            place = {"start": start, "inclusive": inclusive}
            await it.ask("reader", client="us", key=key, topic="orders", **place)
            assert await rest(it, key) == expected, key
        await it.ask("reader", client="us", key="r", topic="orders", start="earliest")
        assert await rest(it, "r") == ["m0", "m1", "m2"]
        now = now_ms()
        places = {now - HOUR_MS: ["m0", "m1", "m2"], now + HOUR_MS: [], 1: ["m0", "m1", "m2"]}
        if client == "go":
            del places[now + HOUR_MS]  # it compares with its last read position, and forgets that at a seek
        for time_ms, expected in places.items():
            await it.ask("seek", key="r", time_ms=time_ms)
            assert await rest(it, "r") == expected, time_ms - now


@clients("rust")
async def test_on_a_compacted_topic_a_reader_waits_for_nothing_that_was_compacted_away(client: str) -> None:
    """The compacted messages include the last one of the topic."""
    async with program(client, "us") as (world, it):
        await it.ask("producer", client="us", key="p", topic=ORDERS)
        for key, payload in (("a", "1"), ("b", "2"), ("a", "3"), ("b", "")):
            await it.ask("send", key="p", message_key=key, payload=payload)
        compaction = world.running["us"].directory.serving[ORDERS].compaction
        compaction.begin()
        await until(lambda: compaction.status is CompactionStatus.SUCCESS)
        given = {"client": "us", "topic": ORDERS, "compacted": "yes"}
        await it.ask("reader", key="r", start="earliest", **given)
        assert await rest(it, "r") == ["3"]
        await it.ask("send", key="p", message_key="c", payload="5")
        assert await rest(it, "r") == ["5"]
        await it.ask("seek", key="r", time_ms=1)
        assert await rest(it, "r") == ["3", "5"]


@clients("rust")
async def test_who_has_no_queue_takes_nothing_from_others(client: str) -> None:
    async with program(client, "us") as (_, it):
        for key in ("c", "d"):
            await subscribe(it, "orders", key, queue=0)
        await send(it, "m0", "m1", "m2", "m3")
        assert await receive(it, "c") == "m0"
        assert [await receive(it, "d") for _ in range(2)] == ["m1", "m2"]
        assert await receive(it, "c") == "m3"


@clients("python", "go", "rust")
async def test_who_begins_paused_takes_nothing_until_told_to(client: str) -> None:
    async with program(client, "us") as (_, it):
        await subscribe(it, "orders", "paused", paused="yes")
        await subscribe(it, "orders", "other")
        await send(it, "m0", "m1")
        assert [await receive(it, "other") for _ in range(2)] == ["m0", "m1"]
        await it.ask("close", key="other")
        await send(it, "m2")
        assert await nothing_comes(it, "paused")
        await it.ask("resume", key="paused")
        assert await receive(it, "paused") == "m2"


@clients()
async def test_what_a_topic_that_keeps_nothing_is_given_comes_to_whoever_is_there_in_every_region(
    client: str,
) -> None:
    async with program(client, "us", "eu") as (_, it):
        await send(it, "missed", topic=LIVE)
        for region in ("us", "eu"):
            await subscribe(it, LIVE, f"c {region}", client=region)
        # The link to the other region is open once a message has arrived.
        await send(it, topic=LIVE)
        opened = asyncio.ensure_future(receive(it, "c eu"))
        while not opened.done():
            await it.ask("send", key=f"p {LIVE}", payload="open")
            await asyncio.wait([opened], timeout=0.1)
        await it.ask("send", key=f"p {LIVE}", payload="live")
        for region in ("us", "eu"):
            while (payload := await receive(it, f"c {region}")) != "live":
                assert payload == "open"
            await it.ask("close", key=f"c {region}")
            await subscribe(it, LIVE, f"c {region}", client=region)
            assert await nothing_comes(it, f"c {region}")


@clients("rust")
async def test_a_table_view_follows_its_topic_also_when_that_is_unloaded(client: str) -> None:
    async with program(client, "us") as (world, it):
        await it.ask("producer", client="us", key="p", topic=ORDERS)
        await it.ask("send", key="p", message_key="a", payload="1")
        await it.ask("open_table", client="us", key="t", topic=ORDERS)
        assert (await it.ask("entries", key="t"))["entries"] == "a:1"
        removed = "a:3,b:2" if client in REMOVES_NOTHING else "a:3"
        for key, payload, expected in (("b", "2", "a:1,b:2"), ("a", "3", "a:3,b:2"), ("b", "", removed)):
            await it.ask("send", key="p", message_key=key, payload=payload)
            await shows(it, expected)
        await world.running["us"].directory.unload(ORDERS, "requested by the admin API")
        await it.ask("send", key="p", message_key="c", payload="4")
        await shows(it, f"{removed},c:4")


async def shows(of: Program, entries: str) -> None:
    """Wait for it; each request waits for its response."""
    while (await of.ask("entries", key="t"))["entries"] != entries:
        pass


@clients("python", "rust")
async def test_what_has_a_receipt_of_its_acknowledgement_does_not_come_again_after_a_crash(
    client: str,
) -> None:
    async with program(client, "us") as (world, it):
        await subscribe(it, "orders", receipts="yes")
        await send(it, "m0", "m1", "m2")
        assert [await receive(it) for _ in range(2)] == ["m0", "m1"]
        await world.crash("us")
        await world.start("us")
        await subscribe(it, "orders", "next")
        await it.ask("close", key="c")
        assert await receive(it, "next") == "m2"
        assert await nothing_comes(it, "next")


@clients("python")
async def test_a_pattern_finds_what_comes_after_the_region_was_away(client: str) -> None:
    async with program(client, "us") as (world, it):
        await send(it, "rx-0", topic="rx-0")
        await subscribe(it, None, pattern="persistent://public/default/rx-.*")
        assert await receive(it) == "rx-0"
        await world.crash("us")
        await world.start("us")
        await send(it, "rx-1", topic="rx-1")
        assert await next_other_than("rx-0", it) == "rx-1"
        await it.ask("send", key="p rx-0", payload="more")
        assert await next_other_than("rx-0", it) == "more"


async def next_other_than(payload: str, of: Program) -> str:
    """The last acknowledged message may arrive again: clients batch acknowledgements."""
    while (came := await receive(of)) == payload:
        pass
    return came


@clients()
async def test_a_message_that_is_too_large_is_refused_and_the_next_one_is_not(client: str) -> None:
    async with program(client, "us") as (world, it):
        await it.ask("producer", client="us", key="p", topic=ORDERS)
        for size in (MAX_MESSAGE_BYTES + 1, 2 * MAX_MESSAGE_BYTES)[: 2 if client in TOO_LARGE else 1]:
            with pytest.raises(Failed) as refused:
                await it.ask("send_bytes", key="p", size=size, seed="x")
            assert refused.value.name == TOO_LARGE.get(client, "Unknown")
        await it.ask("send_bytes", key="p", size=MAX_MESSAGE_BYTES - 1_000, seed="x")
        topic = await world.running["us"].directory.acquire(ORDERS, OpenMode.EXISTING)
        assert topic.stored_end == 1
