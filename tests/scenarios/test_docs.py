"""The examples of docs/SCENARIOS.md are right, and docs/reference/scenarios.md has a row for every shipped scenario."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.scenarios.scenario import SHIPPED, load_scenario, parse_scenario, shipped_scenarios
from scripts.scenario_table import COVERAGE, PRODUCTION, SUBSCRIPTION_SWITCHES, Coverage, recovery_time

from .virtual import TOPOLOGY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "SCENARIOS.md").read_text()
TABLE = (ROOT / "docs" / "reference" / "scenarios.md").read_text()


@pytest.mark.parametrize("name", shipped_scenarios())
def test_a_shipped_scenario_has_a_row_that_says_what_it_proves(name: str) -> None:
    (row,) = [line for line in TABLE.splitlines() if f"| `{name}` |" in line]
    proves = " ".join(load_scenario(SHIPPED / f"{name}.yaml", TOPOLOGY).proves.split())
    assert len(proves) > 20
    assert f"| {proves} |" in row


@pytest.mark.parametrize("coverage", COVERAGE, ids=lambda one: one.title)
def test_each_yes_of_the_table_is_a_test_and_each_other_cell_a_reason(coverage: Coverage) -> None:
    path = coverage.test.partition("::")[0]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-m",
        "",
        "-p",
        "no:cacheprovider",
        path,
    ]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in shipped_scenarios():
        if coverage.cell(name).startswith("[yes]"):
            assert f"{coverage.test}[{name}]" in collected.splitlines()
        else:
            assert len(coverage.not_covered[name]) > 20
    assert coverage.not_covered.keys() <= set(shipped_scenarios())


@pytest.mark.parametrize("name", PRODUCTION)
def test_a_scenario_of_production_limits_the_time_without_service_of_consumers_and_producers(
    name: str,
) -> None:
    bounds = recovery_time(load_scenario(SHIPPED / f"{name}.yaml", TOPOLOGY))
    assert re.search(r"\b(gap|stall) \d", bounds)
    assert re.search(r"\boutage \d", bounds)


@pytest.mark.parametrize(("switch", "name"), SUBSCRIPTION_SWITCHES.items())
def test_the_scenario_of_a_switch_sets_it(switch: str, name: str) -> None:
    text = (SHIPPED / f"{name}.yaml").read_text()
    if switch.startswith("`"):
        steps = {
            "individual-acks": "/replicateIndividualAcks",
            "region-removed": "method: PUT, path: /geoemu/v1/removed-regions/us-east",
            "failover-plan": "- plan:",
        }
        assert steps[name] in text
    else:
        assert re.search(rf"settings:.*{re.escape(switch)}", text, re.DOTALL)


def test_the_example_is_right() -> None:
    (example,) = re.findall(r"```yaml\n(name: .*?)```", PAGE, re.DOTALL)
    assert parse_scenario(example, TOPOLOGY).name == "my-failover"
