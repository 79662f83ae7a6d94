"""Partitioned topics with real clients: they look up the number of partitions, and do the routing."""

from __future__ import annotations

import pytest

from emulator.core.policies.topics import AUTO_TOPIC_CREATION, AutoCreation
from emulator.model.stored_keys import NamespacePath
from emulator.model.values import TopicName
from tests.clients.harness import ORDERS, ClientProgram, Scene, clients, rejected

pytestmark = [pytest.mark.real, pytest.mark.scene(seconds=40), clients()]
MESSAGES = 40


async def create(scene: Scene) -> None:
    await scene.region.partitioned.create(TopicName.parse(ORDERS), 3)


async def counted(program: ClientProgram) -> str:
    return (await program.ask("partitions", client="us", topic="orders"))["count"]


async def sent_and_received(program: ClientProgram) -> set[str]:
    """Return the partitions through which the messages arrived; each message arrives once."""
    await program.subscribe()
    await program.producer()
    for number in range(MESSAGES):
        await program.send(str(number), message_key=f"key-{number}")
    messages = [await program.message() for _ in range(MESSAGES)]
    assert sorted(int(one["payload"]) for one in messages) == list(range(MESSAGES))
    return {one["topic"] for one in messages}


async def test_messages_go_through_all_partitions_and_come_once(scene: Scene) -> None:
    await create(scene)
    assert await counted(scene.program) == "3"
    topics = await sent_and_received(scene.program)
    assert topics == {f"{ORDERS}-partition-{index}" for index in range(3)}


async def test_the_broker_creates_a_topic_with_the_number_of_partitions_in_the_namespace_policy(
    scene: Scene,
) -> None:
    creation = AutoCreation(True, 2)
    await scene.region.policies.set(NamespacePath("public/default"), AUTO_TOPIC_CREATION, creation)
    topics = await sent_and_received(scene.program)
    assert topics == {f"{ORDERS}-partition-{index}" for index in range(2)}
    assert scene.region.partitioned.count(TopicName.parse(ORDERS)) == 2


async def test_an_exclusive_producer_of_a_partitioned_topic_has_all_partitions(scene: Scene) -> None:
    await create(scene)
    program = scene.program
    await program.producer(key="owner", access="Exclusive")
    # Clients may open a partition only with its first message.
    for number in range(MESSAGES):
        await program.send(str(number), key="owner", message_key=f"key-{number}")
    assert (await rejected(program.producer(key="other", access="Exclusive"))).name == "ProducerFenced"
    serving = scene.region.directory.serving
    assert [serving[f"{ORDERS}-partition-{index}"].access.machine.epoch for index in range(3)] == [0, 0, 0]
    await program.ask("close", key="owner")
    await program.producer(key="next", access="Exclusive")
    await program.send("mine", key="next", message_key="key-0")


async def test_a_topic_without_partitions_is_itself(scene: Scene) -> None:
    assert await sent_and_received(scene.program) == {ORDERS}
    assert await counted(scene.program) == "1"
