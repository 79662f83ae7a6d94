"""Limits of connections, of producers and consumers of a connection, and of a tenant: an error to the client that
exceeds one, and to no other."""

from __future__ import annotations

import pytest

from emulator.broker.connection.client_limits import (
    HANDSHAKES_MIN,
    ConnectionCounts,
    PendingHandshakes,
    check_count,
)
from emulator.config.broker_settings import BrokerSettings
from emulator.errors import ProtocolError, ServerError
from emulator.wire import pulsar_pb2 as pb
from tests.broker.admin.served import served
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import regions, until


@pytest.mark.parametrize("setting", ["connections_max", "connections_per_host_max"])
async def test_a_connection_above_the_limit_is_refused_and_the_others_notice_nothing(setting: str) -> None:
    async with (
        regions("us", "eu", **{setting: 2}) as world,
        raw_client(world) as one,
        raw_client(world) as two,
    ):
        async with raw_client(world, handshake=False) as third:
            third.greet()
            refused = (await third.next()).error
            assert refused.error == pb.NotAllowedError
            assert refused.message.startswith("Reached the maximum number of connections")
            assert await third.reader.read() == b""
        for number, client in enumerate((one, two)):
            assert (await client.open_producer(1, name=f"p{number}")).producer_name == f"p{number}"
        # Regions do not count: the link of eu is connected, and a new one may be opened.
        peer = await RawClient.connect_as_region(world, "eu")
        assert (await peer.next()).type == pb.BaseCommand.CONNECTED
        peer.writer.transport.abort()


async def test_a_closed_connection_makes_room_for_another_one() -> None:
    async with regions("us", connections_max=1) as world:
        for _ in range(3):
            async with raw_client(world) as client:
                assert (await client.open_producer()).producer_name == "p"
            clients = world.running["us"].clients
            await until(lambda clients=clients: not clients.counts)  # type: ignore[misc]


def test_a_host_has_its_own_limit() -> None:
    counts = ConnectionCounts(BrokerSettings(connections_max=3, connections_per_host_max=2))
    for address in ("10.0.0.1:1", "[fe80::1]:2", "10.0.0.1:3"):
        counts.admit(address)
    for address in ("10.0.0.1:4", "10.0.0.2:5"):
        with pytest.raises(ProtocolError, match="maximum number of connections") as problem:
            counts.admit(address)
        assert problem.value.closes_connection
    counts.release("[fe80::1]:2")
    counts.admit("10.0.0.2:6")
    assert len(counts) == 3


class Handshake:
    """Records whether it was ended."""

    is_ended = False

    def abort(self) -> None:
        self.is_ended = True


def ended(handshakes: list[Handshake]) -> list[bool]:
    return [one.is_ended for one in handshakes]


def test_handshakes_count_with_the_admitted_connections_of_their_host() -> None:
    limit = HANDSHAKES_MIN + 10
    settings = BrokerSettings(connections_per_host_max=limit)
    counts = ConnectionCounts(settings)
    pending = PendingHandshakes(settings, counts)
    first = [Handshake() for _ in range(limit)]
    for number, one in enumerate(first):
        assert pending.admit(one, "fe80::1")
        pending.admit(Handshake(), f"10.0.0.{number}")
    assert not any(ended(first))
    latest = Handshake()
    pending.admit(latest, "fe80::1")
    assert ended(first) == [True] + [False] * (limit - 1), "the longest ends"
    for number in range(limit):
        counts.admit(f"[fe80::1]:{number}")
    for one in first:
        pending.release(one)
        pending.release(one)
    later = [Handshake() for _ in range(HANDSHAKES_MIN)]
    for one in later:
        pending.admit(one, "fe80::1")
    assert ended([latest, *later]) == [True] + [False] * HANDSHAKES_MIN, (
        "some are possible, whatever the number of connections"
    )


def test_handshakes_count_with_the_admitted_connections_of_all_hosts() -> None:
    limit = HANDSHAKES_MIN + 10
    settings = BrokerSettings(connections_max=limit)
    counts = ConnectionCounts(settings)
    pending = PendingHandshakes(settings, counts)
    many, other = [Handshake() for _ in range(limit)], Handshake()
    for one in many:
        pending.admit(one, "10.0.0.1")
    pending.admit(other, "10.0.0.2")
    assert (ended(many)[:2], other.is_ended) == ([True, False], False), "of the host with the most"
    for number in range(5):
        counts.admit(f"10.0.0.{number}:1")
    pending.admit(Handshake(), "10.0.0.3")
    assert len(pending) == limit, "each new one ends one"
    for one in (*many, other):
        pending.release(one)
    assert len(pending) == 1
    assert len(pending._by_host) == 1, "hosts without handshakes use no memory"


async def test_one_producer_or_consumer_more_than_a_connection_may_have_is_refused() -> None:
    limits = {"producers_per_connection_max": 2, "consumers_per_connection_max": 2}
    async with regions("us", **limits) as world, raw_client(world) as client, raw_client(world) as other:
        for number in (1, 2):
            assert (await client.open_producer(number, name=f"p{number}")).request_id == number
            assert (await client.subscribe(number, subscription=f"s{number}")).success.request_id == number
        client.ask_for_producer(3, name="p3")
        refused = (await client.next()).error
        assert (refused.request_id, refused.error) == (3, pb.NotAllowedError)
        assert "producers of one connection: 2" in refused.message
        refused = (await client.subscribe(3, subscription="s3")).error
        assert (refused.request_id, refused.error) == (3, pb.NotAllowedError)
        assert "consumers of one connection: 2" in refused.message
        topic = next(iter(world.running["us"].directory.serving.values()))
        assert "s3" not in topic.subscriptions
        # One that is opened again under its id does not count twice, and another connection has its own limit.
        assert (await client.open_producer(2, name="p2")).request_id == 2
        assert (await client.subscribe(2, subscription="s2")).success.request_id == 2
        assert (await other.open_producer(1, name="p4")).producer_name == "p4"
        close = pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER)
        close.close_producer.producer_id, close.close_producer.request_id = 1, 9
        assert (await client.ask(close)).success.request_id == 9
        assert (await client.open_producer(3, name="p3")).producer_name == "p3"


def test_an_id_counts_once() -> None:
    check_count("producers", 3, ([1, 2], [2], [3]), 3)
    check_count("producers", 9, ([1, 2, 3],), 0)
    with pytest.raises(ProtocolError) as problem:
        check_count("producers", 4, ([1, 2], [2], [3]), 3)
    assert problem.value.code is ServerError.NotAllowedError


class TestTenants:
    """Limits of the region's tenants, and of what a tenant has."""

    def test_one_tenant_or_namespace_more_is_refused(self) -> None:
        settings = BrokerSettings(tenants_max=2, namespaces_per_tenant_max=2)
        body = {"allowedClusters": ["us"]}
        with served(settings=settings) as us:
            assert us.ask("PUT", "/admin/v2/tenants/acme", body).status == 204
            assert us.ask("PUT", "/admin/v2/tenants/acme", body).status == 409
            reply = us.ask("PUT", "/admin/v2/tenants/rival", body)
            assert (reply.status, reply.json()["reason"]) == (412, "Exceed the maximum number of tenants")
            for name in ("acme/one", "acme/two", "public/other"):
                assert us.ask("PUT", f"/admin/v2/namespaces/{name}").status == 204
            assert us.ask("PUT", "/admin/v2/namespaces/acme/one").status == 409
            reply = us.ask("PUT", "/admin/v2/namespaces/acme/three")
            expected = "Exceed the maximum number of namespace in tenant :acme"
            assert (reply.status, reply.json()["reason"]) == (412, expected)
            assert us.ask("DELETE", "/admin/v2/namespaces/acme/one").status == 204
            assert us.ask("PUT", "/admin/v2/namespaces/acme/three").status == 204

    def test_the_topics_of_all_namespaces_of_a_tenant_count(self) -> None:
        topics = "/admin/v2/persistent/public"
        with served(settings=BrokerSettings(topics_per_tenant_max=4)) as us:
            assert us.ask("PUT", "/admin/v2/namespaces/public/other").status == 204
            assert us.ask("PUT", f"{topics}/default/orders/partitions", 3).status == 204
            assert us.ask("PUT", f"{topics}/other/bills").status == 204
            reply = us.ask("PUT", f"{topics}/other/more")
            assert reply.status == 405, reply
            assert "maximum number of topics of tenant public: 4" in reply.json()["reason"]
            assert us.ask("POST", f"{topics}/default/orders/partitions", 4).status == 412
            assert us.ask("DELETE", f"{topics}/other/bills").status == 204
            assert us.ask("PUT", f"{topics}/other/more").status == 204
