"""Tests of the service that lose a region: `pytest` in this folder. docs/PYTEST.md explains the fixtures."""

import time
from collections.abc import Iterator

import pulsar
import pytest
from reservations import Reservations

import geoemu

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
DEADLINE_SECONDS = 30
ORDERS = {f"order-{number}" for number in range(50)}


class Shop:
    """A recorded client in each region, and what the shop does with them."""

    def __init__(self, geo: geoemu.Geo, namespace: str) -> None:
        self.clients = {
            name: geo.recorded(pulsar.Client(geo.url(name), operation_timeout_seconds=5, logger=QUIET))
            for name in geo.regions
        }
        self.geo = geo
        self.orders = f"persistent://{namespace}/orders"
        self.namespace = namespace

    def order(self, region: str, names: set[str]) -> None:
        producer = self.clients[region].create_producer(self.orders)
        for name in sorted(names):
            producer.send(name.encode(), partition_key=name)
        producer.close()

    def await_processed(self, region: str) -> None:
        """Wait until the service has acknowledged all orders in a region."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.geo.backlog(region, self.orders, "reservations") != 0:
            assert time.monotonic() < deadline, f"orders are not processed in {region}"
            time.sleep(0.05)

    def reservations(self, region: str, expected: set[str]) -> set[str]:
        """Read all reservations in a region, and return the orders that have one."""
        topic = f"persistent://{self.namespace}/reservations"
        self.geo.await_replicated(topic)
        start = pulsar.InitialPosition.Earliest
        consumer = self.clients[region].subscribe(topic, f"audit-{region}", initial_position=start)
        found: set[str] = set()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not expected <= found or self.geo.backlog(region, topic, f"audit-{region}") != 0:
            assert time.monotonic() < deadline, f"without a reservation in {region}: {expected - found}"
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            found.add(message.partition_key())
        consumer.close()
        return found


@pytest.fixture
def shop(geo: geoemu.Geo, geo_namespace: str) -> Iterator[Shop]:
    shop = Shop(geo, geo_namespace)
    yield shop
    for client in shop.clients.values():
        client.close()


def test_every_order_is_reserved_although_the_region_of_the_service_is_lost(
    geo: geoemu.Geo, shop: Shop
) -> None:
    service = Reservations(shop.clients["virginia"], shop.namespace)
    shop.order("ireland", ORDERS)
    geo.await_replicated(shop.orders)
    with geo.kill("virginia"):
        service.stop()
        with Reservations(shop.clients["ireland"], shop.namespace):
            shop.await_processed("ireland")
    # Some reservations may exist in virginia only until it returns at the end of the block.
    assert shop.reservations("ireland", ORDERS) == ORDERS


def test_orders_of_both_sides_of_a_cut_are_reserved_after_it(geo: geoemu.Geo, shop: Shop) -> None:
    with Reservations(shop.clients["virginia"], shop.namespace):
        with geo.cut("virginia", "ireland"):
            shop.order("ireland", {"at home"})
            shop.order("virginia", {"abroad"})
        geo.await_replicated(shop.orders)
        shop.await_processed("virginia")
    assert shop.reservations("ireland", {"at home", "abroad"}) == {"at home", "abroad"}


def test_a_planned_move_of_the_service_processes_no_order_twice(geo: geoemu.Geo, shop: Shop) -> None:
    with Reservations(shop.clients["virginia"], shop.namespace):
        shop.order("virginia", ORDERS)
        shop.await_processed("virginia")
    geo.await_replicated(shop.orders, "reservations")
    plan = geo.failover_plan(shop.orders, "reservations", from_="virginia", to="ireland")
    assert (plan.redelivered_messages, plan.skipped_messages) == (0, 0)
    assert shop.reservations("virginia", ORDERS) == ORDERS


def test_the_run_so_far_is_valid(geo: geoemu.Geo) -> None:
    verdict = geo.verify(stop=False, engine="embedded")
    assert verdict.is_valid, str(verdict)
