"""A region that returns wrong topic lists: the client recovers with the first correct one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

import pytest

from emulator.client import Client, ClientError
from emulator.client.topic_names import TOPICS_MAX, FixedTopics, PatternTopics
from emulator.client.types import ClientSettings
from emulator.wire.commands import Command, GetTopicsResponse, Success, TopicsUpdate, topics_hash

NAMESPACE = "persistent://public/default"
PATTERN = f"{NAMESPACE}/orders-.*"


def orders(*names: str) -> tuple[str, ...]:
    return tuple(f"{NAMESPACE}/orders-{name}" for name in names)


class SayingConnection:
    """Answers each request with the next scripted response."""

    def __init__(self, answers: Iterable[Command]) -> None:
        self.answers = list(answers)
        self.watchers: dict[int, PatternTopics] = {}
        self.asked = 0

    async def request(self, command: Command) -> Command:
        self.asked += 1
        return self.answers.pop(0)

    def write(self, data: bytes) -> None:
        pass


def topics_of(*answers: Command, interval_seconds: float = 600.0) -> tuple[PatternTopics, SayingConnection]:
    client = Client("pulsar://nowhere:1", settings=ClientSettings(topics_interval_seconds=interval_seconds))
    connection = SayingConnection(answers)

    async def service_connection() -> SayingConnection:
        return connection

    client.service_connection = service_connection  # type: ignore[assignment, method-assign]
    return PatternTopics(client, PATTERN), connection


def listed(names: Iterable[str], hash_: str | None = None) -> GetTopicsResponse:
    names = tuple(names)
    return GetTopicsResponse(1, names, topics_hash(names) if hash_ is None else hash_, True, True)


async def test_what_does_not_fit_is_left_out_whatever_the_region_says() -> None:
    strangers = (f"{NAMESPACE}/bills", "persistent://other/ns/orders-a", "", "://", "orders-a")
    topics, _ = topics_of(listed([*orders("a"), *strangers]))
    assert await topics.names() == set(orders("a"))


async def test_a_hash_that_is_not_of_the_names_is_not_relied_on() -> None:
    """With that hash, the region would respond for ever that nothing has changed."""
    topics, _ = topics_of(listed(orders("a"), "deadbeef"), listed(orders("a", "b"), "deadbeef"))
    assert await topics.names() == set(orders("a"))
    assert await topics.names() == set(orders("a", "b"))


async def test_a_change_that_does_not_add_up_is_asked_about() -> None:
    truth = orders("a", "c")
    topics, connection = topics_of(listed(orders("a")), listed(truth))
    assert await topics.names() == set(orders("a"))
    topics.topics_changed(TopicsUpdate(1, orders("b"), (), topics_hash(truth)))
    async with asyncio.timeout(1):
        await topics.changed()
    assert await topics.names() == set(truth)
    assert connection.asked == 2


async def test_a_list_without_bound_is_refused_and_what_was_known_stays() -> None:
    endless = [f"{NAMESPACE}/orders-{number}" for number in range(TOPICS_MAX + 1)]
    topics, _ = topics_of(listed(orders("a")), listed(endless), listed(orders("a")))
    assert await topics.names() == set(orders("a"))
    with pytest.raises(ClientError, match="topics; the maximum is"):
        await topics.names()
    topics.topics_changed(TopicsUpdate(1, tuple(endless), (), topics_hash(endless)))
    assert await topics.names() == set(orders("a"))


async def test_an_answer_to_something_else_is_an_error() -> None:
    topics, _ = topics_of(Success(1))
    with pytest.raises(ClientError, match=re.escape("request for topics: Success")):
        await topics.names()


def test_partitions_never_become_fewer_and_what_has_none_is_not_asked_again() -> None:
    async def scenario() -> None:
        client = Client("pulsar://nowhere:1")
        said = {"a": [3, 1, 5], "b": [0]}

        async def partitions_of(topic: str, *, may_create: bool = False) -> int:
            return said[topic].pop(0)

        client.partitions_of = partitions_of  # type: ignore[method-assign]
        topics = FixedTopics(client, ["a", "b", "c-partition-7"])
        for count in (3, 3, 5):
            wanted = {f"a-partition-{index}" for index in range(count)}
            assert await topics.names() == {*wanted, "b", "c-partition-7"}

    asyncio.run(scenario())
