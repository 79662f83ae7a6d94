"""Policies that decide which consumers may subscribe, and how."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from emulator.client import Client, ClientError, ConsumerType
from tests.broker.admin.served import Served, served

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/orders"
NAME = "persistent://public/default/orders"


@pytest.fixture
def us() -> Iterator[Served]:
    with served() as region:
        assert region.ask("PUT", TOPIC).status == 204
        yield region


def subscribe(us: Served, type_: ConsumerType, subscription: str = "billing") -> None:
    async def scenario() -> None:
        async with Client([f"pulsar://127.0.0.1:{us.service_port}"]) as client:
            await client.subscribe(NAME, subscription, type_=type_)

    asyncio.run(scenario())


def test_subscriptions_are_created_by_the_admin_api_only_where_a_policy_says_so(us: Served) -> None:
    off = b'{"allowAutoSubscriptionCreation": false}'
    assert us.ask("POST", f"{NAMESPACE}/autoSubscriptionCreation", off).status == 204
    with pytest.raises(ClientError, match="Subscription does not exist"):
        subscribe(us, ConsumerType.EXCLUSIVE)
    assert us.ask("PUT", f"{TOPIC}/subscription/billing").status == 204
    subscribe(us, ConsumerType.EXCLUSIVE)
    on = off.replace(b"false", b"true")
    assert us.ask("POST", f"{TOPIC}/autoSubscriptionCreation", on).status == 204
    subscribe(us, ConsumerType.EXCLUSIVE, "another")


def test_only_some_types_of_subscriptions(us: Served) -> None:
    assert us.get(f"{NAMESPACE}/subscriptionTypesEnabled") == []
    assert us.ask("POST", f"{NAMESPACE}/subscriptionTypesEnabled", b'["Shared", "Failover"]').status == 204
    subscribe(us, ConsumerType.SHARED)
    with pytest.raises(ClientError, match="doesn't support Exclusive sub type"):
        subscribe(us, ConsumerType.EXCLUSIVE)
    assert us.ask("DELETE", f"{NAMESPACE}/subscriptionTypesEnabled").status == 204
    subscribe(us, ConsumerType.EXCLUSIVE)
    assert us.ask("POST", f"{TOPIC}/subscriptionTypesEnabled", b'["Round"]').status == 400
