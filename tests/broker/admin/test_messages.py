"""Peek at messages and move subscriptions over HTTP, without a consumer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator.client import Client
from tests.broker.admin.served import Served

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/orders"
BILLING = f"{TOPIC}/subscription/billing"


def publish(
    us: Served, *payloads: bytes, topic: str = "persistent://public/default/orders", **options: Any
) -> None:
    async def scenario(client: Client) -> None:
        producer = await client.producer(topic, name="till")
        for payload in payloads:
            await producer.send(payload, **options)

    us.run(scenario)


def numbered(us: Served, count: int) -> None:
    """Publish `count` messages to `orders`, with the subscription `billing` at its beginning."""
    assert us.ask("PUT", TOPIC).status == 204
    assert us.ask("PUT", BILLING, b'{"ledgerId": -1, "entryId": -1, "partitionIndex": -1}').status == 204
    publish(us, *(b"%d" % number for number in range(count)))


def peeked(us: Served, n: int = 1) -> bytes | None:
    reply = us.ask("GET", f"{BILLING}/position/{n}")
    return reply.body if reply.status == 200 else None


def backlog(us: Served) -> int:
    found: int = us.get(f"{TOPIC}/stats")["subscriptions"]["billing"]["msgBacklog"]
    return found


def test_a_message_that_was_not_acknowledged_is_looked_at(us: Served) -> None:
    numbered(us, 3)
    reply = us.ask("GET", f"{BILLING}/position/2")
    assert reply.body == b"1"
    assert reply.headers["content-type"] == "application/octet-stream"
    ledger, entry = reply.headers["x-pulsar-message-id"].split(":")
    assert us.ask("GET", f"{TOPIC}/ledger/{ledger}/entry/{entry}").body == b"1"
    assert reply.headers["x-pulsar-producer-name"] == "till"
    assert reply.headers["x-pulsar-sequence-id"] == "1"
    assert reply.headers["x-pulsar-publish-time"].endswith("Z")
    assert reply.headers["x-pulsar-is-encrypted"] == "false"
    assert [peeked(us, n) for n in (1, 3, 4)] == [b"0", b"2", None]
    assert backlog(us) == 3, "peeking acknowledges nothing"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{BILLING}/position/0", 412),
        (f"{BILLING}/position/one", 400),
        (f"{BILLING}/position/99999999999999999999", 400),
        (f"{TOPIC}/subscription/pulsar.repl.eu/position/1", 412),
        (f"{TOPIC}/ledger/1/entry/-1", 404),
        (f"{TOPIC}/ledger/1/entry/x", 400),
        (f"{TOPIC}/examinemessage?initialPosition=middle", 412),
        (f"{TOPIC}/examinemessage?messagePosition=many", 400),
        (f"{TOPIC}/examinemessage?messagePosition=9", 404),
        (f"{TOPIC}/messageid/soon", 400),
        ("/admin/v2/persistent/public/default/none/lastMessageId", 404),
    ],
)
def test_requests_for_missing_messages_are_refused_with_a_reason(us: Served, path: str, status: int) -> None:
    numbered(us, 2)
    reply = us.ask("GET", path)
    assert reply.status == status, reply
    assert reply.json()["reason"]


def test_messages_are_examined_from_both_ends(us: Served) -> None:
    numbered(us, 4)
    at = {
        (start, n): us.ask("GET", f"{TOPIC}/examinemessage?initialPosition={start}&messagePosition={n}").body
        for start in ("earliest", "latest")
        for n in (1, 3)
    }
    assert at == {("earliest", 1): b"0", ("earliest", 3): b"2", ("latest", 1): b"3", ("latest", 3): b"1"}


def test_ids_by_time(us: Served) -> None:
    numbered(us, 3)
    last = us.get(f"{TOPIC}/lastMessageId")
    assert last["partitionIndex"] == -1
    assert us.get(f"{TOPIC}/messageid/0") == {**last, "entryId": last["entryId"] - 2}
    assert us.get(f"{TOPIC}/messageid/4102444800000") == last
    first = b'{"ledgerId": %d, "entryId": 0}' % last["ledgerId"]
    reply = us.ask("PUT", f"{TOPIC}/backlogSize", first)
    assert reply.json() == us.get(f"{TOPIC}/stats")["storageSize"]


def test_messages_are_skipped(us: Served) -> None:
    numbered(us, 5)
    assert us.ask("POST", f"{BILLING}/skip/2").status == 204
    assert (peeked(us), backlog(us)) == (b"2", 3)
    assert us.ask("POST", f"{BILLING}/skip/0").status == 412
    assert us.ask("POST", f"{BILLING}/skip_all").status == 204
    assert (peeked(us), backlog(us)) == (None, 0)
    assert us.ask("POST", f"{BILLING}/skip/7").status == 204
    assert us.ask("POST", f"{TOPIC}/subscription/none/skip/1").status == 404
    assert us.ask("POST", f"{TOPIC}/subscription/pulsar.repl.eu/skip/1").status == 412


def test_a_subscription_is_moved_to_a_time_and_to_a_message(us: Served) -> None:
    numbered(us, 4)
    assert us.ask("POST", f"{BILLING}/skip_all").status == 204
    assert us.ask("POST", f"{BILLING}/resetcursor/0").status == 204
    assert peeked(us) == b"0"
    last = us.get(f"{TOPIC}/lastMessageId")
    second = b'{"ledgerId": %d, "entryId": 1, "partitionIndex": -1, "isExcluded": %s}'
    assert us.ask("POST", f"{BILLING}/resetcursor", second % (last["ledgerId"], b"false")).status == 204
    assert peeked(us) == b"1"
    assert us.ask("POST", f"{BILLING}/resetcursor", second % (last["ledgerId"], b"true")).status == 204
    assert peeked(us) == b"2"
    assert us.ask("POST", f"{BILLING}/resetcursor").status == 400
    assert us.ask("POST", f"{BILLING}/resetcursor", b'{"ledgerId": "x"}').status == 400


def test_messages_expire_on_request(us: Served) -> None:
    numbered(us, 4)
    assert us.ask("POST", f"{BILLING}/expireMessages/3600").status == 204
    assert backlog(us) == 4, "no message is an hour old"
    second = b'{"ledgerId": %d, "entryId": 1}' % us.get(f"{TOPIC}/lastMessageId")["ledgerId"]
    assert us.ask("POST", f"{BILLING}/expireMessages", second).status == 204
    assert peeked(us) == b"2"
    assert us.ask("POST", f"{TOPIC}/all_subscription/expireMessages/3600").status == 204
    assert us.ask("POST", f"{BILLING}/expireMessages/-1").status == 412


def test_a_backlog_is_analysed(us: Served) -> None:
    numbered(us, 4)
    assert us.ask("POST", f"{BILLING}/skip/1").status == 204
    found = us.ask("POST", f"{BILLING}/analyzeBacklog").json()
    assert (found["entries"], found["messages"], found["markerMessages"], found["aborted"]) == (
        3,
        3,
        0,
        False,
    )
    assert (found["firstMessageId"][-2:], found["lastMessageId"][-2:]) == (":1", ":3"), (
        "strings in Java's client"
    )


def test_a_backlog_is_analysed_from_a_message_id(us: Served) -> None:
    numbered(us, 5)
    assert us.ask("POST", f"{BILLING}/skip/2").status == 204
    ledger = us.get(f"{TOPIC}/lastMessageId")["ledgerId"]
    for entry, count, first in ((3, 2, f"{ledger}:3"), (1, 4, f"{ledger}:1"), (-1, 5, f"{ledger}:0")):
        body = {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1}
        found = us.ask("POST", f"{BILLING}/analyzeBacklog", body).json()
        assert (found["entries"], found["messages"], found["firstMessageId"]) == (count, count, first)
    assert us.ask("POST", f"{BILLING}/analyzeBacklog", b'"latest"').json()["entries"] == 0


def test_a_subscription_is_created_with_properties(us: Served) -> None:
    """In the form of Java's admin client: the properties are part of the message id."""
    latest = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1, "excluded": False}
    assert us.ask("PUT", TOPIC).status == 204
    assert us.ask("PUT", BILLING, {**latest, "properties": {"owner": "ada"}}).status == 204
    assert us.get(f"{BILLING}/properties") == {"owner": "ada"}
    assert us.get(f"{TOPIC}/stats")["subscriptions"]["billing"]["subscriptionProperties"] == {"owner": "ada"}
    other = f"{TOPIC}/subscription/other"
    assert us.ask("PUT", other, {**latest, "properties": {"owner": "a" * 65_536}}).status == 412
    assert us.get(f"{TOPIC}/subscriptions") == ["billing"]


def test_a_subscription_is_created_at_a_message_id(us: Served) -> None:
    numbered(us, 3)
    assert us.ask("PUT", BILLING, b"{}").status == 409
    assert us.ask("PUT", f"{TOPIC}/subscription/late").status == 204
    last = us.get(f"{TOPIC}/lastMessageId")
    behind = b'{"ledgerId": %d, "entryId": 1, "isExcluded": true}' % last["ledgerId"]
    assert us.ask("PUT", f"{TOPIC}/subscription/third", behind).status == 204
    stats = us.get(f"{TOPIC}/stats")["subscriptions"]
    assert {name: one["msgBacklog"] for name, one in stats.items()} == {"billing": 3, "late": 0, "third": 1}
    assert us.ask("PUT", f"{TOPIC}/subscription/pulsar.dedup").status == 405
    assert us.ask("DELETE", f"{TOPIC}/subscription/late").status == 204
    assert us.get(f"{TOPIC}/subscriptions") == ["billing", "third"]
    assert us.ask("DELETE", f"{TOPIC}/subscription/late").status == 404


def test_a_subscription_with_consumers_is_deleted_only_by_force(us: Served) -> None:
    numbered(us, 1)

    async def scenario(client: Client) -> list[int]:
        await client.subscribe("persistent://public/default/orders", "billing")
        return [
            (await asyncio.to_thread(us.ask, "DELETE", target)).status
            for target in (BILLING, f"{BILLING}?force=true")
        ]

    assert us.run(scenario) == [412, 204]


def test_all_partitions_are_moved_together(us: Served) -> None:
    assert us.ask("PUT", f"{TOPIC}/partitions", b"3").status == 204
    assert us.ask("PUT", BILLING, b'{"ledgerId": -1, "entryId": -1}').status == 204
    for index in range(3):
        publish(us, b"a", b"b", topic=f"persistent://public/default/orders-partition-{index}")
    whole = us.get(f"{TOPIC}/partitioned-stats")
    assert whole["subscriptions"]["billing"]["msgBacklog"] == 6
    assert whole["msgInCounter"] == 6
    assert us.ask("POST", f"{BILLING}/skip_all").status == 204
    assert us.get(f"{TOPIC}/partitioned-stats")["subscriptions"]["billing"]["msgBacklog"] == 0
    assert us.ask("POST", f"{BILLING}/resetcursor/0").status == 204
    assert us.get(f"{TOPIC}/partitioned-stats")["subscriptions"]["billing"]["msgBacklog"] == 6
    assert us.ask("GET", f"{BILLING}/position/1").status == 405
    assert len(us.get(f"{TOPIC}/partitioned-internalStats")["partitions"]) == 3
    assert us.ask("DELETE", BILLING).status == 204


def test_a_position_is_carried_to_other_regions_or_not(us: Served) -> None:
    numbered(us, 1)
    status = f"{BILLING}/replicatedSubscriptionStatus"
    name = "persistent://public/default/orders"
    assert us.get(status) == {name: False}
    assert us.ask("POST", status, b"true").status == 204
    assert us.get(status) == {name: True}
    assert us.ask("POST", status, b"false").status == 204
    assert us.get(status) == {name: False}
    assert us.ask("POST", status, b'"yes"').status == 400


def test_properties_of_a_topic_are_stored_until_it_is_deleted(us: Served) -> None:
    assert us.ask("PUT", TOPIC, b'{"key1": "value1"}').status == 204
    assert us.ask("PUT", TOPIC, b"null").status == 409
    assert us.get(f"{TOPIC}/properties") == {"key1": "value1"}
    assert us.ask("PUT", f"{TOPIC}/properties", b'{"key2": "v"}').status == 204
    assert us.ask("DELETE", f"{TOPIC}/properties?key=key1").status == 204
    assert us.get(f"{TOPIC}/properties") == {"key2": "v"}
    assert us.ask("PUT", f"{TOPIC}/properties", b'{"key2": 7}').status in (400, 412)
    assert us.ask("DELETE", TOPIC).status == 204
    assert us.ask("GET", f"{TOPIC}/properties").status == 404
    assert us.ask("PUT", TOPIC).status == 204
    assert us.get(f"{TOPIC}/properties") == {}


def test_properties_of_a_topic_with_partitions(us: Served) -> None:
    assert us.ask("PUT", f"{TOPIC}/partitions", b'{"partitions": 2, "properties": {"a": "b"}}').status == 204
    assert us.ask("PUT", f"{TOPIC}/properties", b'{"c": "d"}').status == 204
    assert us.get(f"{TOPIC}/properties") == {"a": "b", "c": "d"}
    assert us.get(f"{TOPIC}/partitions")["partitions"] == 2


def test_stats_count_what_went_in_and_out(us: Served) -> None:
    numbered(us, 3)

    async def scenario(client: Client) -> Any:
        consumer = await client.subscribe("persistent://public/default/orders", "billing")
        for _ in range(3):
            await consumer.acknowledge(await consumer.receive())
        return await asyncio.to_thread(us.get, f"{TOPIC}/stats")

    stats = us.run(scenario)
    assert (stats["msgInCounter"], stats["msgOutCounter"]) == (3, 3)
    assert stats["bytesInCounter"] > 0 < stats["bytesOutCounter"]
    assert stats["topicCreationTimeStamp"] > 0 < stats["lastPublishTimeStamp"]
    (consumer,) = stats["subscriptions"]["billing"]["consumers"]
    assert (consumer["msgOutCounter"], consumer["connectedSince"][-1]) == (3, "Z")


def test_nothing_was_published_yet(us: Served) -> None:
    assert us.ask("PUT", TOPIC).status == 204
    stats = us.get(f"{TOPIC}/stats")
    assert (stats["lastPublishTimeStamp"], stats["msgInCounter"], stats["averageMsgSize"]) == (0, 0, 0.0)


def test_a_namespace_s_backlogs_are_cleared_and_subscriptions_deleted(us: Served) -> None:
    numbered(us, 3)
    assert us.ask("POST", f"{NAMESPACE}/clearBacklog/other").status == 204
    assert backlog(us) == 3
    assert us.ask("POST", f"{NAMESPACE}/clearBacklog").status == 204
    assert backlog(us) == 0
    assert us.ask("POST", f"{NAMESPACE}/unsubscribe/billing").status == 204
    assert us.get(f"{TOPIC}/subscriptions") == []


def test_a_namespace_is_unloaded(us: Served) -> None:
    numbered(us, 2)
    assert us.ask("PUT", f"{NAMESPACE}/unload").status == 204
    assert us.ask("PUT", f"{NAMESPACE}/0x00000000_0xffffffff/unload").status == 204
    assert peeked(us) == b"0"


def test_a_peek_at_an_unknown_subscription_shows_the_first_messages_and_creates_nothing(
    us: Served,
) -> None:
    """Upstream creates the subscription, and tools rely on the response."""
    numbered(us, 3)
    of_new = f"{TOPIC}/subscription/new/position"
    assert [us.ask("GET", f"{of_new}/{n}").body for n in (1, 3)] == [b"0", b"2"]
    assert us.ask("GET", f"{of_new}/4").status == 404
    assert us.get(f"{TOPIC}/subscriptions") == ["billing"]


@pytest.mark.parametrize(
    ("method", "path", "sentence"),
    [
        ("GET", f"{TOPIC}-gone/stats", "Topic persistent://public/default/orders-gone not found"),
        ("PUT", f"{TOPIC}-gone/unload", "Topic persistent://public/default/orders-gone not found"),
        (
            "GET",
            f"{TOPIC}-gone/partitioned-stats",
            "Partitioned Topic persistent://public/default/orders-gone not found",
        ),
        (
            "POST",
            f"{TOPIC}/subscription/none/skip_all",
            "Subscription none not found for topic persistent://public/default/orders",
        ),
    ],
)
def test_missing_objects_are_refused_in_the_words_that_tools_compare(
    us: Served, method: str, path: str, sentence: str
) -> None:
    numbered(us, 1)
    reply = us.ask(method, path)
    assert (reply.status, reply.json()["reason"]) == (404, sentence)
