"""The HTTP port of a simulated region runs the shipped code."""

from __future__ import annotations

import pytest

from emulator.net.http import NoAnswer
from emulator.simulation.world import World, world

STATS = "/admin/v2/persistent/public/default/orders/stats"


def test_regions_of_a_world_answer_over_http() -> None:
    with world("us", "eu", seed=3) as w:

        async def scenario() -> list[str]:
            producer = await w.client("us").producer("orders")
            await producer.send(b"hello")
            await w.quiet()
            there = await w.ask_admin("eu", "GET", "/geoemu/v1/status")
            stats = await w.ask_admin("us", "GET", STATS)
            assert there.json()["ready"]
            return [*stats.json()["replication"], stats.json()["publishers"][0]["address"].partition(":")[0]]

        eu, address = w.play(scenario())
        assert eu == "eu"
        assert address.startswith("/")


def test_changes_are_guarded_there_too_and_reach_the_row() -> None:
    with world("us", seed=3) as w:

        async def scenario() -> tuple[int, str]:
            answer = await w.ask_admin("us", "PUT", "/geoemu/v1/links/us/eu", {"state": "cut"})
            return answer.status, answer.json()["reason"]

        assert w.play(scenario()) == (404, "no link us -> eu; peers are: ")


@pytest.mark.world("us", "eu", seed=3)
async def test_a_region_that_is_down_gives_no_answer(world: World) -> None:
    world.kill("us")
    with pytest.raises(NoAnswer, match="us:8080"):
        await world.ask_admin("us", "GET", "/geoemu/v1/status")
    world.start("us")
    await world.ready()
    assert (await world.ask_admin("us", "GET", "/geoemu/v1/status")).status == 200
