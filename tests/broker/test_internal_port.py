"""A region in a container has an internal and an external address, and clients get the one they can reach."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from emulator.broker.admin.server import Admin
from emulator.broker.environment import Environment
from emulator.broker.region import Region
from emulator.client import EARLIEST, Client
from emulator.config.broker_settings import BrokerSettings
from emulator.config.region import LogConfig, NamespaceConfig, RegionConfig
from emulator.net.network import SocketNetwork
from emulator.storage.configuration.memory import MemoryConfiguration
from emulator.storage.memory import MemoryStore
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.frames import FrameBuffer, simple_frame
from emulator.wire.protobuf import decode_command


async def looked_up(port: int, host: str = "127.0.0.1") -> str:
    """Return the URL in the lookup response for a client that connected to `port`."""
    return str((await _lookup_response(port, host)).brokerServiceUrl)


async def _lookup_response(port: int, host: str = "127.0.0.1") -> pb.CommandLookupTopicResponse:
    reader, writer = await asyncio.open_connection(host, port)
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
                        return answer.lookupTopicResponse
    finally:
        writer.close()


async def _looked_up_by_http(port: int, host: str) -> dict[str, str]:
    """The same over HTTP, for a client that calls the region `host`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    path = "/lookup/v2/topic/persistent/public/default/orders"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    try:
        async with asyncio.timeout(5):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    assert b" 200 " in head
    answer: dict[str, str] = json.loads(body)
    assert (answer.pop("brokerUrlTls"), answer.pop("brokerUrlSsl")) == ("", "")
    return answer


@asynccontextmanager
async def _region_with_two_ways_in(**settings: bool) -> AsyncIterator[tuple[Region, int]]:
    """Run a region with two addresses; yield it with its HTTP port."""
    config = RegionConfig(
        region="us",
        cluster="test",
        advertised_service_port=16_650,
        advertised_admin_port=18_080,
        internal_host="us",
        log=LogConfig("memory"),
        settings=BrokerSettings(**settings),  # type: ignore[arg-type]
        namespaces=(NamespaceConfig("public/default", ("us",)),),
    )
    network = SocketNetwork()
    store = await MemoryStore.open(region="us")
    region = Region(
        config, Environment(lambda: 0, random.Random(1), network, network, store, MemoryConfiguration())
    )
    admin = Admin(region, {})
    await region.start()
    try:
        yield region, await admin.start()
    finally:
        admin.close()
        await region.stop()


async def test_lookups_return_the_address_for_the_side_of_the_client() -> None:
    async with _region_with_two_ways_in() as (region, _):
        inside = int(region.clients.ports.internal_urls.plain.rpartition(":")[2])
        assert await looked_up(region.clients.ports.service_port) == "pulsar://127.0.0.1:16650"
        assert await looked_up(inside) == f"pulsar://us:{inside}"


async def test_clients_behind_mapped_ports_keep_their_service_url() -> None:
    """Nothing listens on the advertised port, as where a container's ports are mapped to ports that it does not know.
    Clients in the region's network reach its internal address directly."""
    async with _region_with_two_ways_in(proxy_through_service_url=True) as (region, _):
        outside, inside = (
            region.clients.ports.service_port,
            int(region.clients.ports.internal_urls.plain.rpartition(":")[2]),
        )
        assert (await _lookup_response(outside)).proxy_through_service_url
        assert not (await _lookup_response(inside)).proxy_through_service_url
        async with Client(f"pulsar://127.0.0.1:{outside}") as client, asyncio.timeout(5):
            await (await client.producer("orders")).send(b"paid")
            assert (await (await client.reader("orders", EARLIEST)).receive()).payload == b"paid"


async def test_lookups_by_http_answer_with_the_address_of_the_side_whose_name_was_used() -> None:
    """Both sides use one port; the Host header shows which address the client uses."""
    async with _region_with_two_ways_in() as (region, port):
        for host in ("127.0.0.1:18080", "localhost:18080", "us.example.com:18080", ""):
            assert await _looked_up_by_http(port, host) == {
                "brokerUrl": "pulsar://127.0.0.1:16650",
                "nativeUrl": "pulsar://127.0.0.1:16650",
                "httpUrl": "http://127.0.0.1:18080",
            }
        for host in ("us:8080", "US:8080", "us"):
            assert await _looked_up_by_http(port, host) == {
                "brokerUrl": region.clients.ports.internal_urls.plain,
                "nativeUrl": region.clients.ports.internal_urls.plain,
                "httpUrl": f"http://{host}",
            }


def test_a_process_has_one_way_in_only() -> None:
    assert RegionConfig("us", "test").internal_host == ""
