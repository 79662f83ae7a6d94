"""The shipped sample topology: Java's pulsar-admin sets a policy in one cluster, and a real client of another obeys it
(PIP-136)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from emulator.config.loading import load_topology
from emulator.runtimes.contract import RegionStatus
from emulator.runtimes.process import ProcessRuntime
from tests.broker.admin.served import Served
from tests.clients.admin.walking import pulsar_admin
from tests.runtimes.fixtures import end_all

pytestmark = [pytest.mark.real, pytest.mark.long]
SAMPLE = Path(__file__).parents[3] / "topology.yaml"
DEADLINE_SECONDS = 30


@pytest.fixture(autouse=True)
def _nothing_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    end_all(tmp_path / "run")


def ports(region: RegionStatus) -> Served:
    """Return the addresses of a region in its own process: pulsar-admin needs nothing else."""
    found = [int(url.rpartition(":")[2]) for url in (region.admin_url, region.service_url)]
    return cast(Served, SimpleNamespace(admin_port=found[0], service_port=found[1]))


def creates(pulsar: Any, region: RegionStatus, topic: str) -> bool:
    client = pulsar.Client(region.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        client.create_producer(f"persistent://public/default/{topic}")
    except pulsar.TopicNotFound:
        return False
    finally:
        client.close()
    return True


def test_a_policy_set_by_pulsar_admin_in_one_cluster_is_obeyed_in_another(tmp_path: Path) -> None:
    pulsar = pytest.importorskip("pulsar")
    run = ProcessRuntime.create(load_topology(SAMPLE), tmp_path / "run", detached=False)

    async def scenario() -> None:
        await run.up()
        regions = {one.name: one for one in (await run.status()).regions}
        east, europe = regions["us-east"], regions["eu-central"]
        assert east.cluster != europe.cluster
        await asyncio.to_thread(change_and_see, east, europe)
        await run.down()

    def change_and_see(east: RegionStatus, europe: RegionStatus) -> None:
        with pulsar_admin(ports(europe)) as admin:
            assert creates(pulsar, east, "before")
            done, said = admin.ask("namespaces", "set-auto-topic-creation", "--disable", "public/default")
            assert done, said
            deadline, number = time.monotonic() + DEADLINE_SECONDS, 0
            while creates(pulsar, east, f"after-{number}"):
                assert time.monotonic() < deadline
                number += 1

    asyncio.run(asyncio.wait_for(scenario(), 180))
