"""Faults of single commands, receipts and markers in scenarios, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.config.loading import load_topology
from emulator.errors import ConfigurationError, Refused
from emulator.runtimes.faults import link_fault
from emulator.runtimes.frame_faults import link_of
from emulator.simulation.scenarios.run import SimulatedScenario, prepare_scenario, run_scenario

TOPOLOGY = load_topology(Path(__file__).parents[2] / "topology.yaml")
REGIONS = TOPOLOGY.region_names


def scenario_of(tmp_path: Path, steps: str) -> SimulatedScenario:
    path = tmp_path / "scenario.yaml"
    path.write_text(f"""
name: lost-frames
topic: persistent://public/default/orders
actors:
  producers:
    - {{name: east, region: us-east, rate_per_second: 50}}
  consumers:
    - {{name: billing, region: us-east, subscription: billing, replicated: true}}
steps:
  - begin: all
{steps}
  - finish: producers
  - drain: {{within: 60s}}
""")
    return prepare_scenario(path, TOPOLOGY)


def test_a_scenario_waits_until_the_faults_acted(tmp_path: Path) -> None:
    steps = """
  - drop: {link: us-east->eu-central, what: send, count: 2, nth: 3}
  - drop: {link: eu-central->us-east, what: send_receipt}
    when: {region: us-east, frame_fault: 2}
  - duplicate: {link: us-east->us-west, what: snapshot_request}
  - reorder: {link: us-east->us-west, what: send, count: 3}
  - delay: {link: us-west->us-east, what: snapshot_response, by: 2s}
    when: {region: us-east, frame_fault: 7}
  - drop: {link: eu-central->us-east, what: subscription_update}
    when: {region: us-west, frame_fault: 1}
  - heal: all
"""
    outcome = run_scenario(scenario_of(tmp_path, steps), 1)
    assert outcome.violation is None, outcome.violation
    facts = [(event.op, event.region, event.other_region, event.detail) for event in outcome.events]
    assert ("drop", "us-east", "eu-central", "2 send, from number 3 on one way") in facts
    assert ("delay", "us-west", "us-east", "1 snapshot_response by 2000 ms one way") in facts


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("drop: {link: us-east->eu-central, what: snapshot_respons}", "do you mean snapshot_response?"),
        ("drop: {link: us-east->eu-central, what: ack}", "ack is a command of clients"),
        ("drop: {link: clients->us-east, what: snapshot_response}", "which clients neither send nor receive"),
        ("drop: {link: us-east->eu-central, what: txn_commit}", "stays in the log of its own region"),
        ("drop: {link: us-east, what: send}", "must be one direction of a link"),
        ("drop: {link: us-east->nowhere, what: send}", "must be a region of the topology"),
        ("drop: {link: us-east->us-west, what: send, count: 0}", "must be at least 1"),
        ("drop: {link: us-east->us-west, what: send, by: 1s}", "by"),
        ("delay: {link: us-east->us-west, what: send}", "by"),
    ],
)
def test_a_bad_step_has_a_clear_message(tmp_path: Path, step: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        scenario_of(tmp_path, f"  - {step}")
    assert message in str(refused.value)


@pytest.mark.parametrize("text", ["", "us-east", "us-east->", "->us-east", "us-east->us-west->us-east"])
def test_a_link_is_one_direction(text: str) -> None:
    with pytest.raises(Refused, match="is no direction of a link"):
        link_of(text)


def test_a_fault_of_several_links_is_checked_for_each() -> None:
    fault = link_fault("drop", REGIONS, "us-*", "eu-central", one_way=True, what="send", count=3)
    assert fault.links == (("us-east", "eu-central"), ("us-west", "eu-central"))
    with pytest.raises(Refused, match="ack is a command of clients"):
        link_fault("drop", REGIONS, "us-*", "eu-central", one_way=True, what="ack")
