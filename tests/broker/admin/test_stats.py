"""Stats of a topic, as Pulsar's clients parse them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.admin.served import Served, served

pulsar = pytest.importorskip("pulsar")

ADDRESS = re.compile(r"/127\.0\.0\.1:\d+")
TOPIC = "/admin/v2/persistent/public/default/orders"


@pytest.fixture
def us() -> Iterator[Served]:
    with served() as region:
        yield region


@pytest.fixture
def client(us: Served) -> Iterator[Any]:
    made = pulsar.Client(
        f"pulsar://127.0.0.1:{us.service_port}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    yield made
    made.close()


@pytest.mark.real
def test_a_publisher_says_who_it_is(us: Served, client: Any) -> None:
    client.create_producer("orders", producer_name="till", properties={"shop": "Nice"})
    (publisher,) = us.get(f"{TOPIC}/stats")["publishers"]
    assert publisher["producerName"] == "till"
    assert publisher["metadata"] == {"shop": "Nice"}
    assert publisher["clientVersion"].startswith("Pulsar-CPP")
    assert ADDRESS.fullmatch(publisher["address"])
    assert us.get(f"{TOPIC}/stats?excludePublishers=true")["publishers"] == []


@pytest.mark.real
def test_a_consumer_says_who_it_is(us: Served, client: Any) -> None:
    client.subscribe("orders", "billing", consumer_name="clerk", properties={"desk": "4"})
    subscription = us.get(f"{TOPIC}/stats")["subscriptions"]["billing"]
    (consumer,) = subscription["consumers"]
    assert consumer["consumerName"] == subscription["activeConsumerName"] == "clerk"
    assert consumer["metadata"] == {"desk": "4"}
    assert consumer["clientVersion"].startswith("Pulsar-CPP")
    assert ADDRESS.fullmatch(consumer["address"])
    without = us.get(f"{TOPIC}/stats?excludeConsumers=true")["subscriptions"]["billing"]
    assert without["consumers"] == []


@pytest.mark.real
def test_entries_are_counted_and_cursors_placed(us: Served, client: Any) -> None:
    producer, consumer = client.create_producer("orders"), client.subscribe("orders", "billing")
    for number in range(3):
        producer.send(b"%d" % number)
    before = us.get(f"{TOPIC}/internalStats")
    assert (before["entriesAddedCounter"], before["numberOfEntries"]) == (3, 3)
    for _ in range(3):
        consumer.acknowledge(consumer.receive(5_000))
    consumer.close()
    after = us.get(f"{TOPIC}/internalStats")
    last = after["lastConfirmedEntry"]
    cursor = after["cursors"]["billing"]
    ledger, entry = map(int, last.split(":"))
    assert cursor["markDeletePosition"] == last
    assert cursor["readPosition"] == f"{ledger}:{entry + 1}"
    assert cursor["active"] is False
