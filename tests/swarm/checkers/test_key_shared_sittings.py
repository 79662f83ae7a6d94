"""The checks of deliveries to consumers with priority levels, for given records of consumers."""

from __future__ import annotations

from math import inf

from tests.swarm.checkers.key_shared_sittings import Sitting, left_waiting, passed_over, unevenly_spread


def sitting(name: str, level: int, taken: list[float], *, queue: int = 4, begin: float = 0.0) -> Sitting:
    """Return a consumer that accepts every message from `begin` on."""
    reported = [(at, f"{name}{number}") for number, at in enumerate(taken)]
    return Sitting(name, level, queue, began=begin, open=[(begin, inf)], taken=reported)


def test_a_worse_level_is_given_nothing_while_a_better_one_has_permits() -> None:
    better, worse = sitting("better", 0, []), sitting("worse", 1, [5.0])
    assert "worse (level 1) received worse0" in next(passed_over([better, worse], one_is_active=False))


def test_a_better_level_without_permits_is_not_passed_over() -> None:
    """The consumer sends further permits only after it has received half of its queue."""
    busy = sitting("better", 0, [4.95, 4.96, 4.97, 4.98])
    assert list(passed_over([busy, sitting("worse", 1, [5.0])], one_is_active=False)) == []


def test_nothing_follows_from_who_takes_nothing_or_has_only_come() -> None:
    shut, late = sitting("better", 0, []), sitting("late", 0, [], begin=4.95)
    shut.open = [(0.0, 4.95)]
    assert list(passed_over([shut, late, sitting("worse", 1, [5.0])], one_is_active=False)) == []


def test_where_one_is_active_the_best_who_is_there_is_even_without_permits() -> None:
    shut, worse = sitting("better", 0, []), sitting("worse", 1, [5.0])
    shut.open = [(0.0, 1.0)]
    assert list(passed_over([shut, worse], one_is_active=True))
    shut.ended = 4.0
    assert not list(passed_over([shut, worse], one_is_active=True))


def test_messages_beyond_the_limit_of_set_aside_entries_wait_for_no_consumer_with_permits() -> None:
    shut, able = sitting("shut", 0, [], queue=2), sitting("able", 1, [9.0])
    shut.open = []
    published = {f"message-{number}": 5.0 for number in range(3)}
    assert "3 messages for 0.5 s" in next(left_waiting([shut, able], published))
    shut.queue = 3
    assert list(left_waiting([shut, able], published)) == []


def test_while_messages_arrive_one_after_the_other_no_consumer_waits_without_reason() -> None:
    able = sitting("able", 1, [5.2])
    assert list(left_waiting([able], {"message": 5.0})) == []


def test_partitions_go_to_the_best_level_evenly_each_to_one() -> None:
    three = [sitting("a", 0, []), sitting("b", 0, []), sitting("c", 1, [])]
    assert unevenly_spread(three, {0: {"a"}, 1: {"b"}, 2: {"a"}}) == ""
    assert "so: [3, 0]" in unevenly_spread(three, {0: {"a"}, 1: {"a"}, 2: {"a"}})
    assert "partition 1 went to c" in unevenly_spread(three, {0: {"a"}, 1: {"c"}})
    assert "partition 0 went to a, b" in unevenly_spread(three, {0: {"a", "b"}})
