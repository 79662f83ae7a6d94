"""Two clusters as processes, with a real client: a policy set in one is obeyed in the other; clocks may be wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.model.values import CLIENTS
from emulator.runtimes.contract import RegionStatus
from emulator.runtimes.process import ProcessRuntime

from .fixtures import admin_request, small_topology

pytestmark = pytest.mark.real
EVENTS = "persistent://pulsar/system/metadata-events"
OFF = {"allowAutoTopicCreation": False}
CREATION = "/admin/v2/namespaces/public/default/autoTopicCreation"


def is_off(said: Any) -> bool:
    return isinstance(said, dict) and said.get("allowAutoTopicCreation") is False


def synchronised_topology(folder: Path) -> Topology:
    return small_topology(folder, more=f"settings: {{configuration_metadata_sync_event_topic: '{EVENTS}'}}\n")


def creates(region: RegionStatus, topic: str) -> bool:
    """Whether the region creates a topic for a producer with the real client."""
    pulsar = pytest.importorskip("pulsar")
    client = pulsar.Client(region.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        client.create_producer(topic)
    except pulsar.TopicNotFound:
        return False
    finally:
        client.close()
    return True


async def until_said(region: RegionStatus, path: str, is_so: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so(await admin_request(region, "GET", path)):
            await asyncio.sleep(0.02)


@pytest.mark.within(120)
async def test_what_is_set_in_one_cluster_is_obeyed_by_a_client_of_another(tmp_path: Path) -> None:
    runtime = ProcessRuntime.create(synchronised_topology(tmp_path), tmp_path / "run")

    await runtime.up()
    east, west, europe = (await runtime.status()).regions
    assert await asyncio.to_thread(creates, europe, "first")
    assert await admin_request(east, "POST", CREATION, OFF) == 204
    await until_said(europe, CREATION, is_off)
    assert not await asyncio.to_thread(creates, europe, "second")
    await runtime.skew("eu-central", -60_000)
    assert (await admin_request(europe, "GET", "/geoemu/v1/clock"))["ahead_ms"] == -60_000
    assert await admin_request(europe, "DELETE", CREATION) == 409, (
        "older than the stored change, by this clock"
    )
    await runtime.kill("us-east")
    await runtime.restart("eu-central")
    assert (await admin_request(europe, "GET", "/geoemu/v1/clock"))["ahead_ms"] == -60_000
    await runtime.skew("eu-central", 0)
    assert await admin_request(europe, "DELETE", CREATION) == 204
    await until_said(west, CREATION, lambda said: not is_off(said))
    await runtime.down()


@pytest.mark.within(120)
async def test_a_cluster_that_lost_its_store_starts_on_a_new_one_and_gets_its_policies_back(
    tmp_path: Path,
) -> None:
    runtime = ProcessRuntime.create(synchronised_topology(tmp_path), tmp_path / "run")
    lost = "/geoemu/v1/clusters/europe/lost"

    await runtime.up()
    east, _, europe = (await runtime.status()).regions
    assert await admin_request(europe, "POST", CREATION, OFF) == 204
    await until_said(east, CREATION, lambda said: isinstance(said, dict))
    with pytest.raises(Refused, match="eu-central of cluster europe runs"):
        await runtime.lose_store("europe")
    await runtime.lose("eu-central")
    assert await admin_request(east, "GET", lost) == {"lost": True, "by": "operator", "times": 1}
    await runtime.lose_store("europe")
    assert (tmp_path / "run/configuration/europe/lost-1/configuration.sqlite").exists()
    await runtime.start("eu-central")
    await until_said(europe, CREATION, lambda said: isinstance(said, dict))
    assert (await admin_request(east, "GET", lost))["lost"] is False
    await runtime.restart("eu-central")
    await runtime.down()


@pytest.mark.within(120)
async def test_a_region_that_starts_accepts_changes_of_its_clock_and_of_its_connections(
    tmp_path: Path,
) -> None:
    """Found by random faults: the process ran, but its admin port did not listen yet."""
    runtime = ProcessRuntime.create(small_topology(tmp_path), tmp_path / "run")
    await runtime.up()
    await runtime.kill("us-east")
    starting = asyncio.create_task(runtime.start("us-east"))
    async with asyncio.timeout(30):
        while (await runtime.status()).regions[0].state == "killed":
            await asyncio.sleep(0)
    await runtime.break_connections([(CLIENTS, "us-east")], "half_open")  # it has no connection yet
    await runtime.skew("us-east", 4_000)
    await starting
    east = (await runtime.status()).regions[0]
    assert (await admin_request(east, "GET", "/geoemu/v1/clock"))["ahead_ms"] == 4_000
    await runtime.down()
