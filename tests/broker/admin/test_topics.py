"""Stats of a topic as Pulsar's clients parse them, and lookups of clients whose service URL is the HTTP port."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.admin.served import DEADLINE_SECONDS, Served, served

pulsar = pytest.importorskip("pulsar")

ADDRESS = re.compile(r"/127\.0\.0\.1:\d+")
TOPIC = "/admin/v2/persistent/public/default/orders"


@pytest.fixture
def client(us: Served) -> Iterator[Any]:
    made = pulsar.Client(
        f"pulsar://127.0.0.1:{us.service_port}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    yield made
    made.close()


@pytest.mark.real
def test_stats_identify_a_publisher(us: Served, client: Any) -> None:
    client.create_producer("orders", producer_name="till", properties={"shop": "Nice"})
    (publisher,) = us.get(f"{TOPIC}/stats")["publishers"]
    assert publisher["producerName"] == "till"
    assert publisher["metadata"] == {"shop": "Nice"}
    assert publisher["clientVersion"].startswith("Pulsar-CPP")
    assert ADDRESS.fullmatch(publisher["address"])
    assert us.get(f"{TOPIC}/stats?excludePublishers=true")["publishers"] == []


@pytest.mark.real
def test_stats_identify_a_consumer(us: Served, client: Any) -> None:
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


PROGRAM = """
import sys, pulsar
client = pulsar.Client(sys.argv[1], operation_timeout_seconds=5, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
consumer = client.subscribe("orders", "billing")
client.create_producer("orders").send(b"hello")
print(consumer.receive(timeout_millis=5000).data().decode())
client.close()
"""


@pytest.mark.real
def test_the_c_plus_plus_client_finds_its_topic_by_http() -> None:
    """Runs in a process of its own, because that client once crashed on the response: it needs a TLS address, even an
    empty one."""
    with served() as us:
        url = f"http://127.0.0.1:{us.admin_port}"
        client = subprocess.run(
            [sys.executable, "-c", PROGRAM, url],
            capture_output=True,
            text=True,
            timeout=3 * DEADLINE_SECONDS,
            check=False,
        )
    assert (client.returncode, client.stdout) == (0, "hello\n"), client.stderr


def test_a_lookup_has_every_address_that_some_client_insists_on() -> None:
    with served() as us:
        answer = us.get("/lookup/v2/topic/persistent/public/default/orders")
        assert answer == {
            "brokerUrl": f"pulsar://127.0.0.1:{us.service_port}",
            "nativeUrl": f"pulsar://127.0.0.1:{us.service_port}",
            "httpUrl": f"http://127.0.0.1:{us.admin_port}",
            "brokerUrlTls": "",
            "brokerUrlSsl": "",
        }
        assert us.ask("GET", "/lookup/v2/topic/persistent/public/elsewhere/orders").status == 404
