"""docs/SIMULATION.md tells every word, its judges and its ablations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.swarm.generator.kinds import KINDS
from tests.swarm.workload import Word
from tests.swarm.workloads import ASKED_FOR, WORDS
from tests.swarm.workloads_table import rewrite, table, written

PAGE = (Path(__file__).parents[2] / "docs" / "SIMULATION.md").read_text()


def test_the_page_is_what_the_vocabulary_says() -> None:
    """It is written by `python -m tests.swarm.workloads_table docs/SIMULATION.md`."""
    assert written(PAGE) == table()


def test_a_page_that_is_out_of_date_is_written_anew_and_keeps_the_rest() -> None:
    assert rewrite(PAGE.replace("| `seek` | `swarm` |", "| `sick` | `swarm` |")) == PAGE


@pytest.mark.parametrize("word", ASKED_FOR, ids=lambda word: word.name)
def test_a_word_with_worlds_of_its_own_has_a_judge_and_an_ablation_there(word: Word) -> None:
    assert word.name in KINDS
    assert word.checks
    assert word.ablations
    assert {ablation.kind for ablation in word.ablations} == {word.name}


def test_words_of_the_swarm_are_missed_in_the_swarm() -> None:
    assert {ablation.kind for word in WORDS for ablation in word.ablations} == {"swarm"}
