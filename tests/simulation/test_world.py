"""A world in a `with`: protocol tests that need no sleeping and no ports."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import InitialPosition
from emulator.simulation.world import World, world

TOPIC = "persistent://public/default/orders"


def stored(w: World, region: str) -> int:
    return len(w.regions[region].disk.entries(TOPIC))


def test_quiet_means_replicated() -> None:
    """After `quiet` every region holds what was published anywhere."""
    with world("us", "eu", "ap") as w:

        async def story() -> None:
            producer = await w.client("us").producer(TOPIC)
            for number in range(10):
                await producer.send(b"%d" % number)
            await w.quiet()
            assert [stored(w, region) for region in w.regions] == [10, 10, 10]

        w.play(story())


def test_a_cut_link_passes_nothing_until_it_is_healed() -> None:
    with world("us", "eu") as w:

        async def story() -> None:
            producer = await w.client("us").producer(TOPIC)
            await producer.send(b"before")
            await w.quiet()
            w.cut("us", "eu")
            await producer.send(b"after")
            with pytest.raises(TimeoutError, match="us still has 1 entries"):
                await w.quiet(within_seconds=10)
            assert stored(w, "eu") == 1
            w.heal()
            await w.quiet()
            assert stored(w, "eu") == 2

        w.play(story())


def test_a_killed_region_comes_back_with_what_it_acknowledged() -> None:
    with world("us", "eu") as w:

        async def story() -> None:
            client = w.client("us", "eu")
            producer = await client.producer(TOPIC)
            sent = [producer.send_nowait(b"%d" % number) for number in range(20)]
            await sent[5]
            w.kill("us")
            await asyncio.sleep(1)
            w.start("us")
            await asyncio.gather(*sent)
            await w.quiet()
            consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
            assert {(await consumer.receive()).payload for _ in range(20)} == {b"%d" % n for n in range(20)}

        w.play(story())


@pytest.mark.parametrize("power", [False, True])
def test_peers_find_out_that_a_region_is_gone(power: bool) -> None:
    """Told by its kernel, or by hearing nothing."""
    with world("us", "eu") as w:

        async def story() -> None:
            broker = w.regions["eu"].broker
            assert broker is not None
            (w.power_off if power else w.kill)("us")
            await w.simulation.until(lambda: bool(broker.waiting_for({"us"})), within_seconds=10)

        w.play(story())


def test_the_same_seed_is_the_same_world() -> None:
    def digest(seed: int) -> str:
        with world("us", "eu", seed=seed) as w:

            async def story() -> None:
                producer = await w.client("us").producer(TOPIC)
                await producer.send(b"x")
                await w.quiet()

            w.play(story())
            return w.simulation.trace.hexdigest()

    assert digest(1) == digest(1) != digest(2)
