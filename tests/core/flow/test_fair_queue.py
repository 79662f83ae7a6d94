"""A queue that serves every member in turn."""

from __future__ import annotations

from emulator.core.flow.fair_queue import Turns


class Somebody:
    def schedule(self) -> None:
        raise AssertionError("the line tells nobody: who is asked decides")


def test_whoever_waited_longest_is_next_and_keeps_its_place_when_it_asks_again() -> None:
    first, second, third = Somebody(), Somebody(), Somebody()
    turns = Turns()
    assert turns.is_next(first)
    for one in (first, second, first):
        turns.wait(one)
    assert turns.first is first
    assert [turns.is_next(one) for one in (first, second, third)] == [True, False, False]
    turns.leave(first)
    turns.wait(first)
    assert turns.is_next(second)
    turns.leave(second)
    turns.leave(second)
    assert turns.first is first
