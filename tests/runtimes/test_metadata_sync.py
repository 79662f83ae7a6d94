"""Two clusters as processes, with a real client: a policy set in one is obeyed in the other; clocks may be wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.config.loading import load_topology
from emulator.errors import Refused
from emulator.runtimes.admin_client import call
from emulator.runtimes.contract import RegionStatus
from emulator.runtimes.process import ProcessRuntime

from .fixtures import end_all, write_topology

pytestmark = pytest.mark.real
EVENTS = "persistent://pulsar/system/metadata-events"
CREATION = "/admin/v2/namespaces/public/default/autoTopicCreation"


@pytest.fixture(autouse=True)
def _nothing_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    end_all(tmp_path / "run")


async def asked(region: RegionStatus, method: str, path: str, body: Any = None) -> Any:
    port = int(region.admin_url.rpartition(":")[2])
    answer = await call("127.0.0.1", port, method, path, body)
    return answer.json() if answer.status == 200 else answer.status


async def until_said(region: RegionStatus, path: str, is_so: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so(await asked(region, "GET", path)):
            await asyncio.sleep(0.02)


@pytest.mark.within(120)
async def test_what_is_set_in_one_cluster_is_obeyed_by_a_client_of_another(tmp_path: Path) -> None:
    pulsar = pytest.importorskip("pulsar")
    path = write_topology(tmp_path)
    path.write_text(path.read_text() + f"settings: {{configuration_metadata_sync_event_topic: '{EVENTS}'}}\n")
    runtime = ProcessRuntime.create(load_topology(path), tmp_path / "run", detached=False)

    def creates(region: RegionStatus, topic: str) -> bool:
        client = pulsar.Client(region.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            client.create_producer(topic)
        except pulsar.TopicNotFound:
            return False
        finally:
            client.close()
        return True

    def _is_off(said: Any) -> bool:
        return isinstance(said, dict) and said.get("allowAutoTopicCreation") is False

    await runtime.up()
    east, west, europe = (await runtime.status()).regions
    allowed = {"allowAutoTopicCreation": False}
    assert await asyncio.to_thread(creates, europe, "first")
    assert await asked(east, "POST", CREATION, allowed) == 204
    await until_said(europe, CREATION, _is_off)
    assert not await asyncio.to_thread(creates, europe, "second")
    await runtime.skew("eu-central", -60_000)
    assert (await asked(europe, "GET", "/geoemu/v1/clock"))["ahead_ms"] == -60_000
    assert await asked(europe, "DELETE", CREATION) == 409, "older than the stored change, by this clock"
    await runtime.kill("us-east")
    await runtime.restart("eu-central")
    assert (await asked(europe, "GET", "/geoemu/v1/clock"))["ahead_ms"] == -60_000
    await runtime.skew("eu-central", 0)
    assert await asked(europe, "DELETE", CREATION) == 204
    await until_said(west, CREATION, lambda said: not _is_off(said))
    await runtime.down()


@pytest.mark.within(120)
async def test_a_cluster_that_lost_its_store_starts_on_a_new_one_and_gets_its_policies_back(
    tmp_path: Path,
) -> None:
    path = write_topology(tmp_path)
    path.write_text(path.read_text() + f"settings: {{configuration_metadata_sync_event_topic: '{EVENTS}'}}\n")
    runtime = ProcessRuntime.create(load_topology(path), tmp_path / "run", detached=False)
    lost = "/geoemu/v1/clusters/europe/lost"

    await runtime.up()
    east, _, europe = (await runtime.status()).regions
    assert await asked(europe, "POST", CREATION, {"allowAutoTopicCreation": False}) == 204
    await until_said(east, CREATION, lambda said: isinstance(said, dict))
    with pytest.raises(Refused, match="eu-central of cluster europe runs"):
        await runtime.lose_store("europe")
    await runtime.lose("eu-central")
    assert await asked(east, "GET", lost) == {"lost": True, "by": "operator", "times": 1}
    await runtime.lose_store("europe")
    assert (tmp_path / "run/configuration/europe/lost-1/configuration.sqlite").exists()
    await runtime.start("eu-central")
    await until_said(europe, CREATION, lambda said: isinstance(said, dict))
    assert (await asked(east, "GET", lost))["lost"] is False
    await runtime.restart("eu-central")
    await runtime.down()
