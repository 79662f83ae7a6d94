"""Words with worlds of their own: none of their worlds violates anything, and each word does what it is there for."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.swarm.generator.kinds import draw
from tests.swarm.runner import run_seed
from tests.swarm.search import WorkloadResult, run_workload
from tests.swarm.workload import Word
from tests.swarm.workloads import ASKED_FOR, WORDS

SEEDS = 12
"""CI looks at a few; `geoemu simulate transaction-key --seeds 500` at more."""


@cache
def results_of(word: str) -> list[WorkloadResult]:
    return list(run_workload(word, range(1, SEEDS + 1)))


def deeds_of(word: str) -> Counter[tuple[str, str]]:
    return sum((Counter(result.deeds) for result in results_of(word)), Counter[tuple[str, str]]())


@pytest.mark.parametrize("word", ASKED_FOR, ids=lambda word: word.name)
def test_nothing_is_violated(word: Word) -> None:
    assert [(one.seed, one.violation) for one in results_of(word.name) if one.violation is not None] == []


@pytest.mark.parametrize("word", ASKED_FOR, ids=lambda word: word.name)
def test_each_does_something(word: Word) -> None:
    assert deeds_of(word.name)[word.seed_name, "accepted"] > SEEDS


def test_somebody_comes_between_those_who_hold_a_key() -> None:
    """And is let in, and is refused."""
    done = deeds_of("transaction-key")
    assert done["come-between", "accepted"] > 0
    assert done["come-between", "refused"] > 0


@pytest.mark.parametrize("word", ASKED_FOR, ids=lambda word: word.name)
def test_the_same_seed_is_the_same_world(word: Word) -> None:
    assert draw(word.name, 3) == draw(word.name, 3)
    assert run_seed(word.name, 3).digest == run_seed(word.name, 3).digest


def test_the_swarm_knows_nothing_of_them() -> None:
    """Its seeds stay what they were."""
    assert not set(ASKED_FOR) & set(WORDS)
    assert not any(draw("swarm", seed).workers for seed in range(50))
