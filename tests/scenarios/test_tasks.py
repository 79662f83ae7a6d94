"""Tasks in a scenario file, and the errors of a wrong one."""

from __future__ import annotations

import pytest

from emulator.errors import ConfigurationError
from emulator.scenarios.actors.specs import Counts, TaskSpec
from emulator.scenarios.format.conditions import TaskCondition
from emulator.scenarios.progress import describe_counts
from emulator.scenarios.scenario import Scenario, parse_scenario

from .virtual import ORDERS, TOPOLOGY

TASK = "name: t-1, region: us-east, subscription: s, to: settled"


def parse(*steps: str, task: str = TASK) -> Scenario:
    lines = "\n".join(f"  - {step}" for step in steps)
    text = f"""
name: example
topic: orders
actors:
  producers: [{{name: shop, region: us-east, messages: 10}}]
  tasks:
    - {{{task}}}
    - {{name: t-2, region: us-west, subscription: s, to: settled, transaction_key: settlement}}
steps:
{lines}
"""
    return parse_scenario(text, TOPOLOGY, "example.yaml")


def problems(*steps: str, task: str = TASK) -> str:
    with pytest.raises(ConfigurationError) as refused:
        parse(*steps, task=task)
    return "\n".join(map(str, refused.value.problems))


def test_a_task_reads_the_topic_of_the_scenario_and_has_the_steps_of_an_actor() -> None:
    scenario = parse(
        "begin: all", "wait_until: {subscription: s, exists_in: us-east}", "finish: tasks", "drain: 1s"
    )
    first, second = (part for part in scenario.parts if isinstance(part, TaskSpec))
    assert (first.topics, first.transaction_key) == (
        (ORDERS, "persistent://public/default/settled"),
        None,
    )
    assert (second.transaction_key, second.timeout_seconds, second.acknowledge) == (
        "settlement",
        60.0,
        "cumulative",
    )
    assert scenario.steps[0].actors == ("shop", "t-1", "t-2")
    assert scenario.steps[2].actors == ("t-1", "t-2")


def test_steps_name_tasks_and_wait_for_what_they_did() -> None:
    steps = parse(
        "begin: tasks",
        "pause: {task: [t-1, t-2]}",
        "wait_until: {task: t-1, processed_more: 7}",
        "wait_until: {task: t-2, fenced: true}",
    ).steps
    assert getattr(steps[1].action, "task", None) == ("t-1", "t-2")
    assert isinstance(steps[2].action, TaskCondition)
    assert (steps[2].action.goal, steps[2].action.counts_from_now) == (7, True)
    assert isinstance(steps[3].action, TaskCondition)
    assert steps[3].action.fenced


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        ("kill: {task: t-1}", "t-1 has not begun here"),
        ("wait_until: {task: t-1, received: 1}", "t-1 has not begun here"),
        ("wait_until: {task: t, received: 1}", "must be a task of this scenario: t-1, t-2"),
        ("wait_until: {task: t-1}", "must have exactly one of received"),
        ("wait_until: {task: t-1, fenced: false}", "a step waits until the task is fenced"),
        ("kill: {task: t-1, region: us-east}", "exactly one of region, cluster, program, host, task"),
    ],
)
def test_impossible_steps_are_refused(step: str, complaint: str) -> None:
    assert complaint in problems(step)


def test_a_task_is_killed_not_lost() -> None:
    assert "a task can be killed" in problems("begin: tasks", "lose: {task: t-1}")


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        (f"{TASK}, transaction_key: 'a&b'", "must not contain '&'"),
        (f"{TASK}, transaction_key: ''", "printable characters"),
        (f"{TASK}, type: shared", "requires `acknowledge: individual`"),
        (f"{TASK}, transaction_timeout: 0s", "must be greater than 0"),
        (f"{TASK}, messages_per_transaction: 0", "messages_per_transaction"),
        ("name: t-1, region: us-east, subscription: s", "to"),
        ("name: t-1, region: us-east, subscription: s, to: public/nowhere/x", "no namespace public/nowhere"),
        (
            "name: t-1, region: eu-central, subscription: s, to: public/us/x",
            "must be one of namespace public/us's: us-east, us-west",
        ),
        ("name: shop, region: us-east, subscription: s, to: settled", "another actor has this name"),
    ],
)
def test_invalid_entries_are_refused(task: str, complaint: str) -> None:
    assert complaint in problems("begin: all", task=task)


def test_progress_shows_the_counts_of_a_task() -> None:
    (part, _) = (one for one in parse("begin: tasks").parts if isinstance(one, TaskSpec))
    first = Counts(region="us-east", received=5, processed=3, repeated=1, fenced=True)
    assert describe_counts(part, first) == "3 processed, 5 received, 1 redelivered, 1 fenced"
    both = first.ended().and_then(Counts(region="us-east", received=2, processed=2))
    assert (both.received, both.processed, both.repeated, both.fenced) == (7, 5, 1, False)
