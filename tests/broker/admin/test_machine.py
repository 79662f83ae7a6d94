"""A region's clock, disk and power over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from emulator.broker.environment import ShiftedClock
from emulator.client import Client
from emulator.client.types import EARLIEST

from .served import Served, served

CLOCK, STORAGE, POWER = "/geoemu/v1/clock", "/geoemu/v1/storage", "/geoemu/v1/power-loss"


@pytest.fixture
def region() -> Iterator[Served]:
    with served() as region:
        yield region


def test_a_clock_gains_its_drift_with_the_time_that_passes():
    now = 1_000_000
    clock = ShiftedClock(lambda: now, 250, 200.0)
    now += 10_000_000
    assert clock.ahead_ms == 250 + 2_000
    clock.set(-50, -100.0)
    assert clock() == now - 50
    now += 10_000_000
    assert clock.ahead_ms == -50 - 1_000
    clock.set(0)
    now += 10_000_000
    assert clock() == now


def test_a_clock_that_was_set_before_a_restart_has_drifted_meanwhile():
    clock = ShiftedClock(lambda: 20_000_000, 5, 1_000.0, set_at_ms=10_000_000)
    assert clock.ahead_ms == 5 + 10_000


def test_a_clock_is_set_with_and_without_a_drift(region: Served):
    assert region.ask("PUT", CLOCK, {"ahead_ms": 250, "drift_ppm": -200.5}).status == 204
    found = region.get(CLOCK)
    assert found["drift_ppm"] == -200.5
    assert abs(found["ahead_ms"] - 250) <= 1
    assert region.ask("PUT", CLOCK, {"ahead_ms": 0}).status == 204
    assert region.get(CLOCK)["drift_ppm"] == 0
    assert region.get(CLOCK)["ahead_ms"] == 0


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "ahead_ms"),
        ([], "ahead_ms"),
        ({"drift_ppm": 5}, "ahead_ms"),
        ({"ahead_ms": 1.5}, "whole number"),
        ({"ahead_ms": True}, "whole number"),
        ({"ahead_ms": 86_400_001}, "86400000"),
        ({"ahead_ms": 0, "drift_ppm": "5"}, "from -100000 to 100000 ppm"),
        ({"ahead_ms": 0, "drift_ppm": 100_001}, "from -100000 to 100000 ppm"),
        ({"ahead_ms": 0, "drift_ppm": float("nan")}, "from -100000 to 100000 ppm"),
        ({"ahead_ms": 0, "drift_ppm": None}, "from -100000 to 100000 ppm"),
        ({"ahead_ms": 0, "drift": 5}, "drift_ppm"),
    ],
)
def test_a_clock_without_meaning_is_refused_with_its_rule(region: Served, body: object, error: str):
    reply = region.ask("PUT", CLOCK, body)
    assert (reply.status, error in reply.body.decode()) == (400, True), reply


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "state"),
        ([], "state"),
        ({"state": "broken"}, "none of healthy, slow, full, failing"),
        ({"state": ["full"]}, "none of healthy, slow, full, failing"),
        ({"state": None}, "none of healthy, slow, full, failing"),
        ({"state": "slow", "delay_ms": 0}, "more than 0"),
        ({"state": "slow", "delay_ms": 1e300}, "at most 60000"),
        ({"state": "slow", "delay_ms": float("nan")}, "at most 60000"),
        ({"state": "slow", "delay_ms": "1"}, "no number"),
        ({"state": "slow", "delay_ms": {}}, "no number"),
        ({"state": "full", "delay_ms": 1}, "requires the state slow"),
        ({"state": "full", "more": 1}, "state"),
        (b"{", "JSON"),
    ],
)
def test_a_disk_without_meaning_is_refused_with_its_rule(region: Served, body: object, error: str):
    reply = region.ask("PUT", STORAGE, body)
    assert (reply.status, error in reply.body.decode()) == (400, True), reply
    assert region.get(STORAGE)["state"] == "healthy"


def test_a_region_with_a_full_disk_serves_on_and_accepts_writes_when_it_has_room(region: Served):
    async def publish_and_read(client: Client) -> None:
        producer = await client.producer("orders")
        await producer.send(b"before")
        assert region.ask("PUT", STORAGE, {"state": "full"}).status == 204
        assert region.ask("PUT", STORAGE, {"state": "full"}).status == 204  # twice
        waiting = asyncio.ensure_future(producer.send(b"meanwhile"))
        reader = await client.reader("orders", EARLIEST)
        assert (await asyncio.wait_for(reader.receive(), 10)).payload == b"before"
        assert not waiting.done()
        assert region.ask("PUT", STORAGE, {"state": "healthy"}).status == 204
        await asyncio.wait_for(waiting, 10)

    region.run(publish_and_read)
    assert region.get(STORAGE) == {
        "backend": "memory",
        "state": "healthy",
        "delay_ms": 0,
        "waiting_writes": 0,
    }


def test_a_region_that_no_program_can_end_refuses_a_power_loss(region: Served):
    assert region.ask("PUT", POWER).status == 409
    assert region.get(STORAGE)["state"] == "healthy"
