"""INV-53: the stores of all clusters equal the fold of the events in the event topic."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from emulator.config.loading import load_topology
from emulator.config.region import BrokerSettings, LinkShape, NamespaceConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology
from emulator.core.metadata import event as core_event
from emulator.core.metadata.event import EXISTENCE
from emulator.core.metadata.record import DocumentRecord
from emulator.model.stored_keys import NamespacePath, PartitionedTopicPath
from emulator.scenarios.scenario import find_scenario, parse_scenario
from emulator.simulation.run_folder import write_evidence
from emulator.simulation.scenarios.run import (
    SimulatedScenario,
    SimulationOutcome,
    prepare_scenario,
    run_scenario,
)
from spark_jobs.checks.check import Circumstances
from spark_jobs.checks.metadata_converged import UNDER_WAY_MS, SharedMetadata, conclude, metadata_converged
from spark_jobs.evidence.metadata_fold import EventStamp, MetadataEvent, document_in, fold
from spark_jobs.sources.metadata import ClusterStore, ClusterSync, events_in
from spark_jobs.sources.run_folder import open_run_folder

EVENTS = "persistent://pulsar/system/metadata-events"
PLACE = NamespacePath("acme/orders").text
CALM = Circumstances(namespaces={})
SCENARIO = """
name: little
description: a few messages
topic: persistent://public/default/orders
actors:
  producers:
    - {name: maker, region: us, rate_per_second: 10, messages: 40}
steps:
  - begin: all
  - wait: 4s
  - drain: 30s
"""


def topology(events: str = EVENTS) -> Topology:
    chosen = BrokerSettings(configuration_metadata_sync_event_topic=events)
    names = {"us": "americas", "eu": "europe"}
    return Topology(
        name="two",
        path=Path("topology.yaml"),
        clusters=tuple(
            ClusterSpec(cluster, (RegionSpec(name, cluster, settings=chosen),))
            for name, cluster in names.items()
        ),
        links=tuple(
            LinkSpec(one, other, LinkShape(latency_ms=20.0))
            for one in names
            for other in names
            if one != other
        ),
        namespaces=(NamespaceConfig("public/default", tuple(names), True),),
    )


def played(run: Path, events: str = EVENTS) -> Path:
    two = topology(events)
    scenario = parse_scenario(SCENARIO, two)
    outcome = run_scenario(SimulatedScenario(scenario, two, two.namespaces[0]), 1)
    assert outcome.violation is None, outcome.violation
    write_evidence(outcome, run)
    (run / "run.json").write_text("{}")
    (run / "topology.json").write_text(two.to_json())
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(tmp_path_factory.mktemp("played") / "run")


def judged(run: Path) -> tuple[str, str]:
    found = metadata_converged(open_run_folder(run), CALM, end_ms=1e15)
    assert found is not None
    assert found.invariant == "INV-53"
    return found.verdict, found.sentence


def edit(run: Path, cluster: str, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(run / "configuration" / cluster / "configuration.sqlite")) as store, store:
        assert store.execute(statement, values).rowcount == 1


def copied(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to / "run"))


def test_a_run_that_went_well(run: Path) -> None:
    verdict, sentence = judged(run)
    assert verdict == "valid"
    assert "americas and europe" in sentence
    assert not sentence.startswith("0 "), "the topology's own documents are sent as events"


def test_an_edited_store_is_found(run: Path, tmp_path: Path) -> None:
    run = copied(run, tmp_path)
    said = json.dumps({"policies": {"replication_clusters": ["eu"]}}).encode()
    path = NamespacePath("public/default").text
    edit(run, "europe", "UPDATE kv SET value = ? WHERE path = ?", said, path)
    found = metadata_converged(open_run_folder(run), CALM, end_ms=1e15)
    assert found is not None
    assert found.verdict == "invalid"
    assert {(one["cluster"], one["kind"]) for one in found.witness} == {("europe", "differs")}
    assert "namespace/public/default/policies/replication_clusters" in {one["path"] for one in found.witness}
    json.dumps(found.as_json())


def test_a_deleted_document_is_found(run: Path, tmp_path: Path) -> None:
    run = copied(run, tmp_path)
    edit(run, "americas", "DELETE FROM kv WHERE path = ?", NamespacePath("public/default").text)
    assert judged(run)[0] == "invalid"


@pytest.mark.parametrize("harm", ["gone", "garbage"])
def test_a_store_that_cannot_be_read_is_unknown(run: Path, tmp_path: Path, harm: str) -> None:
    run = copied(run, tmp_path)
    file = run / "configuration" / "europe" / "configuration.sqlite"
    file.unlink() if harm == "gone" else file.write_bytes(b"no database at all" * 100)
    if harm == "gone":
        told = run / "regions" / "eu" / "region.json"
        config = json.loads(told.read_text())
        config["configuration"]["path"] = str(file)
        told.write_text(json.dumps(config))
    verdict, sentence = judged(run)
    assert verdict == "unknown"
    assert "configuration/europe/configuration.sqlite" in sentence


def test_nothing_is_checked_where_nothing_is_shared(tmp_path: Path) -> None:
    run = played(tmp_path / "run", events="")
    assert metadata_converged(open_run_folder(run), CALM, end_ms=1e15) is None


# ---- events and stores, built by hand ----


def event(
    value: int, time_ms: int, source: str, sequence: int, *, element: str = "policies/max", gone: bool = False
) -> MetadataEvent:
    return MetadataEvent(PLACE, element, value, gone, EventStamp(time_ms, 0, source, sequence, "1"), 1_000.0)


MADE = event(0, 1, "a", 1, element=EXISTENCE)._replace(value=None)


def store(cluster: str, value: int | None, has: dict[str, int]) -> ClusterStore:
    document = {} if value is None else {PLACE: json.dumps({"policies": {"max": value}}).encode()}
    return ClusterStore(cluster, document, {}, has)


def evidence(stores: list[ClusterStore], events: list[MetadataEvent]) -> SharedMetadata:
    settings = {one.cluster: ClusterSync(EVENTS, (), True) for one in stores}
    return SharedMetadata(settings, tuple(stores), fold(events), frozenset(one.stamp for one in events), ())


HEARD = {"a:1": 9, "b:1": 9}
RACE = [MADE, event(1, 50, "b", 1), event(2, 50, "a", 2)]
"""Two events at the same time: that of the cluster whose name sorts first wins."""


def test_clusters_for_which_the_last_that_came_wins_are_found() -> None:
    alike = conclude(evidence([store("a", 2, HEARD), store("b", 2, HEARD)], RACE), CALM, 1e9)
    assert alike.verdict == "valid"
    differ = conclude(evidence([store("a", 1, HEARD), store("b", 2, HEARD)], RACE), CALM, 1e9)
    assert differ.verdict == "invalid"
    assert differ.witness[0]["path"] == "namespace/acme/orders/policies/max"
    assert (differ.witness[0]["stored"], differ.witness[0]["expected"]) == (1, 2)
    both_wrong = conclude(evidence([store("a", 1, HEARD), store("b", 1, HEARD)], RACE), CALM, 1e9)
    assert both_wrong.verdict == "invalid", "equal stores can all be wrong"


def test_an_event_in_progress_at_the_end_is_no_fault() -> None:
    behind = evidence([store("a", 2, HEARD), store("b", 1, {"a:1": 1, "b:1": 9})], RACE)
    assert conclude(behind, CALM, 1_000.0 + UNDER_WAY_MS / 2).verdict == "valid"
    assert conclude(behind, CALM, 1_001.0 + UNDER_WAY_MS).verdict == "unknown"
    cut = replace(CALM, cut=frozenset({("us", "eu")}))
    assert conclude(behind, cut, 1_001.0 + UNDER_WAY_MS).verdict == "valid"


def test_what_was_deleted_is_not_brought_back_by_an_older_event() -> None:
    gone = event(0, 60, "b", 2, element=EXISTENCE, gone=True)
    told = [*RACE, gone]
    assert (
        conclude(evidence([store("a", None, HEARD), store("b", None, HEARD)], told), CALM, 1e9).verdict
        == "valid"
    )
    assert (
        conclude(evidence([store("a", None, HEARD), store("b", 2, HEARD)], told), CALM, 1e9).verdict
        == "invalid"
    )


def test_a_region_speaks_for_its_own_cluster_only() -> None:
    pack = {"kind": "events", "source": "a", "events": []}
    one = core_event.SyncEvent(PLACE, "policies/max", 3, False, core_event.SyncStamp(5, 0, "a", 1, "1"))
    payload = json.dumps(pack | {"events": [one.to_json()]}).encode()
    assert [found.value for found in events_in(payload, "a", 1.0)] == [3]
    assert events_in(payload, "b", 1.0) == []
    assert events_in(b"no pack", "a", 1.0) == []


@pytest.mark.parametrize("seed", range(200))
def test_it_agrees_with_the_regions_on_any_events_in_any_order(seed: int) -> None:
    chance = Random(seed)
    elements = (EXISTENCE, "policies/max", "policies/min", "owner")
    made = []
    for sequence in range(1, chance.randint(2, 15)):
        stamp = (chance.randint(1, 4), chance.randint(0, 1), chance.choice("abc"), sequence, "1")
        element, gone = chance.choice(elements), chance.random() < 0.3
        value = None if gone or element == EXISTENCE else chance.randint(0, 3)
        made.append((element, value, gone, stamp))
    record = DocumentRecord(PLACE)
    for element, value, gone, stamp in chance.sample(made, len(made)):
        record.merge(core_event.SyncEvent(PLACE, element, value, gone, core_event.SyncStamp(*stamp)), "a", 0)
    ours = fold(
        MetadataEvent(PLACE, element, value, gone, EventStamp(*stamp), 0.0)
        for element, value, gone, stamp in chance.sample(made, len(made))
    )
    theirs = record.document()
    assert ours[PLACE].document() == ({} if theirs is None else document_in(PLACE, theirs))


@pytest.mark.parametrize("seed", range(50))
def test_it_agrees_with_the_regions_on_numbers_of_partitions(seed: int) -> None:
    chance, path = Random(seed), PartitionedTopicPath("persistent://acme/orders/one").text
    made = []
    for sequence in range(1, chance.randint(2, 12)):
        stamp = (chance.randint(1, 4), 0, chance.choice("abc"), sequence, "1")
        count = chance.randint(1, 4)
        element, value = chance.choice(
            ((EXISTENCE, None), (f"partitions/{count}", count), ("=", {"properties": {"n": count}}))
        )
        made.append((element, value, chance.random() < 0.2, stamp))
    record = DocumentRecord(path)
    for element, value, gone, stamp in chance.sample(made, len(made)):
        record.merge(core_event.SyncEvent(path, element, value, gone, core_event.SyncStamp(*stamp)), "a", 0)
    ours = fold(
        MetadataEvent(path, element, value, gone, EventStamp(*stamp), 0.0)
        for element, value, gone, stamp in chance.sample(made, len(made))
    )[path].document()
    theirs = record.document()
    assert ({} if not ours else {"=": {}, **ours}) == ({} if theirs is None else document_in(path, theirs))


def shipped(tmp_path: Path, scenario: str, seed: int) -> tuple[str, SimulationOutcome]:
    """Return the verdict on a shipped scenario in a simulated world."""
    sample = load_topology(Path(__file__).parents[3] / "topology.yaml")
    outcome = run_scenario(prepare_scenario(find_scenario(Path(scenario)), sample), seed)
    assert outcome.violation is None, outcome.violation
    run = tmp_path / "run"
    write_evidence(outcome, run)
    (run / "run.json").write_text("{}")
    (run / "topology.json").write_text(sample.to_json())
    return judged(run)[0], outcome


@pytest.mark.parametrize("seed", range(2))
def test_a_cluster_that_is_lost_with_its_store_gets_everything_back(tmp_path: Path, seed: int) -> None:
    """INV-82; the tombstone of a document deleted before the loss was lost with the store."""
    assert shipped(tmp_path, "cluster-lost", seed)[0] == "valid"


@pytest.mark.parametrize("clocks", ["clock-ahead", "clock-ahead-hybrid"])
def test_a_clock_that_is_ahead_ends_alike_under_plain_and_hybrid_clocks(tmp_path: Path, clocks: str) -> None:
    """The two kinds of clock reject different changes during the run."""
    verdict, outcome = shipped(tmp_path, clocks, 1)
    assert verdict == "valid"
    region = outcome.topology.regions[0]
    assert region.settings.metadata_sync_hybrid_clocks == (clocks == "clock-ahead-hybrid")


@pytest.mark.parametrize("seed", range(3))
def test_a_race_between_two_clusters_ends_the_same_in_both(tmp_path: Path, seed: int) -> None:
    verdict, outcome = shipped(tmp_path, "policy-race", seed)
    assert [(one.region, one.detail) for one in outcome.events if one.op == "skew"] == [
        ("eu-central", "clock +250 ms"),
        ("eu-central", "clock +0 ms"),
    ]
    assert verdict == "valid"
