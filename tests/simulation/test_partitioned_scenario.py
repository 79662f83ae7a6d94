"""Scenarios over partitioned topics, under virtual time: each partition is checked as a topic of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from emulator.config.loading import load_topology
from emulator.errors import ConfigurationError
from emulator.scenarios.scenario import find_scenario
from emulator.simulation.outcome import SimulationOutcome
from emulator.simulation.run_folder import write_evidence
from emulator.simulation.scenarios.run import SimulatedScenario, prepare_scenario, run_scenario
from emulator.wire.message_metadata import read_metadata
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.verify import evaluate_run
from tests.swarm.mutants import overrides_without

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
TOPOLOGY = load_topology(ROOT / "topology.yaml")
ORDERS = "persistent://public/default/orders"
PARTITIONS = [f"{ORDERS}-partition-{index}" for index in range(3)]


def scenario_of(
    tmp_path: Path, steps: str, *, partitions: str = "{orders: 3}", more: str = "", keyed: str = "true"
) -> SimulatedScenario:
    lines = "\n".join(f"  - {line.strip()}" for line in steps.strip().splitlines())
    path = tmp_path / "scenario.yaml"
    path.write_text(f"""
name: story
topic: {ORDERS}
partitions: {partitions}
actors:
  producers:
    - {{name: east, region: us-east, rate_per_second: 50, keyed: {keyed}}}
    - {{name: central, region: eu-central, rate_per_second: 50, batching: false}}
  consumers:
    - {{name: billing, region: us-east, subscription: billing, replicated: true}}
{more}
steps:
{lines}
""")
    return prepare_scenario(path, TOPOLOGY)


FAILOVER = """
begin: all
wait_until: {consumer: billing, received: 100}
wait_until: {subscription: billing, exists_in: us-west}
kill: us-east
move: {consumer: billing, to: us-west}
wait: 3s
start: us-east
finish: producers
drain: {within: 60s}
"""


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_region_dies_and_nothing_of_any_partition_is_lost(tmp_path: Path, seed: int) -> None:
    outcome = run_scenario(scenario_of(tmp_path, FAILOVER), seed)
    assert outcome.violation is None
    assert {one.verdict for one in outcome.check_results} == {"valid"}
    published = Counter(one.topic for one in outcome.events if one.op == "publish" and one.outcome == "ok")
    received = Counter(one.topic for one in outcome.events if one.op == "receive")
    assert sorted(published) == sorted(received) == PARTITIONS
    assert all(received[topic] >= published[topic] > 0 for topic in PARTITIONS)
    assert {one.topic for one in outcome.events if one.op == "acknowledge"} == set(PARTITIONS)


def test_all_regions_have_the_partitions_and_nothing_else(tmp_path: Path) -> None:
    outcome = run_scenario(scenario_of(tmp_path, "begin: all\nfinish: producers\ndrain: {within: 60s}"), 1)
    assert outcome.violation is None
    for region, logs in outcome.stored.logs.items():
        assert sorted(one.name for one in logs if one.name.startswith(ORDERS)) == PARTITIONS, region


def evaluate(outcome: SimulationOutcome, run: Path) -> Evaluation:
    """Evaluate what the regions stored with the checks for real runs."""
    write_evidence(outcome, run)
    (run / "run.json").write_text("{}")
    (run / "topology.json").write_text(TOPOLOGY.to_json())
    return evaluate_run(EmbeddedEngine(), run)


def test_the_verdict_on_what_the_regions_stored_counts_every_partition(tmp_path: Path) -> None:
    outcome = run_scenario(prepare_scenario(find_scenario(Path("partitioned-failover")), TOPOLOGY), 1)
    assert outcome.violation is None
    evaluation = evaluate(outcome, tmp_path / "run")
    wrong = [one.sentence for one in evaluation.checks if one.verdict in ("invalid", "unknown")]
    assert (evaluation.verdict, wrong) == ("valid", [])
    acknowledged = sum(one.op == "publish" and one.outcome == "ok" for one in outcome.events)
    (seen,) = [one for one in evaluation.checks if one.name == "consumers-received-everything"]
    assert seen.sentence.startswith(f"{acknowledged:,} acknowledged messages: each was received")


def test_the_verdict_finds_the_one_message_that_is_missing_in_one_partition_of_one_region(
    tmp_path: Path,
) -> None:
    outcome = run_scenario(prepare_scenario(find_scenario(Path("partitioned-failover")), TOPOLOGY), 1)
    (log,) = [one for one in outcome.stored.logs["eu-central"] if one.name == PARTITIONS[1]]
    mine = [one for one in log.entries if not read_metadata(one[1]).HasField("marker_type")]
    log.entries.remove(mine[len(mine) // 2])
    evaluation = evaluate(outcome, tmp_path / "run")
    assert evaluation.verdict == "invalid"
    found = [one for one in evaluation.checks if one.verdict == "invalid"]
    assert any(PARTITIONS[1] in str(one.witness) for one in found)


def test_a_message_that_is_lost_from_one_partition_is_noticed(tmp_path: Path) -> None:
    """With receipts before the disk, as for a topic without partitions."""
    overrides = overrides_without("receipt-before-durable")
    violations = (
        run_scenario(scenario_of(tmp_path, FAILOVER), seed, overrides=overrides).violation
        for seed in range(1, 21)
    )
    violation = next(filter(None, violations))
    assert (violation.invariant, violation.check) == ("INV-1", "acknowledged-stored")


@pytest.mark.parametrize(
    ("partitions", "more", "rule"),
    [
        ("{orders: 0}", "", "must be at least 1"),
        ("{orders: 65}", "", "must be at most 64"),
        ("{orders: 1000000000}", "", "must be at most 64"),
        ("{orders: -1}", "", "must be at least 1"),
        ("{orders: many}", "", "must be a whole number"),
        ("{bills: 3}", "", "no actor uses this topic"),
        (
            "{orders: 3}",
            "  hosts:\n    - {name: host, region: us-east}",
            "host is a host, which does not support partitioned topics",
        ),
        (
            "{orders: 3}",
            "contract:\n  - {subscription: billing, on: persistent://public/default/bills}",
            "a contract does not support partitioned topics, and entry 1 names this one",
        ),
    ],
)
def test_what_cannot_have_partitions_is_refused_when_the_file_is_read(
    tmp_path: Path, partitions: str, more: str, rule: str
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        scenario_of(tmp_path, "begin: all", partitions=partitions, more=more)
    assert rule in str(refusal.value)
    assert "partitions" in str(refusal.value)
