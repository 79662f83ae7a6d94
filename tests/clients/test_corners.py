"""Rarely used corners of the protocol that client authors test: the ends of a topic, zero-length queues, non-persistent
topics, table views, messages that are too large."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.compaction.compaction import CompactionStatus
from emulator.broker.topic_directory.loaded_topic import OpenMode
from tests.broker.regions import until
from tests.clients.harness import ORDERS, ClientProgram, Scene, clients, now_ms, rejected

MAX_MESSAGE_BYTES = 1_048_576
pytestmark = [pytest.mark.real, pytest.mark.scene(max_message_bytes=MAX_MESSAGE_BYTES)]
LIVE = "non-persistent://public/default/live"
HOUR_MS = 3_600_000
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


async def publish(program: ClientProgram, *payloads: str, topic: str = "orders") -> None:
    """With a producer of its own, `p TOPIC`."""
    await program.producer(topic, f"p {topic}")
    await program.send(*payloads, key=f"p {topic}")


@clients("rust")
async def test_at_the_end_a_reader_has_no_message_available_however_it_came_there(scene: Scene) -> None:
    program = scene.program
    for start in ("earliest", "latest"):
        for inclusive in ("no", "yes"):
            key = f"empty {start} {inclusive}"
            await program.reader(start, key, inclusive=inclusive)
            assert await program.rest(key) == [], key
    await publish(program, "m0", "m1", "m2")
    for start, inclusive, expected in (
        ("latest", "no", []),
        ("latest", "yes", ["m2"]),
        ("m2", "no", []),
        ("m2", "yes", ["m2"]),
    ):
        key = f"{start} {inclusive}"
        await program.reader(start, key, inclusive=inclusive)
        assert await program.rest(key) == expected, key
    await program.reader("earliest")
    assert await program.rest() == ["m0", "m1", "m2"]
    now = now_ms()
    positions = {now - HOUR_MS: ["m0", "m1", "m2"], now + HOUR_MS: [], 1: ["m0", "m1", "m2"]}
    if scene.client == "go":
        del positions[now + HOUR_MS]  # it compares with its last read position, and forgets that at a seek
    for time_ms, expected in positions.items():
        await program.ask("seek", key="r", time_ms=time_ms)
        assert await program.rest() == expected, time_ms - now


@clients("rust")
async def test_on_a_compacted_topic_a_reader_waits_for_nothing_that_was_compacted_away(scene: Scene) -> None:
    """The compacted messages include the last one of the topic."""
    program = scene.program
    await program.producer(ORDERS)
    for key, payload in (("a", "1"), ("b", "2"), ("a", "3"), ("b", "")):
        await program.send(payload, message_key=key)
    compaction = scene.region.directory.serving[ORDERS].compaction
    compaction.begin()
    await until(lambda: compaction.status is CompactionStatus.SUCCESS)
    await program.reader("earliest", topic=ORDERS, compacted="yes")
    assert await program.rest() == ["3"]
    await program.send("5", message_key="c")
    assert await program.rest() == ["5"]
    await program.ask("seek", key="r", time_ms=1)
    assert await program.rest() == ["3", "5"]


@clients("rust")
async def test_a_consumer_without_a_queue_takes_nothing_from_others(scene: Scene) -> None:
    program = scene.program
    for key in ("c", "d"):
        await program.subscribe(key=key, type="Shared", queue=0)
    await publish(program, "m0", "m1", "m2", "m3")
    assert await program.receive("c") == "m0"
    assert [await program.receive("d") for _ in range(2)] == ["m1", "m2"]
    assert await program.receive("c") == "m3"


@clients("python", "go", "rust")
async def test_a_consumer_that_starts_paused_takes_nothing_until_it_is_resumed(scene: Scene) -> None:
    program = scene.program
    await program.subscribe(key="paused", type="Shared", paused="yes")
    await program.subscribe(key="other", type="Shared")
    await publish(program, "m0", "m1")
    assert [await program.receive("other") for _ in range(2)] == ["m0", "m1"]
    await program.ask("close", key="other")
    await publish(program, "m2")
    assert await program.nothing_comes("paused")
    await program.ask("resume", key="paused")
    assert await program.receive("paused") == "m2"


@clients()
@pytest.mark.scene("us", "eu")
async def test_a_message_to_a_non_persistent_topic_reaches_the_connected_consumers_of_every_region(
    scene: Scene,
) -> None:
    program = scene.program
    await publish(program, "missed", topic=LIVE)
    for region in ("us", "eu"):
        await program.subscribe(LIVE, f"c {region}", client=region, type="Shared")
    # The link to the other region is open once a message has arrived.
    await publish(program, topic=LIVE)
    opened = asyncio.ensure_future(program.receive("c eu"))
    while not opened.done():
        await program.send("open", key=f"p {LIVE}")
        await asyncio.wait([opened], timeout=0.1)
    await program.send("live", key=f"p {LIVE}")
    for region in ("us", "eu"):
        key = f"c {region}"
        while (payload := await program.receive(key)) != "live":
            assert payload == "open"
        await program.ask("close", key=key)
        await program.subscribe(LIVE, key, client=region, type="Shared")
        assert await program.nothing_comes(key)


@clients("rust")
async def test_a_table_view_follows_its_topic_also_when_that_is_unloaded(scene: Scene) -> None:
    program = scene.program
    await program.producer(ORDERS)
    await program.send("1", message_key="a")
    await program.ask("open_table", client="us", key="t", topic=ORDERS)
    assert (await program.ask("entries", key="t"))["entries"] == "a:1"
    removed = "a:3,b:2" if scene.client in REMOVES_NOTHING else "a:3"
    for key, payload, expected in (("b", "2", "a:1,b:2"), ("a", "3", "a:3,b:2"), ("b", "", removed)):
        await program.send(payload, message_key=key)
        await until_shown(program, expected)
    await scene.region.directory.unload(ORDERS, "requested by the admin API")
    await program.send("4", message_key="c")
    await until_shown(program, f"{removed},c:4")


async def until_shown(program: ClientProgram, entries: str) -> None:
    """Each request waits for its response."""
    while (await program.ask("entries", key="t"))["entries"] != entries:
        pass


@clients("python", "rust")
async def test_a_confirmed_acknowledgement_survives_a_crash(scene: Scene) -> None:
    program = scene.program
    await program.subscribe(type="Shared", receipts="yes")
    await publish(program, "m0", "m1", "m2")
    assert [await program.receive() for _ in range(2)] == ["m0", "m1"]
    await scene.restart()
    await program.subscribe(key="next", type="Shared")
    await program.ask("close", key="c")
    assert await program.receive("next") == "m2"
    assert await program.nothing_comes("next")


@clients("python")
async def test_a_pattern_consumer_finds_topics_created_after_the_region_was_down(scene: Scene) -> None:
    program = scene.program
    await publish(program, "rx-0", topic="rx-0")
    await program.subscribe(None, pattern="persistent://public/default/rx-.*", type="Shared")
    assert await program.receive() == "rx-0"
    await scene.restart()
    await publish(program, "rx-1", topic="rx-1")
    assert await next_other_than("rx-0", program) == "rx-1"
    await program.send("more", key="p rx-0")
    assert await next_other_than("rx-0", program) == "more"


async def next_other_than(payload: str, program: ClientProgram) -> str:
    """The last acknowledged message may arrive again: clients batch acknowledgements."""
    while (received := await program.receive()) == payload:
        pass
    return received


@clients()
async def test_a_message_that_is_too_large_is_rejected_and_the_next_one_is_not(scene: Scene) -> None:
    program = scene.program
    await program.producer(ORDERS)
    for size in (MAX_MESSAGE_BYTES + 1, 2 * MAX_MESSAGE_BYTES)[: 2 if scene.client in TOO_LARGE else 1]:
        error = await rejected(program.ask("send_bytes", key="p", size=size, seed="x"))
        assert error.name == TOO_LARGE.get(scene.client, "Unknown")
    await program.send_bytes(MAX_MESSAGE_BYTES - 1_000)
    topic = await scene.region.directory.acquire(ORDERS, OpenMode.EXISTING)
    assert topic.state.stored_end == 1
