"""A user's own scenario under virtual time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.config.loading import load_topology
from emulator.config.region import NamespaceConfig
from emulator.errors import ConfigurationError
from emulator.run.history_events import HistoryEvent
from emulator.scenarios.scenario import find_scenario
from emulator.simulation.evidence import DeliveredMessages, RunEvidence
from emulator.simulation.log_checkers import regions_converge, replicated_everywhere
from emulator.simulation.outcome import SimulationOutcome
from emulator.simulation.scenarios.figures import subscription_figures
from emulator.simulation.scenarios.run import SimulatedScenario, prepare_scenario, run_scenario
from emulator.simulation.stored_messages import LogView, MessageOrigin, ReplicationRules, StoredMessage
from tests.swarm.mutants import overrides_without

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
TOPOLOGY = load_topology(ROOT / "topology.yaml")


def scenario_of(tmp_path: Path, steps: str, *, rate: int = 50) -> SimulatedScenario:
    """Return a scenario with two producers, a consumer with a replicated position, and these steps, one per line."""
    lines = "\n".join(f"  - {line.strip()}" for line in steps.strip().splitlines())
    path = tmp_path / "scenario.yaml"
    path.write_text(f"""
name: story
topic: persistent://public/default/orders
actors:
  producers:
    - {{name: east, region: us-east, rate_per_second: {rate}}}
    - {{name: central, region: eu-central, rate_per_second: {rate}, batching: false}}
  consumers:
    - {{name: billing, region: us-east, subscription: billing, replicated: true}}
steps:
{lines}
""")
    return prepare_scenario(path, TOPOLOGY)


def facts(outcome: SimulationOutcome) -> list[tuple[str, str | None]]:
    words = ("kill", "stop", "start", "restart", "pause", "resume", "cut", "hold", "heal", "move")
    return [(event.op, event.region) for event in outcome.events if event.op in words]


def test_region_failover_completes_and_loses_nothing() -> None:
    scenario = prepare_scenario(find_scenario(Path("region-failover")), TOPOLOGY)
    outcome = run_scenario(scenario, 1)
    assert outcome.violation is None
    assert {one.verdict for one in outcome.check_results} == {"valid"}
    assert set(outcome.figures) == {
        "billing: received again (messages)",
        "billing: fail-over gap after kill of us-east (s)",
    }


def test_region_failover_completes_on_remote_logs_too() -> None:
    topology = load_topology(ROOT / "compose" / "topology.yaml")
    assert {region.log.backend for region in topology.regions} == {"kafka"}
    outcome = run_scenario(prepare_scenario(find_scenario(Path("region-failover")), topology), 1)
    assert outcome.violation is None


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, "begin: all\nwait: 1s\nkill: us-west\nfinish: producers")
    first, again, other = (run_scenario(scenario, seed) for seed in (1, 1, 2))
    assert first.digest == again.digest
    assert first.events == again.events
    assert first.digest != other.digest


def test_a_run_is_the_same_under_another_hash_seed() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-m", "emulator.cli", "simulate", "region-failover", "--seeds", "1"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[0]
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
    assert next(iter(digests)).startswith("trace ")


def test_a_scenario_of_phases_alone_is_valid(tmp_path: Path) -> None:
    outcome = run_scenario(scenario_of(tmp_path, "phase: nothing happens"), 1)
    assert outcome.violation is None


def test_every_verb_has_its_effect_on_simulated_regions(tmp_path: Path) -> None:
    scenario = scenario_of(
        tmp_path,
        """
        begin: all
        wait_until: {subscription: billing, exists_in: us-west}
        pause: us-west
        wait: 1s
        resume: us-west
        cut: [us-east, eu-central]
        wait: 1s
        heal: [us-east, eu-central]
        hold: {from: us-east, to: us-west}
        wait: 1s
        heal: all
        restart: eu-central
        wait_until: {producer: central, published_more: 20}
        stop: us-east
        move: {consumer: billing, to: us-west}
        move: {producer: east, to: us-west}
        wait_until: {consumer: billing, received_more: 50}
        start: us-east
        finish: producers
        drain: 20s
        """,
    )
    outcome = run_scenario(scenario, 3)
    assert outcome.violation is None
    assert facts(outcome) == [
        ("pause", "us-west"),
        ("resume", "us-west"),
        ("cut", "us-east"),
        ("heal", "us-east"),
        ("hold", "us-east"),
        ("heal", None),
        ("restart", "eu-central"),
        ("stop", "us-east"),
        *[("move", "us-west")] * 4,
        ("start", "us-east"),
    ]


def test_latency_is_what_a_message_takes_until_it_is_healed(tmp_path: Path) -> None:
    scenario = scenario_of(
        tmp_path,
        """
        begin: all
        latency: {from: eu-central, to: us-east, is: 400ms, jitter: 0ms}
        wait: 2s
        heal: all
        wait: 1s
        finish: producers
        drain: 5s
        """,
        rate=10,
    )
    outcome = run_scenario(scenario, 1)
    assert outcome.violation is None
    slow_from, slow_until = (event.at_ms for event in outcome.events if event.op in ("latency", "heal"))
    requested_at = {
        e.sequence_id: e.at_ms for e in outcome.events if (e.producer, e.outcome) == ("central", "asked")
    }
    received = {
        e.sequence_id: e.at_ms for e in outcome.events if (e.producer, e.op) == ("central", "receive")
    }
    slow = [received[n] - at for n, at in requested_at.items() if slow_from < at < slow_until - 400]
    # Messages sent right after the healing queue after those still in flight.
    quick = [received[n] - at for n, at in requested_at.items() if at > slow_until + 400]
    assert min(slow) > 400 > 100 > max(quick)
    assert len(slow) > 10
    assert len(quick) >= 5


def test_a_producer_that_leaves_a_dead_region_gives_up_what_it_waited_for(tmp_path: Path) -> None:
    scenario = scenario_of(
        tmp_path,
        """
        begin: all
        wait: 1s
        kill: us-east
        wait: 1s
        move: {producer: east, to: us-west}
        move: {consumer: billing, to: us-west}
        wait_until: {producer: east, published_more: 20}
        finish: producers
        """,
    )
    outcome = run_scenario(scenario, 1)
    assert outcome.violation is None
    publishes = [event for event in outcome.events if event.op == "publish" and event.producer == "east"]
    unknown = [event for event in publishes if event.outcome == "unknown"]
    assert {event.region for event in unknown} == {"us-east"}
    requested = sum(event.outcome == "asked" for event in publishes)
    assert requested == len(publishes) - requested
    assert len(unknown) > 20


def test_a_step_that_does_not_complete_is_reported_with_its_progress(tmp_path: Path) -> None:
    scenario = scenario_of(
        tmp_path,
        """
        begin: all
        cut: [us-east, us-west]
        wait_until: {subscription: billing, exists_in: us-west, within: 3s}
        """,
    )
    violation = run_scenario(scenario, 1).violation
    assert violation is not None
    assert (violation.invariant, violation.check) == ("story", "every-step-comes-true")
    assert violation.sentence.startswith("step 3 (wait_until: {subscription: billing")
    assert "not there yet; us-west does not have it" in violation.sentence
    assert violation.witness == {"steps done": "2 of 3"}


def test_cut_links_and_killed_regions_are_repaired_before_the_final_checks(
    tmp_path: Path,
) -> None:
    steps = "begin: all\nwait: 1s\ncut: [us-east, eu-central]\nkill: us-west\nwait: 1s\nfinish: producers"
    outcome = run_scenario(scenario_of(tmp_path, steps), 1)
    assert outcome.violation is None
    assert {one.check for one in outcome.check_results} >= {"regions-converge", "replicated-everywhere"}


LOSS = """
    begin: all
    wait_until: {subscription: billing, exists_in: us-west, within: 10s}
    cut: [us-east, us-west]
    cut: [us-east, eu-central]
    wait: 1s
    lose: us-east
    move: {consumer: billing, to: us-west, within: 5s}
    move: {producer: east, to: us-west, within: 5s}
    wait: 1s
"""


def test_messages_lost_with_a_region_are_measured_and_the_region_is_not_repaired(tmp_path: Path) -> None:
    """50 messages a second, one second after the cut: the loss takes some 50 messages."""
    steps = f"{LOSS}finish: producers\ndrain: {{within: 20s}}"
    outcome = run_scenario(scenario_of(tmp_path, steps), 1)
    assert outcome.violation is None
    assert {one.check for one in outcome.check_results} >= {"regions-converge", "replicated-everywhere"}
    assert [event.op for event in outcome.events if event.op in ("lose", "start", "restart")] == ["lose"]
    assert outcome.figures["billing: fail-over gap after lose of us-east (s)"] > 0
    assert 45 <= outcome.figures["us-east: unrecovered (messages)"] <= 60
    assert 0.9 <= outcome.figures["us-east: rpo (s)"] <= 1.2


def test_a_lost_region_that_is_started_again_must_converge(tmp_path: Path) -> None:
    steps = f"{LOSS}heal: all\nstart: us-east\nfinish: producers\ndrain: {{within: 20s}}"
    outcome = run_scenario(scenario_of(tmp_path, steps), 1)
    assert outcome.violation is None
    assert not [what for what in outcome.figures if what.startswith("us-east")]


def test_the_remaining_regions_are_checked_as_usual() -> None:
    """Messages published after the loss, and all that started elsewhere, are checked as usual."""
    here, there = LogView("us", "t", 1), LogView("eu", "t", 1)
    one, two = (stored("us", number) for number in (0, 1))
    here.messages = [one, two]
    there.messages = [two._replace(region="eu")]
    homes = ReplicationRules([NamespaceConfig("public/default", ("us", "eu"))])
    topic = one.origin.topic
    evidence = RunEvidence(
        replication_rules=homes,
        events=[],
        delivered=DeliveredMessages(),
        logs={("us", topic): here, ("eu", topic): there},
        cursors={},
        mark_delete_regressions=[],
        acknowledged_unreceived=[],
        healed=True,
    )
    assert list(regions_converge(evidence))
    assert list(replicated_everywhere(evidence))
    evidence.lost = ("us",)
    assert list(regions_converge(evidence)), "the first is missing before the second"
    there.messages = [one._replace(region="eu")]
    assert not list(regions_converge(evidence))
    assert not list(replicated_everywhere(evidence))
    evidence.lost = ()
    assert list(regions_converge(evidence))


def stored(region: str, number: int) -> StoredMessage:
    origin = MessageOrigin("persistent://public/default/t", region, "p", number)
    return StoredMessage(origin, f"m{number}", region, 1, number, -1, None, ())


def test_a_safeguard_that_is_missing_is_noticed() -> None:
    """Receipts before the disk: with a few seeds one kill falls between the two."""
    scenario = prepare_scenario(find_scenario(Path("region-failover")), TOPOLOGY)
    overrides = overrides_without("receipt-before-durable")
    violations = (run_scenario(scenario, seed, overrides=overrides).violation for seed in range(1, 11))
    violation = next(filter(None, violations))
    assert (violation.invariant, violation.check) == ("INV-1", "acknowledged-stored")


def test_topics_of_two_namespaces_are_refused(tmp_path: Path) -> None:
    other = NamespaceConfig("public/other", TOPOLOGY.region_names)
    topology = replace(TOPOLOGY, namespaces=(*TOPOLOGY.namespaces, other))
    path = tmp_path / "scenario.yaml"
    path.write_text("""
name: story
topic: persistent://public/default/orders
actors:
  producers:
    - {name: one, region: us-east}
    - {name: two, region: us-east, topic: "persistent://public/other/orders"}
steps: [{begin: all}]
""")
    with pytest.raises(ConfigurationError, match="give all actors topics of the same one"):
        prepare_scenario(path, topology)


def received(at_ms: float, region: str, number: int) -> HistoryEvent:
    return HistoryEvent(
        at_ms,
        "billing",
        "receive",
        "ok",
        region=region,
        topic="t",
        subscription="billing",
        origin_region="us",
        producer="p",
        sequence_id=number,
    )


def fact(at_ms: float, op: str, region: str) -> HistoryEvent:
    return HistoryEvent(at_ms, "scenario", op, "fact", region=region)


@pytest.mark.parametrize(
    ("events", "gap"),
    [
        ([received(1, "us", 1), fact(1000, "kill", "us"), received(1500, "eu", 2)], 0.5),
        # Messages in the client's memory do not end it.
        (
            [
                received(1, "us", 1),
                fact(1000, "kill", "us"),
                received(1001, "us", 2),
                received(3000, "eu", 3),
            ],
            2.0,
        ),
        (
            [
                received(1, "us", 1),
                fact(1000, "stop", "us"),
                fact(2000, "start", "us"),
                received(2100, "us", 2),
            ],
            1.1,
        ),
        (
            [
                received(1, "us", 1),
                fact(1000, "kill", "us"),
                fact(2000, "restart", "us"),
                received(2100, "us", 2),
            ],
            1.1,
        ),
        # It was in another region; it never received again.
        ([received(1, "eu", 1), fact(1000, "kill", "us"), received(1500, "eu", 2)], None),
        ([received(1, "us", 1), fact(1000, "kill", "us")], None),
    ],
)
def test_a_gap_lasts_until_the_next_message_from_a_region_that_lives(
    events: Sequence[HistoryEvent], gap: float | None
) -> None:
    gaps = [value for what, value in subscription_figures(events).items() if "gap" in what]
    assert gaps == ([] if gap is None else [gap])


def test_topics_of_one_subscription_name_share_its_figures() -> None:
    """Repeated receives add up, and the longest gap counts, whichever topic comes last."""
    orders = [
        received(1, "us", 1),
        received(2, "us", 1),
        received(3, "us", 1),
        fact(1000, "kill", "us"),
        received(3000, "eu", 2),
    ]
    bills = [replace(event, topic="bills") for event in (received(1, "us", 1), received(2000, "eu", 1))]
    for events in ([*orders, *bills], [*bills, *orders]):
        assert subscription_figures(sorted(events, key=lambda event: event.at_ms)) == {
            "billing: received again (messages)": 3,
            "billing: fail-over gap after kill of us (s)": 2.0,
        }


def test_the_repair_of_links_and_regions_is_recorded(tmp_path: Path) -> None:
    """Without these facts a verdict on the run would regard the region and the link as down until the end."""
    scenario = scenario_of(
        tmp_path,
        """
        begin: all
        wait: 1s
        cut: {between: [us-west, eu-central]}
        kill: us-west
        wait: 1s
        """,
        rate=10,
    )
    outcome = run_scenario(scenario, 1)
    assert outcome.violation is None
    assert facts(outcome)[-2:] == [("heal", None), ("start", "us-west")]
