"""A queue that serves every member in turn."""

from __future__ import annotations

from emulator.core.flow.rate_limit import FairQueue


class Task:
    def schedule(self) -> None:
        raise AssertionError("the queue schedules no task")


def test_the_longest_waiting_task_is_next_and_keeps_its_place_when_it_waits_again() -> None:
    first, second, third = Task(), Task(), Task()
    fair_queue = FairQueue()
    assert fair_queue.is_next(first)
    for one in (first, second, first):
        fair_queue.wait(one)
    assert fair_queue.first is first
    assert [fair_queue.is_next(one) for one in (first, second, third)] == [True, False, False]
    fair_queue.leave(first)
    fair_queue.wait(first)
    assert fair_queue.is_next(second)
    fair_queue.leave(second)
    fair_queue.leave(second)
    assert fair_queue.first is first
