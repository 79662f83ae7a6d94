"""A service that consumes in another region loses no message when links are cut and its region is killed."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest
from geo_container import GeoContainer

EAST, CENTRAL = "us-east", "eu-central"
RECEIVE_MS = 60_000


@pytest.fixture(scope="module")
def geo() -> Iterator[GeoContainer]:
    with GeoContainer(EAST, CENTRAL) as container:
        yield container


def client(geo: GeoContainer, region: str) -> pulsar.Client:
    return pulsar.Client(geo.service_url(region), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def receive(consumer: pulsar.Consumer) -> bytes:
    message = consumer.receive(RECEIVE_MS)
    consumer.acknowledge(message)
    return message.data()


def test_a_message_survives_a_cut_and_the_kill_of_its_region(geo: GeoContainer) -> None:
    east, central = client(geo, EAST), client(geo, CENTRAL)
    consumer = central.subscribe("orders", "billing")
    producer = east.create_producer("orders")
    producer.send(b"before the cut")
    assert receive(consumer) == b"before the cut"
    with geo.cut(EAST, CENTRAL):
        producer.send(b"during the cut")
        with pytest.raises(pulsar.Timeout):
            consumer.receive(1_000)
        geo.kill(EAST)
        geo.start_region(EAST)
    assert receive(consumer) == b"during the cut"
    east.close()
    central.close()


def test_a_consumer_continues_in_the_region_that_is_left(geo: GeoContainer) -> None:
    east, central = client(geo, EAST), client(geo, CENTRAL)
    consumer = central.subscribe("invoices", "billing")
    east.create_producer("invoices").send(b"1")
    assert receive(consumer) == b"1"
    geo.kill(EAST)
    central.create_producer("invoices").send(b"2")
    assert receive(consumer) == b"2"
    geo.start_region(EAST)
    central.close()
