"""Two clusters with limits of their own, for tests of limits that a remote region reaches during replication."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emulator.broker.explain.topics import NotKnown, explain
from emulator.broker.replication.replicator import Replicator
from emulator.broker.topic.topic import Topic
from emulator.client import Consumer, InitialPosition
from emulator.client.client import Client
from emulator.config.broker_settings import BrokerSettings
from emulator.simulation.world import CLIENT_SETTINGS, World
from tests.broker.regions import broker_of
from tests.broker.topologies import clusters

ORDERS = "persistent://public/default/orders"
BILLS = "persistent://public/default/bills"
NAMESPACE = "/admin/v2/namespaces/public/default"
PATH = "/admin/v2/persistent/public/default"
SETTINGS = BrokerSettings(snapshot_interval_ms=200, housekeeping_interval_ms=100)
TWO = pytest.mark.world(topology=clusters(["us"], ["eu"], settings=SETTINGS))
"""Two clusters: each has limits of its own."""
PARTITIONED = replace(CLIENT_SETTINGS, asks_for_partitions=True, partitions_interval_seconds=0.5)
IMPATIENT = replace(CLIENT_SETTINGS, operation_timeout_seconds=1.0)
PATIENT = replace(CLIENT_SETTINGS, operation_timeout_seconds=60.0)
HOLD, EXCEPTION, EVICT = "producer_request_hold", "producer_exception", "consumer_backlog_eviction"


async def ask(w: World, region: str, method: str, target: str, body: Any = None) -> None:
    answer = await w.ask_admin(region, method, target, body)
    assert answer.status in (200, 204), (answer.status, answer.body)


async def set_quota(w: World, region: str, size_bytes: int, action: str) -> None:
    body = {"limitSize": size_bytes, "limitTime": -1, "policy": action}
    await ask(w, region, "POST", f"{NAMESPACE}/backlogQuota?backlogQuotaType=destination_storage", body)


def topic_of(w: World, region: str, name: str = ORDERS) -> Topic:
    return broker_of(w, region).directory.serving[name]


def replicator_of(w: World, here: str, there: str, topic: str = ORDERS) -> Replicator:
    return topic_of(w, here, topic).replicators[there]


async def until_reason(w: World, kind: str, name: str, code: str, region: str = "us") -> str:
    """Wait until `geoemu explain` gives a reason of this code. Return its sentence."""
    found: list[str] = []

    def is_given() -> bool:
        broker = w.regions[region].broker
        if broker is None or ORDERS not in broker.directory.serving:
            return False
        try:
            one = explain(broker, kind, name)
        except NotKnown:
            return False
        found[:] = [one.why] if code in one.causes else []
        return bool(found)

    await w.simulation.until(is_given)
    return found[0]


def has_subscription(w: World, region: str, name: str = "billing") -> bool:
    topic = broker_of(w, region).directory.serving.get(ORDERS)
    return topic is not None and name in topic.subscriptions


async def receive(consumer: Consumer, count: int) -> list[bytes]:
    """Receive and acknowledge `count` messages."""
    payloads = []
    for _ in range(count):
        message = await consumer.receive()
        payloads.append(message.payload)
        await consumer.acknowledge(message)
    return payloads


async def subscribe(client: Client, name: str = "billing", **options: Any) -> Consumer:
    return await client.subscribe(ORDERS, name, initial_position=InitialPosition.EARLIEST, **options)


def rate(messages: int, seconds: int) -> dict[str, int]:
    return {"dispatchThrottlingRateInMsg": messages, "ratePeriodInSecond": seconds}
