"""The examples of docs/SCENARIOS.md are right, and it names every scenario that ships."""

from __future__ import annotations

import re
from pathlib import Path

from emulator.scenarios.scenario import parse_scenario, shipped_scenarios

from .virtual import TOPOLOGY

PAGE = (Path(__file__).parents[2] / "docs" / "SCENARIOS.md").read_text()


def test_every_scenario_that_comes_with_geoemu_is_documented() -> None:
    assert all(f"`{name}.yaml`" in PAGE for name in shipped_scenarios())


def test_the_example_is_right() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert parse_scenario(example, TOPOLOGY).name == "my-failover"
