"""Regions as processes that keep their logs in Kafkas which the run starts for them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from emulator.client import EARLIEST, Client
from emulator.config.loading import load_topology
from emulator.config.region import LogConfig
from emulator.config.topology import Topology
from emulator.run.processes import state_of
from emulator.runtimes import region_kafka
from emulator.runtimes.kafka_server import KafkaServer
from emulator.runtimes.process import ProcessRuntime

pytestmark = pytest.mark.long

SAMPLE = Path(__file__).parents[2] / "topology.yaml"


def on_kafka(topology: Topology) -> Topology:
    """Return the same topology, with one cluster's regions on Kafkas without an address."""
    return topology.with_regions(
        lambda region: (
            dataclasses.replace(region, log=LogConfig("kafka"))
            if region.cluster == topology.clusters[-1].name
            else region
        )
    )


async def test_a_region_whose_topology_names_no_kafka_gets_one_that_outlives_its_kill(
    tmp_path: Path, kafka_server: KafkaServer
) -> None:
    """Acknowledged messages are there after kill -9 and a start; `down` leaves no Kafka behind. (The fixture only makes
    sure of the jars.)"""
    runtime = ProcessRuntime.create(on_kafka(load_topology(SAMPLE)), tmp_path / "run")
    await runtime.up()
    try:
        urls = {region.name: region.service_url for region in (await runtime.status()).regions}
        async with Client(urls["eu-central"]) as client:
            producer = await client.producer("orders")
            for number in range(20):
                await producer.send(b"%d" % number)
        await runtime.kill("eu-central")
        await runtime.start("eu-central")
        async with Client(urls["eu-central"]) as client:
            reader = await client.reader("orders", EARLIEST)
            assert [(await reader.receive()).payload for _ in range(20)] == [b"%d" % n for n in range(20)]
        keeper = region_kafka._keeper(tmp_path / "run" / "regions" / "eu-central")
        assert keeper is not None
        assert state_of(keeper) == "running"
    finally:
        await runtime.down()
    assert state_of(keeper) == "gone"
