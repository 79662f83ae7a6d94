"""The partition that a message is routed to. Hashes of keys are those of the Java client 4.0.6."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from emulator.client import Batching, ClientError, KeyHash, Routing
from emulator.client.routing import MessageRouter, Router
from emulator.client.send_queue import OutgoingMessage
from emulator.model.hashing import murmur3

JAVA = {
    "": (0, 0),
    "a": (97, 1009084850),
    "key-0": (101943362, 1664612543),
    "key-1": (101943363, 414258592),
    "order-4711": (708276994, 1895557592),
    "über": (7604755, 537306924),
    "日本語": (25921943, 631534231),
    "😀": (1772899, 1051995898),
    "a long key that is more than sixteen bytes": (2083495184, 766008697),
}
"""By key: its JavaStringHash and its Murmur3Hash32."""


@pytest.mark.parametrize("key", JAVA)
def test_a_key_has_the_number_that_it_has_for_the_java_client(key: str) -> None:
    assert (KeyHash.JAVA_STRING(key), KeyHash.MURMUR3(key)) == JAVA[key]


def test_a_number_has_no_sign() -> None:
    """Both keys' hashes have the highest bit set."""
    assert murmur3(b"ba") > KeyHash.MURMUR3("ba") >= 0
    assert KeyHash.JAVA_STRING("polygenelubricants") == 0  # Java says -2**31


def message(payload: bytes = b"", key: str | None = None) -> OutgoingMessage:
    loop = asyncio.get_running_loop()
    return OutgoingMessage(payload, loop.create_future(), key=key)


class Clock:
    seconds = 0.0


def choices(
    count: int,
    partitions: int,
    *,
    routing: Routing | Router = Routing.ROUND_ROBIN,
    batching: Batching | None = None,
    payload: bytes = b"",
    seed: int = 1,
    apart_seconds: float = 0.0,
) -> list[int]:
    """Return the partitions of `count` messages without a key."""

    async def made() -> list[int]:
        clock = Clock()
        choice = MessageRouter(
            routing, KeyHash.JAVA_STRING, batching, random.Random(seed), lambda: clock.seconds
        )
        found = []
        for _ in range(count):
            found.append(choice.choose(message(payload), partitions))
            clock.seconds += apart_seconds
        return found

    return asyncio.run(made())


def test_messages_without_a_key_go_to_one_partition_after_the_other() -> None:
    found = choices(7, 3)
    assert found == [(found[0] + turn) % 3 for turn in range(7)]


def test_producers_do_not_all_begin_at_the_same_partition() -> None:
    assert len({choices(1, 8, seed=seed)[0] for seed in range(40)}) == 8


def test_batched_messages_stay_with_a_partition_for_as_long_as_a_batch_would_be_open() -> None:
    def lengths(found: list[int]) -> list[int]:
        return sorted(Counter(found).values())

    assert lengths(choices(30, 3, batching=Batching(messages_max=10))) == [10, 10, 10]
    by_size = Batching(bytes_max=100)
    assert lengths(choices(30, 3, batching=by_size, payload=b"x" * 20)) == [10, 10, 10]
    by_time = Batching(delay_ms_max=10)
    assert lengths(choices(30, 3, batching=by_time, apart_seconds=0.0051)) == [10, 10, 10]


async def test_a_single_partition_stays_the_one_however_much_the_topic_grows() -> None:
    choice = MessageRouter(Routing.SINGLE, KeyHash.JAVA_STRING, None, random.Random(5), lambda: 0.0)
    found = {choice.choose(message(), partitions) for partitions in (3, 3, 4, 7, 100)}
    assert len(found) == 1


@pytest.mark.parametrize("routing", list(Routing))
async def test_a_key_decides_before_the_routing_mode(routing: Routing) -> None:
    choice = MessageRouter(routing, KeyHash.JAVA_STRING, None, random.Random(5), lambda: 0.0)
    for key, (number, _) in JAVA.items():
        assert choice.choose(message(key=key), 7) == number % 7


@pytest.mark.parametrize("chosen", [-1, 3, 10**9, "1", None, True])
def test_a_router_that_chooses_a_missing_partition_gets_an_error(chosen: object) -> None:
    with pytest.raises(ClientError, match=r"the router chose partition .* of 3") as refusal:
        choices(1, 3, routing=lambda _message, _partitions: chosen)  # type: ignore[arg-type,return-value]
    assert refusal.value.definite
