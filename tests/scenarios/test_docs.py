"""docs/SCENARIOS.md describes everything that a scenario file may contain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.scenarios.actor_models.entries import (
    ConsumerEntry,
    HostCondition,
    HostEntry,
    ProducerEntry,
    ProgramEntry,
    TaskCondition,
    TaskEntry,
    TopicsOwnedCondition,
)
from emulator.scenarios.format.conditions import (
    ProgramCondition,
    PublishedCondition,
    ReceivedCondition,
    SubscriptionExists,
)
from emulator.scenarios.format.steps import Move, StepEntry
from emulator.scenarios.scenario import parse_scenario, shipped_scenarios
from emulator.scenarios.types import GROUPS

from .virtual import TOPOLOGY

PAGE = (Path(__file__).parents[2] / "docs" / "SCENARIOS.md").read_text()
WORDS = [
    *GROUPS,
    *(
        field.alias or name
        for part in (
            ProducerEntry,
            ConsumerEntry,
            ProgramEntry,
            HostEntry,
            HostCondition,
            TopicsOwnedCondition,
            TaskEntry,
            TaskCondition,
            StepEntry,
            Move,
            PublishedCondition,
            ReceivedCondition,
            ProgramCondition,
            SubscriptionExists,
        )
        for name, field in part.model_fields.items()
    ),
]


@pytest.mark.parametrize("word", sorted(set(WORDS)))
def test_every_word_of_the_language_is_documented(word: str) -> None:
    assert re.search(rf"[`{{ ]{word}\b", PAGE)


def test_every_scenario_that_comes_with_geoemu_is_documented() -> None:
    assert all(f"`{name}.yaml`" in PAGE for name in shipped_scenarios())


def test_the_example_is_right() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert parse_scenario(example, TOPOLOGY).name == "my-failover"
