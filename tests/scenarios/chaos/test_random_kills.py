"""Random kills between the steps of a scenario: a function of the seed, and never of what is not running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.config.loading import load_topology
from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.scenarios.chaos.random_kills import KILLS_MAX, with_random_kills
from emulator.scenarios.scenario import SHIPPED, parse_scenario, shipped_scenarios

ROOT = Path(__file__).parents[3]
SEEDS = range(60)
BILLING = """
name: billing
topic: orders
actors:
  producers: [{name: orders, region: us-west, rate_per_second: 100}]
  programs: [{name: billing, region: us-east, command: [python, billing.py], subscriptions: [billing]}]
contract: [{subscription: billing, on: invoices}]
steps:
  - phase: the first step
  - begin: all
  - wait_until: {program: billing, received: 100}
  - kill: {program: billing}
  - start: {program: billing}
  - kill: us-east
  - move: {program: billing, to: us-west}
  - start: us-east
  - kill: {cluster: europe}
  - wait: 3s
  - start: {cluster: europe}
  - finish: producers
  - drain: 60s
"""


@pytest.fixture(scope="module")
def topology() -> Topology:
    return load_topology(ROOT / "topology.yaml")


@pytest.fixture
def billing(tmp_path: Path) -> Path:
    path = tmp_path / "billing.yaml"
    path.write_text(BILLING)
    return path


def steps(text: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = yaml.load(text, yaml.BaseLoader)["steps"]
    return loaded


def killed(text: str) -> list[tuple[int, Any]]:
    """Return each inserted kill with its index: the one between two waits."""
    found = steps(text)
    return [
        (at, one["kill"])
        for at, one in enumerate(found)
        if "kill" in one
        and at + 2 < len(found)
        and found[at + 2] == {"start": one["kill"]}
        and "wait" in found[at - 1]
    ]


def test_the_seed_decides_the_kills(topology: Topology, billing: Path) -> None:
    texts = [with_random_kills(billing, topology, seed) for seed in SEEDS]
    assert texts == [with_random_kills(billing, topology, seed) for seed in SEEDS]
    assert len(set(texts)) == len(SEEDS)
    targets = {str(target) for text in texts for _, target in killed(text)}
    assert {str({"program": "billing"}), "us-east", "us-west", "eu-central"} <= targets
    assert {len(killed(text)) for text in texts} == set(range(1, KILLS_MAX + 1))


def test_the_steps_and_the_contract_stay(topology: Topology, billing: Path) -> None:
    original = parse_scenario(BILLING, topology)
    written = [step.text for step in original.steps]
    for seed in SEEDS:
        scenario = parse_scenario(with_random_kills(billing, topology, seed), topology)
        assert (scenario.contract, scenario.limits) == (original.contract, original.limits)
        remaining = iter(step.text for step in scenario.steps)
        assert all(text in remaining for text in written), "the steps are there in their order"


def test_only_what_runs_is_killed_and_it_runs_before_the_next_step(topology: Topology, billing: Path) -> None:
    for seed in SEEDS:
        text = with_random_kills(billing, topology, seed)
        down: set[str] = set()
        for step in steps(text):
            for verb, target in step.items():
                names = (
                    [one.name for one in topology.regions if one.cluster == target["cluster"]]
                    if isinstance(target, dict) and "cluster" in target
                    else [str(target)]
                )
                if verb == "kill":
                    assert not down & set(names), text
                    down.update(names)
                elif verb == "start":
                    assert down >= set(names), text
                    down.difference_update(names)
        assert not down
        assert steps(text)[:2] == steps(BILLING)[:2], "nothing is killed before the first actor begins"
        assert steps(text)[-1] == {"drain": "60s"}, "nothing is killed after the last drain"


@pytest.mark.parametrize("name", shipped_scenarios())
def test_every_shipped_scenario_stays_valid(topology: Topology, name: str) -> None:
    for seed in range(5):
        parse_scenario(with_random_kills(SHIPPED / f"{name}.yaml", topology, seed), topology, name)


@pytest.mark.parametrize("lines", ["[{phase: nothing}]", "[{begin: all}]"])
def test_a_scenario_in_which_nothing_can_be_killed_is_refused(
    topology: Topology, tmp_path: Path, lines: str
) -> None:
    path = tmp_path / "short.yaml"
    producers = "{producers: [{name: p, region: us-east, rate_per_second: 1}]}"
    path.write_text(f"name: short\ntopic: t\nactors: {producers}\nsteps: {lines}\n")
    with pytest.raises(Refused, match="none can be killed"):
        with_random_kills(path, topology, 1)


def test_a_program_that_ended_and_a_lost_region_are_not_killed(topology: Topology, tmp_path: Path) -> None:
    path = tmp_path / "ended.yaml"
    programs = "{programs: [{name: p, region: us-east, command: ['true']}]}"
    regions = ", ".join(topology.region_names)
    ends = f"{{wait_until: {{program: p, exit_code: 0}}}}, {{lose: [{regions}]}}, {{wait: 1s}}, {{wait: 2s}}"
    path.write_text(f"name: ended\ntopic: t\nactors: {programs}\nsteps: [{{begin: all}}, {ends}]\n")
    for seed in SEEDS:
        text = with_random_kills(path, topology, seed)
        lost = next(at for at, step in enumerate(steps(text)) if "lose" in step)
        assert not [step for step in steps(text)[lost:] if "kill" in step]
