"""Hosts and access modes in a scenario file, and the errors of a wrong one."""

from __future__ import annotations

import pytest

from emulator.errors import ConfigurationError
from emulator.scenarios.actors.specs import Counts, HostSpec, ProducerSpec
from emulator.scenarios.format.conditions import HostCondition, TopicsOwnedCondition
from emulator.scenarios.scenario import Scenario, parse_scenario

from .virtual import TOPOLOGY


def parse(*steps: str, hosts: str = "name: h, count: 2, region: us-east, topics: 3") -> Scenario:
    lines = "\n".join(f"  - {step}" for step in steps)
    text = f"""
name: example
topic: orders
actors:
  producers:
    - {{name: waiter, region: us-east, access: wait, priority: -3}}
    - {{name: plain, region: us-east}}
  hosts:
    - {{{hosts}}}
steps:
{lines}
"""
    return parse_scenario(text, TOPOLOGY, "example.yaml")


def problem(*steps: str, hosts: str = "name: h, count: 2, region: us-east") -> str:
    with pytest.raises(ConfigurationError) as refused:
        parse(*steps, hosts=hosts)
    (one,) = refused.value.problems
    return str(one)


def test_an_entry_with_a_count_is_several_hosts_which_share_its_topics() -> None:
    scenario = parse("begin: all")
    orders = "persistent://public/default/orders"
    parts = [part for part in scenario.parts if isinstance(part, HostSpec)]
    assert [part.name for part in parts] == ["h-1", "h-2"]
    assert {part.group for part in parts} == {"h"}
    assert parts[0].topics == (f"{orders}-1", f"{orders}-2", f"{orders}-3")
    assert [part.own for part in parts] == [(f"{orders}-1", f"{orders}-3"), (f"{orders}-2",)]
    assert parts[0].priorities == (0, 0, 0)
    assert scenario.steps[0].actors == ("waiter", "plain", "h-1", "h-2")


def test_a_standby_host_owns_no_topic() -> None:
    (part,) = (
        part
        for part in parse("begin: hosts", hosts="name: h, region: us-east, standby: true, priority: -9").parts
        if isinstance(part, HostSpec)
    )
    assert (part.name, part.own, part.priorities) == ("h", (), (-9,))


def test_producers_have_an_access_mode_and_a_priority() -> None:
    waiter, plain = (part for part in parse("begin: hosts").parts if isinstance(part, ProducerSpec))
    assert (waiter.access, waiter.priority) == ("wait", -3)
    assert (plain.access, plain.priority) == ("shared", 0)


def test_steps_name_hosts_one_or_several() -> None:
    steps = parse(
        "begin: hosts",
        "kill: {host: h-1}",
        "start: {host: [h-1]}",
        "pause: {host: [h-1, h-2]}",
        "wait_until: {topics: owned}",
        "wait_until: {host: h-2, owns: 0, within: 1s}",
    ).steps
    assert [getattr(step.action, "host", None) for step in steps] == [
        None,
        ("h-1",),
        ("h-1",),
        ("h-1", "h-2"),
        None,
        "h-2",
    ]
    assert isinstance(steps[4].action, TopicsOwnedCondition)
    assert isinstance(steps[5].action, HostCondition)


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        ("kill: {host: h-1}", "h-1 has not begun here"),
        ("wait_until: {topics: owned}", "no host has begun here"),
        ("wait_until: {host: h-1, owns: 1}", "h-1 has not begun here"),
        ("wait_until: {host: h, owns: 1}", "must be a host of this scenario: h-1, h-2"),
        ("wait_until: {topics: orphaned}", "must be owned"),
    ],
)
def test_impossible_steps_are_refused(step: str, complaint: str) -> None:
    assert complaint in problem(step)


def test_a_host_is_killed_not_lost() -> None:
    assert "a host can be killed" in problem("begin: hosts", "lose: {host: h-1}")


def test_hosts_write_on_and_on_so_a_drain_comes_behind_their_end() -> None:
    assert "h-1 publishes without end" in problem("begin: h-1", "drain: 1s")


@pytest.mark.parametrize(
    ("hosts", "complaint"),
    [
        ("name: h, count: 1, region: us-east", "must be more than 1"),
        (f"name: h, count: {10**60}, region: us-east", "must be at most 1000"),
        ("name: h, count: 2, region: us-east, topics: 1001", "must be at most 1000"),
        ("name: waiter, region: us-east", "another actor has this name"),
        ("name: h, region: us-east, priority: 2147483648", "2147483648"),
        ("name: h, region: us-east, priority: fair", "fair"),
        ("name: h, region: us-east, topic: persistent://public/nowhere/x", "no namespace public/nowhere"),
    ],
)
def test_invalid_entries_are_refused(hosts: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse("begin: all", hosts=hosts)
    assert any(complaint in str(one) for one in refused.value.problems)


def test_a_priority_of_one_that_does_not_wait_is_refused() -> None:
    text = """
name: example
topic: orders
actors:
  producers: [{name: p, region: us-east, access: exclusive, priority: 3}]
steps: [{begin: p}]
"""
    with pytest.raises(ConfigurationError, match="requires `access: wait`"):
        parse_scenario(text, TOPOLOGY)


def test_lives_of_a_host_add_up_and_a_dead_one_has_nothing() -> None:
    first = Counts(region="us-east", connected=True, asked=10, ok=7, failed=1, holds=("a",), waits=2).ended()
    assert (first.pending, first.unknown, first.holds, first.waits, first.connected) == (0, 2, (), 0, False)
    both = first.and_then(Counts(region="us-east", asked=5, ok=4, holds=("b",)))
    assert (both.asked, both.ok, both.failed, both.unknown, both.holds) == (15, 11, 1, 2, ("b",))
