"""A line in which everybody's turn comes."""

from __future__ import annotations

from emulator.core.turns import Turns


def test_whoever_waited_longest_is_next_and_keeps_its_place_when_it_asks_again() -> None:
    turns: Turns[str] = Turns()
    assert turns.is_next("a")
    for one in ("a", "b", "a"):
        turns.wait(one)
    assert (turns.first, turns.is_next("a"), turns.is_next("b"), turns.is_next("c")) == (
        "a",
        True,
        False,
        False,
    )
    turns.leave("a")
    turns.wait("a")
    assert turns.is_next("b")
    turns.leave("b")
    turns.leave("b")
    assert turns.first == "a"
