"""The HTTP port of a simulated region runs the shipped code."""

from __future__ import annotations

import pytest

from emulator.net.http import NoHttpResponse
from emulator.simulation.world import World

STATS = "/admin/v2/persistent/public/default/orders/stats"


@pytest.mark.world("us", "eu", seed=3)
async def test_regions_of_a_world_answer_over_http(world: World) -> None:
    producer = await world.client("us").producer("orders")
    await producer.send(b"hello")
    await world.quiet()
    assert (await world.ask_admin("eu", "GET", "/geoemu/v1/status")).json()["ready"]
    stats = (await world.ask_admin("us", "GET", STATS)).json()
    assert list(stats["replication"]) == ["eu"]
    assert stats["publishers"][0]["address"].startswith("/")


@pytest.mark.world("us", seed=3)
async def test_changes_are_guarded_there_too_and_reach_the_row(world: World) -> None:
    response = await world.ask_admin("us", "PUT", "/geoemu/v1/links/us/eu", {"state": "cut"})
    assert (response.status, response.json()["reason"]) == (404, "no link us -> eu; peers are: clients")


@pytest.mark.world("us", "eu", seed=3)
async def test_a_region_that_is_down_gives_no_answer(world: World) -> None:
    world.kill("us")
    with pytest.raises(NoHttpResponse, match="us:8080"):
        await world.ask_admin("us", "GET", "/geoemu/v1/status")
    world.start("us")
    await world.ready()
    assert (await world.ask_admin("us", "GET", "/geoemu/v1/status")).status == 200
