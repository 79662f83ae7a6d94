"""A change of policies reaches the loaded topics in bounded steps of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter

from emulator.broker.metadata.policies import Policies
from emulator.broker.metadata.policy_rollout import OBJECTS_PER_STEP
from emulator.core.policies.lifetime import MESSAGE_TTL
from emulator.core.policies.topic_policies import DEFAULTS, TopicPolicies
from emulator.model.stored_keys import BROKER_POLICIES_PATH, NamespacePath, TopicPoliciesPath
from emulator.model.values import TopicName
from tests.broker.regions import regions

NAMESPACE = NamespacePath("public/default")
TOPICS = 5_000


class LoopSteps:
    """Counts iterations of the event loop."""

    def __init__(self) -> None:
        self.number = 0
        self._next = asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        self.number += 1
        self._next = asyncio.get_running_loop().call_soon(self._tick)

    def stop(self) -> None:
        self._next.cancel()


class Follower:
    """A loaded topic that records when it followed which policies."""

    def __init__(self, number: int, steps: LoopSteps) -> None:
        self.name = TopicName.parse(f"persistent://public/default/t-{number}")
        self.policies = DEFAULTS
        self.applied: list[tuple[int, int]] = []
        """(iteration of the loop, time to live) of each change."""
        self._steps = steps

    def apply(self, old: TopicPolicies | None, new: TopicPolicies) -> int:
        self.policies = new
        if old is not None:
            self.applied.append((self._steps.number, new[MESSAGE_TTL]))
        return 1


def loaded(policies: Policies, steps: LoopSteps, count: int = TOPICS) -> list[Follower]:
    topics = [Follower(number, steps) for number in range(count)]
    for topic in topics:
        policies.attach(topic)
    return topics


async def test_a_change_visits_a_bounded_number_of_topics_in_one_iteration_of_the_loop() -> None:
    async with regions("us") as world:
        policies, steps = world.running["us"].policies, LoopSteps()
        topics = loaded(policies, steps)
        await policies.set(NAMESPACE, MESSAGE_TTL, 60)
        steps.stop()
        assert all(topic.applied[0][1] == 60 and len(topic.applied) == 1 for topic in topics)
        per_step = Counter(topic.applied[0][0] for topic in topics)
        assert max(per_step.values()) == OBJECTS_PER_STEP
        assert len(per_step) == TOPICS / OBJECTS_PER_STEP


async def test_several_changes_in_one_iteration_share_its_bound() -> None:
    async with regions("us") as world:
        policies, steps = world.running["us"].policies, LoopSteps()
        topics = loaded(policies, steps, 2 * OBJECTS_PER_STEP)
        await asyncio.gather(
            *[policies.set(TopicPoliciesPath(str(topic.name)), MESSAGE_TTL, 60) for topic in topics],
            policies.set(NAMESPACE, MESSAGE_TTL, 30),
            policies.set(BROKER_POLICIES_PATH, MESSAGE_TTL, 90),
        )
        steps.stop()
        per_step = Counter(number for topic in topics for number, _ in topic.applied)
        assert max(per_step.values()) <= 2 * OBJECTS_PER_STEP
        assert {topic.policies[MESSAGE_TTL] for topic in topics} == {60}


async def test_a_later_change_wins_where_an_earlier_one_has_not_arrived() -> None:
    async with regions("us") as world:
        policies, steps = world.running["us"].policies, LoopSteps()
        topics = loaded(policies, steps)
        first = asyncio.ensure_future(policies.set(NAMESPACE, MESSAGE_TTL, 60))
        while not topics[OBJECTS_PER_STEP].applied:
            await asyncio.sleep(0)
        await asyncio.gather(first, policies.set(NAMESPACE, MESSAGE_TTL, 120))
        steps.stop()
        values = [[value for _, value in topic.applied] for topic in topics]
        assert values[0] == [60, 120], "it followed the first change already"
        assert values[-1] == [120], "it never followed the first change"
        assert all(one in ([60, 120], [120]) for one in values)


async def test_an_unloaded_topic_is_not_visited() -> None:
    async with regions("us") as world:
        policies, steps = world.running["us"].policies, LoopSteps()
        topics = loaded(policies, steps)
        setting = asyncio.ensure_future(policies.set(NAMESPACE, MESSAGE_TTL, 60))
        while not topics[0].applied:
            await asyncio.sleep(0)
        for topic in topics[OBJECTS_PER_STEP * 2 :]:
            policies.detach(topic)
        await setting
        steps.stop()
        assert not any(topic.applied for topic in topics[OBJECTS_PER_STEP * 2 :])


async def test_topics_with_equal_inputs_share_one_value() -> None:
    async with regions("us") as world:
        policies = world.running["us"].policies
        one, other = (TopicName.parse(f"persistent://public/default/{name}") for name in ("a", "b"))
        before = policies.of_topic(one)
        assert policies.of_topic(other) is before
        await policies.set(TopicPoliciesPath(str(other)), MESSAGE_TTL, 60)
        assert policies.of_topic(one) is before
        assert policies.of_topic(other)[MESSAGE_TTL] == 60
        assert policies.of_topic(other) is policies.of_topic(other)
        await policies.set(NAMESPACE, MESSAGE_TTL, 30)
        assert policies.of_topic(one)[MESSAGE_TTL] == 30
        assert policies.of_topic(other)[MESSAGE_TTL] == 60
