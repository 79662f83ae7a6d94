"""Options of consumers and readers of real clients: delays, dead letters, seeks, patterns, batch indexes."""

from __future__ import annotations

import pytest

from tests.clients.harness import ClientProgram, Scene, clients, now_ms

pytestmark = [pytest.mark.real, pytest.mark.scene(seconds=150)]
WITH_POSITIONS = clients("rust")
"""Clients that know positions within a batch, count deliveries, and have `hasMessageAvailable`."""
SEEKS_TO_THE_ENDS = ("own", "python", "java")
"""The Go client rejects it itself: its ids of the ends name no partition."""
PAYLOADS = [f"m{number}" for number in range(8)]
LETTERS = {"dead_letters": "dead", "first_subscription": "first"}


async def counted(program: ClientProgram) -> tuple[str, int]:
    """Negatively acknowledge a message; return its payload and redelivery count."""
    message = await program.message(then="give back")
    return message["payload"], int(message["count"])


async def publish_two_batches(program: ClientProgram) -> None:
    await program.producer(batch=4)
    for first in (0, 4):
        await program.send_batch(*PAYLOADS[first : first + 4])


async def keep(program: ClientProgram, count: int, key: str = "c") -> list[str]:
    """Without acknowledging: clients batch acknowledgements, and may send them after the seek."""
    return [await program.receive(key, then="keep") for _ in range(count)]


@clients()
@pytest.mark.parametrize("type_", ["Shared", "KeyShared"])
async def test_delayed_messages_come_in_the_order_of_their_times_and_never_early(
    scene: Scene, type_: str
) -> None:
    program = scene.program
    await program.subscribe(type=type_)
    await program.producer()
    begin, delays = now_ms(), {"late": 7_000, "soon": 3_500, "now": None}
    for payload, delay_ms in delays.items():
        await program.send(payload, delay_ms=delay_ms)
    for payload in ("now", "soon", "late"):
        assert await program.receive() == payload
        assert now_ms() - begin >= (delays[payload] or 0)


@WITH_POSITIONS
async def test_a_message_beyond_its_redeliveries_is_a_dead_letter(scene: Scene) -> None:
    """The region creates the dead-letter topic's first subscription together with its producer, so it misses no
    message."""
    program, payloads = scene.program, ["0", "1", "2"]
    await program.subscribe(type="Shared", redeliveries=2, **LETTERS)
    await program.producer()
    await program.send(*payloads)
    received = [await counted(program) for _ in range(3 * 3)]
    assert sorted(received) == [(payload, count) for payload in payloads for count in range(3)]
    assert await program.nothing_comes()
    await program.subscribe("dead", "d", subscription="first", type="Shared", **{"from": "latest"})
    assert sorted([await program.receive("d") for _ in payloads]) == payloads


@WITH_POSITIONS
@pytest.mark.scene("us", "eu", seconds=150)
async def test_a_message_from_another_region_becomes_a_dead_letter_too(scene: Scene) -> None:
    """A client copies a message's properties into the dead letter, including those that replication added."""
    program = scene.program
    await program.subscribe(type="Shared", redeliveries=1, **LETTERS)
    await program.producer(client="eu")
    await program.send("x")
    assert [await counted(program) for _ in range(2)] == [("x", 0), ("x", 1)]
    await program.subscribe("dead", "d", subscription="first", type="Shared", **{"from": "earliest"})
    assert await program.receive("d") == "x"


@clients("python", "rust")
async def test_a_reconsumed_message_comes_again_by_the_retry_topic(scene: Scene) -> None:
    program = scene.program
    await program.subscribe(type="Shared", redeliveries=2, retries="retry", **LETTERS)
    await program.producer()
    await program.send("x")
    for _ in range(3):
        assert await program.receive(then="put off") == "x"
    await program.subscribe("dead", "d", subscription="first", type="Shared")
    assert await program.receive("d") == "x"


@WITH_POSITIONS
async def test_readers_begin_at_any_message_also_within_a_batch_and_know_when_they_are_at_the_end(
    scene: Scene,
) -> None:
    program = scene.program
    await program.reader("earliest", "empty")
    assert await program.rest("empty") == []
    await publish_two_batches(program)
    assert await program.rest("empty") == PAYLOADS
    for start in (0, 2, 3, 4, 7):
        for inclusive, begin in (("no", start + 1), ("yes", start)):
            key = f"r-{start}-{inclusive}"
            await program.reader(PAYLOADS[start], key, inclusive=inclusive)
            assert await program.rest(key) == PAYLOADS[begin:], (start, inclusive)
    await program.reader("latest")
    assert await program.rest() == []
    if scene.client in SEEKS_TO_THE_ENDS:
        await program.ask("seek", key="r", place="earliest")
        assert await program.rest() == PAYLOADS


@WITH_POSITIONS
async def test_a_seek_goes_to_a_message_to_either_end_and_to_a_time(scene: Scene) -> None:
    program = scene.program
    await publish_two_batches(program)
    await program.subscribe()
    for start in (5, 0, 7):
        await program.ask("seek", key="c", place=PAYLOADS[start])
        assert await keep(program, len(PAYLOADS[start:])) == PAYLOADS[start:]
    if scene.client in SEEKS_TO_THE_ENDS:
        await program.ask("seek", key="c", place="earliest")
        assert await keep(program, len(PAYLOADS)) == PAYLOADS
        await program.ask("seek", key="c", place="latest")
        assert await program.nothing_comes()
    # A consumer of its own: the Go client keeps dropping messages before the position of its last seek.
    await program.subscribe(key="t", subscription="by-time")
    await program.ask("seek", key="t", time_ms=now_ms() + 3_600_000)
    assert await program.nothing_comes("t")
    await program.ask("seek", key="t", time_ms=1)
    assert await keep(program, len(PAYLOADS), "t") == PAYLOADS


@WITH_POSITIONS
async def test_parts_of_a_batch_are_acknowledged_and_the_rest_goes_to_the_next_consumer(scene: Scene) -> None:
    program, payloads = scene.program, PAYLOADS[:5]
    await program.subscribe(type="Shared")
    await program.producer(batch=5)
    await program.send_batch(*payloads)
    for payload in payloads:
        kept = payload in ("m1", "m3")
        assert await program.receive(then="keep" if kept else "acknowledge") == payload
    await program.ask("close", key="c")
    await program.subscribe(key="next", type="Shared")
    assert [await program.receive("next") for _ in range(2)] == ["m1", "m3"]
    assert await program.nothing_comes("next")


@clients()
async def test_a_pattern_finds_existing_and_later_topics(scene: Scene) -> None:
    """The Python client ignores the broker's updates and polls once a minute; so it is tested with the first topics
    only."""
    program = scene.program

    async def publish(topic: str) -> None:
        await program.producer(topic, key=topic)
        await program.send(topic, key=topic)

    for topic in ("rx-0", "rx-1", "other"):
        await publish(topic)
    await program.subscribe(None, pattern="persistent://public/default/rx-.*", type="Shared")
    assert {await program.receive() for _ in range(2)} == {"rx-0", "rx-1"}
    if scene.client != "python":
        await publish("rx-2")
        assert await program.receive() == "rx-2"
