"""Wrong responses of a region: the client rejects them, and continues with the first correct one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

import pytest

from emulator.client import AccessMode, Client, ClientError, ClientSettings
from emulator.client.partitioned_producer import PartitionedProducer
from emulator.client.topic_names import TOPICS_MAX, FixedTopics, PatternTopics
from emulator.errors import ServerError
from emulator.model.values import PARTITIONS_MAX
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.commands import Command, GetTopicsResponse, Success, TopicsUpdate, topics_hash
from tests.client.scripted import Script, ScriptedBroker

NEGATIVE = 2**32 - 1
"""-1 on the wire, where the field is unsigned."""
NAMESPACE = "persistent://public/default"
PATTERN = f"{NAMESPACE}/orders-.*"


# Lookups.


async def test_a_lookup_without_an_address_is_repeated(script: Script) -> None:
    """A region with a wrong response now may have the right one in a moment."""
    script.lookups_say = "http://nonsense"
    opening = asyncio.ensure_future(script.client.producer("orders"))
    await script.until(lambda: script.asked_for_lookups >= 3)
    script.lookups_say = None
    await asyncio.wait_for(opening, 5)


async def test_lookups_without_an_address_are_an_error_in_the_end(script: Script) -> None:
    script.lookups_say = "http://nonsense"
    with pytest.raises(ClientError, match="the lookup of orders returned 'http://nonsense'"):
        await asyncio.wait_for(script.client.producer("orders"), 5)


# Numbers of partitions.


def topics(script: Script) -> list[str]:
    return [create.topic for create in script.creates]


async def partitioned(script: Script, count: int) -> PartitionedProducer:
    script.partitions = count
    producer = await script.client.producer("orders")
    assert isinstance(producer, PartitionedProducer)
    return producer


@pytest.mark.parametrize("mode", [AccessMode.SHARED, AccessMode.WAIT_FOR_EXCLUSIVE])
@pytest.mark.parametrize("count", [PARTITIONS_MAX + 1, 10**9, NEGATIVE])
async def test_an_impossible_number_of_partitions_is_rejected_at_once(
    script: Script, count: int, mode: AccessMode
) -> None:
    script.partitions = count
    with pytest.raises(ClientError, match=f"the region reports {count} partitions of orders") as rejection:
        await asyncio.wait_for(script.client.producer("orders", access_mode=mode), 2)
    assert rejection.value.definite
    assert topics(script) == []


async def test_no_partitions_is_a_topic_itself(script: Script) -> None:
    await script.client.producer("orders")
    assert topics(script) == ["orders"]


@pytest.mark.parametrize("later", [0, 1, 10**9, NEGATIVE])
async def test_a_topic_neither_shrinks_nor_grows_without_bound(script: Script, later: int) -> None:
    """Whatever later responses contain, messages go to the same partitions, and a correct response is used."""
    producer = await partitioned(script, 2)
    script.partitions, before = later, script.asked_for_partitions
    await script.until(lambda: script.asked_for_partitions >= before + 3)
    assert producer.partitions == 2
    await producer.send(b"x")
    script.partitions = 3
    await script.until(lambda: producer.partitions == 3)
    assert topics(script) == [f"orders-partition-{index}" for index in range(3)]


async def test_a_rejected_partition_fails_the_producer_and_the_others_are_closed(script: Script) -> None:
    def reject_the_third(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
        if create.topic.endswith("-2"):
            broker.refuse(create, ServerError.TopicTerminatedError)
        else:
            broker.succeed(create)

    script.partitions, script.on_create = 3, reject_the_third
    with pytest.raises(ClientError) as rejection:
        await script.client.producer("orders")
    assert rejection.value.code is ServerError.TopicTerminatedError
    opened = {create.producer_id for create in script.creates if not create.topic.endswith("-2")}
    assert opened <= {close.producer_id for close in script.closes}


async def test_a_new_partition_that_is_rejected_is_requested_again_and_not_used_before(
    script: Script,
) -> None:
    def reject_twice(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
        if create.topic.endswith("-1") and topics(script).count("orders-partition-1") < 3:
            broker.refuse(create, ServerError.NotAllowedError)
        else:
            broker.succeed(create)

    script.on_create = reject_twice
    producer = await partitioned(script, 1)
    script.partitions = 2
    async with asyncio.timeout(5):
        while producer.partitions < 2:
            await producer.send(b"x")
            await asyncio.sleep(0.005)
    assert topics(script).count("orders-partition-1") == 3


async def test_the_name_that_a_region_assigns_to_the_first_partition_is_requested_for_all(
    script: Script,
) -> None:
    await partitioned(script, 3)
    assert [create.producer_name for create in script.creates] == ["", "given", "given"]


# Lists of topics.


def orders(*names: str) -> tuple[str, ...]:
    return tuple(f"{NAMESPACE}/orders-{name}" for name in names)


class ScriptedConnection:
    """Answers each request with the next scripted response."""

    def __init__(self, answers: Iterable[Command]) -> None:
        self.answers = list(answers)
        self.watchers: dict[int, PatternTopics] = {}
        self.requests = 0

    async def request(self, command: Command) -> Command:
        self.requests += 1
        return self.answers.pop(0)

    def write(self, data: bytes) -> None:
        pass


def topics_of(*answers: Command, interval_seconds: float = 600.0) -> tuple[PatternTopics, ScriptedConnection]:
    client = Client("pulsar://nowhere:1", settings=ClientSettings(topics_interval_seconds=interval_seconds))
    connection = ScriptedConnection(answers)

    async def service_connection() -> ScriptedConnection:
        return connection

    client.service_connection = service_connection  # type: ignore[assignment, method-assign]
    return PatternTopics(client, PATTERN), connection


def listed(names: Iterable[str], hash_: str | None = None) -> GetTopicsResponse:
    names = tuple(names)
    return GetTopicsResponse(1, names, topics_hash(names) if hash_ is None else hash_, True, True)


async def test_topics_that_do_not_match_are_left_out() -> None:
    others = (f"{NAMESPACE}/bills", "persistent://other/ns/orders-a", "", "://", "orders-a")
    topics, _ = topics_of(listed([*orders("a"), *others]))
    assert await topics.names() == set(orders("a"))


async def test_a_hash_that_does_not_match_the_names_is_ignored() -> None:
    """With that hash, the region would respond for ever that nothing has changed."""
    topics, _ = topics_of(listed(orders("a"), "deadbeef"), listed(orders("a", "b"), "deadbeef"))
    assert await topics.names() == set(orders("a"))
    assert await topics.names() == set(orders("a", "b"))


async def test_after_an_inconsistent_change_the_list_is_requested() -> None:
    truth = orders("a", "c")
    topics, connection = topics_of(listed(orders("a")), listed(truth))
    assert await topics.names() == set(orders("a"))
    topics.topics_changed(TopicsUpdate(1, orders("b"), (), topics_hash(truth)))
    async with asyncio.timeout(1):
        await topics.wait_for_change()
    assert await topics.names() == set(truth)
    assert connection.requests == 2


async def test_a_list_without_bound_is_rejected_and_the_former_one_stays() -> None:
    endless = [f"{NAMESPACE}/orders-{number}" for number in range(TOPICS_MAX + 1)]
    topics, _ = topics_of(listed(orders("a")), listed(endless), listed(orders("a")))
    assert await topics.names() == set(orders("a"))
    with pytest.raises(ClientError, match="topics; the maximum is"):
        await topics.names()
    topics.topics_changed(TopicsUpdate(1, tuple(endless), (), topics_hash(endless)))
    assert await topics.names() == set(orders("a"))


async def test_a_response_of_another_type_is_an_error() -> None:
    topics, _ = topics_of(Success(1))
    with pytest.raises(ClientError, match=re.escape("request for topics: Success")):
        await topics.names()


async def test_partitions_never_become_fewer_and_an_unpartitioned_topic_is_looked_up_once() -> None:
    client = Client("pulsar://nowhere:1")
    responses = {"a": [3, 1, 5], "b": [0]}

    async def partitions_of(topic: str, *, may_create: bool = False) -> int:
        return responses[topic].pop(0)

    client.partitions_of = partitions_of  # type: ignore[method-assign]
    topics = FixedTopics(client, ["a", "b", "c-partition-7"])
    for count in (3, 3, 5):
        wanted = {f"a-partition-{index}" for index in range(count)}
        assert await topics.names() == {*wanted, "b", "c-partition-7"}
