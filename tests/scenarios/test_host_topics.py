"""The assignment of topics to hosts, and the order of their successors."""

from __future__ import annotations

from collections import Counter

import pytest

from emulator.scenarios.format.entries import PriorityRule, numbered, own_topics, priorities

TOPICS = numbered("endpoint", 40)


def successors_of(rule: PriorityRule, count: int, dead: int) -> Counter[str]:
    """Return the number of topics per successor of a dead host, when the best priority takes over."""
    names = numbered("host", count)
    wants = {name: priorities(rule, name, index, count, TOPICS) for index, name in enumerate(names)}
    left = [name for index, name in enumerate(names) if index != dead]
    lost = [TOPICS.index(topic) for topic in own_topics(TOPICS, dead, count)]
    return Counter(max(left, key=lambda name: wants[name][topic]) for topic in lost)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
def test_every_topic_is_the_own_of_exactly_one_host(count: int) -> None:
    """The numbers of topics per host differ by one at most."""
    shares = [own_topics(TOPICS, index, count) for index in range(count)]
    assert sorted(topic for share in shares for topic in share) == sorted(TOPICS)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_balanced_spreads_the_topics_of_a_dead_host_evenly(count: int) -> None:
    """Whichever host dies, the others' numbers differ by one at most."""
    for dead in range(count):
        loads = [successors_of("balanced", count, dead)[name] for name in numbered("host", count)]
        del loads[dead]
        assert max(loads) - min(loads) <= 1
        assert sum(loads) == len(own_topics(TOPICS, dead, count))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_balanced_gives_each_topic_an_order_without_ties(count: int) -> None:
    """A topic's own host is the first in its order."""
    wants = [priorities("balanced", "any", index, count, TOPICS) for index in range(count)]
    for number in range(len(TOPICS)):
        assert sorted(want[number] for want in wants) == list(range(1, count + 1))
        assert wants[number % count][number] == count


def test_one_number_makes_the_first_to_come_the_heir_of_all() -> None:
    assert successors_of(0, 5, dead=0) == {"host-2": 8}
    assert priorities(-7, "host", 0, 5, TOPICS) == (-7,) * 40


def test_random_is_drawn_for_each_host_and_topic_and_always_the_same() -> None:
    """Several successors, and not perfectly even."""
    order = priorities("random", "host-1", 0, 5, TOPICS)
    assert order == priorities("random", "host-1", 3, 9, TOPICS)
    assert len(set(order)) == len(TOPICS)
    assert order != priorities("random", "host-2", 0, 5, TOPICS)
    assert 2 <= len(successors_of("random", 5, dead=0)) <= 4


def test_one_alone_has_no_number() -> None:
    assert numbered("worker", None) == ("worker",)
    assert numbered("orders", 2) == ("orders-1", "orders-2")
