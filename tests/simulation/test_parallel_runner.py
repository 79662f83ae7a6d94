"""Seeds on several processes."""

from __future__ import annotations

import threading

import pytest

from emulator.simulation.parallel_runner import run_seeds

HELD = threading.Lock()


def lock_and_square(seed: int) -> int:
    with HELD:
        return seed * seed


@pytest.mark.timeout(60)
def test_a_lock_that_is_held_here_does_not_stop_the_processes() -> None:
    """A forked copy of this process would wait for a thread that it does not have."""
    with HELD:
        assert list(run_seeds(lock_and_square, range(5), jobs=2)) == [0, 1, 4, 9, 16]
