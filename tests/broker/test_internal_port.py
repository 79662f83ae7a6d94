"""A region in a container has two ways in, and sends nobody the way that is closed to them."""

from __future__ import annotations

import asyncio
import random

from emulator.broker.environment import Environment
from emulator.broker.region import Region
from emulator.network import SocketNetwork
from emulator.region_config import LogConfig, NamespaceConfig, RegionConfig
from emulator.storage.memory import MemoryStore
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import decode_command
from emulator.wire.frames import FrameBuffer, simple_frame


async def _looked_up(port: int) -> str:
    """What a client that came by `port` is told about where a topic is."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connect = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
    connect.connect.client_version = "test"
    lookup = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
    lookup.lookupTopic.topic = "persistent://public/default/orders"
    lookup.lookupTopic.request_id = 1
    writer.write(simple_frame(connect) + simple_frame(lookup))
    frames = FrameBuffer(1_000_000)
    try:
        async with asyncio.timeout(5):
            while True:
                for _, command, _ in frames.feed(await reader.read(65_536)):
                    answer = decode_command(command)
                    if answer.type == pb.BaseCommand.LOOKUP_RESPONSE:
                        return str(answer.lookupTopicResponse.brokerServiceUrl)
    finally:
        writer.close()


def test_lookups_answer_with_the_address_of_the_side_that_asked() -> None:
    config = RegionConfig(
        region="us",
        cluster="test",
        advertised_service_port=16_650,
        internal_host="us",
        log=LogConfig("memory"),
        namespaces=(NamespaceConfig("public/default", ("us",)),),
    )

    async def story() -> None:
        network = SocketNetwork()
        store = await MemoryStore.open(region="us")
        region = Region(config, Environment(lambda: 0, random.Random(1), network, network, store))
        await region.start()
        inside = int(region.internal_url.rpartition(":")[2])
        assert await _looked_up(region.service_port) == "pulsar://127.0.0.1:16650"
        assert await _looked_up(inside) == f"pulsar://us:{inside}"
        await region.stop()

    asyncio.run(story())


def test_a_process_has_one_way_in_only() -> None:
    assert RegionConfig("us", "test").internal_host == ""
