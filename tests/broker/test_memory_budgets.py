"""Memory budgets and charges to them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emulator.broker.memory_budgets import MemoryBudget


def test_a_budget_and_its_parents_hold_what_is_charged() -> None:
    region = MemoryBudget("region")
    connection = MemoryBudget("connection", region, 100)
    first, second = connection.charge(60), connection.charge(50)
    assert (connection.held_bytes, region.held_bytes, connection.is_over) == (110, 110, True)
    second.resize(10)
    assert (connection.held_bytes, region.held_bytes, connection.is_over) == (70, 70, False)
    first.release()
    first.release()
    assert (connection.held_bytes, region.held_bytes) == (10, 10)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1_000)), max_size=50))
def test_nothing_is_held_when_everything_is_released(moves: list[tuple[int, int]]) -> None:
    """FC1, and the sum is right after every step."""
    region = MemoryBudget("region")
    charges = [MemoryBudget(str(index), region).charge(index) for index in range(5)]
    for index, size in moves:
        charges[index].resize(size)
        assert region.held_bytes == sum(charge.size_bytes for charge in charges)
    for charge in charges:
        charge.release()
    assert region.held_bytes == 0
