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

from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.loading import load_topology
from emulator.config.region import NamespaceConfig
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
from spark_jobs.checks.metadata_converged import metadata_converged
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.engines.frames import small_frame, use_engine
from spark_jobs.evidence.metadata_events import Document, EventStamp, MetadataEvent, document_in
from spark_jobs.frames.metadata import (
    UNDER_WAY_MS,
    SharedMetadata,
    compare_metadata,
    deciding_events,
    each_event,
    expected_elements,
    read_metadata,
)
from spark_jobs.sources.metadata import (
    CLAIM,
    DOCUMENT,
    EVENT_SCHEMA,
    RECORD,
    STORE,
    STORE_SCHEMA,
    event_values,
    events_in,
)
from spark_jobs.sources.run_folder import open_run_folder
from spark_jobs.verdict import CheckResult
from tests.swarm.checkers.metadata_fold import Folded, fold

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


def result_of_run(run: Path) -> CheckResult:
    folder = open_run_folder(run)
    with use_engine(EmbeddedEngine()):
        compared = compare_metadata(read_metadata(folder), end_ms=1e15)
    found = metadata_converged(compared, CALM, 1e15, folder.clusters)
    assert found is not None
    assert found.invariant == "INV-53"
    return found


def judged(run: Path) -> tuple[str, str]:
    found = result_of_run(run)
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
    found = result_of_run(run)
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
    assert read_metadata(open_run_folder(run)) is None
    assert metadata_converged(compare_metadata(None, 1e15), CALM, 1e15, {}) is None


# ---- events and stores, built by hand ----


def event(
    value: int, time_ms: int, source: str, sequence: int, *, element: str = "policies/max", gone: bool = False
) -> MetadataEvent:
    return MetadataEvent(PLACE, element, value, gone, EventStamp(time_ms, 0, source, sequence, "1"), 1_000.0)


MADE = event(0, 1, "a", 1, element=EXISTENCE)._replace(value=None)


def store(cluster: str, value: int | None, has: dict[str, int]) -> list[tuple[object, ...]]:
    """Return the rows of a store with this value of the element, which claims to have applied these events."""
    claims = [
        (None, cluster, CLAIM, *[None] * 8, sequence, None, origin, None) for origin, sequence in has.items()
    ]
    elements = {} if value is None else {EXISTENCE: "true", "policies/max": str(value)}
    document = [(None, cluster, DOCUMENT, PLACE, name, text, *[None] * 9) for name, text in elements.items()]
    return [(None, cluster, STORE, *[None] * 12), *claims, *document]


def copies_of(events: list[MetadataEvent], region: str = "us") -> list[tuple[object, ...]]:
    return [(None, region, f"1:{entry}", [], *event_values(one)) for entry, one in enumerate(events)]


def conclude(
    stores: list[list[tuple[object, ...]]],
    events: list[MetadataEvent],
    end_ms: float = 1e9,
    circumstances: Circumstances = CALM,
    more: list[tuple[object, ...]] | None = None,
) -> CheckResult:
    """Return the result for these rows of stores, and these events; `more`: rows of further copies of events."""
    rows = [row for one in stores for row in one]
    metadata = SharedMetadata(
        tuple(str(one[0][1]) for one in stores),
        small_frame(rows, STORE_SCHEMA),
        small_frame([*copies_of(events), *(more or [])], EVENT_SCHEMA),
        (),
    )
    found = metadata_converged(
        compare_metadata(metadata, end_ms), circumstances, end_ms, {"us": "a", "asia": "a", "eu": "b"}
    )
    assert found is not None
    return found


HEARD = {"a:1": 9, "b:1": 9}
RACE = [MADE, event(1, 50, "b", 1), event(2, 50, "a", 2)]
"""Two events at the same time: that of the cluster whose name sorts first wins."""


def test_clusters_for_which_the_last_that_came_wins_are_found(engine: QueryEngine) -> None:
    alike = conclude([store("a", 2, HEARD), store("b", 2, HEARD)], RACE)
    assert alike.verdict == "valid"
    assert alike.sentence.startswith("3 metadata events: the stores of a and b are")
    differ = conclude([store("a", 1, HEARD), store("b", 2, HEARD)], RACE)
    assert differ.verdict == "invalid"
    assert differ.sentence == (
        "1 document is not the result of applying all events: namespace/acme/orders/policies/max of a is 1, not 2."
    )
    assert differ.witness == (
        {
            "kind": "differs",
            "cluster": "a",
            "regions": ["asia", "us"],
            "path": "namespace/acme/orders/policies/max",
            "stored": 1,
            "expected": 2,
            "event": "50 a #2: policies/max, in us at 1:2",
            "events": ["50 a #2: policies/max, in us at 1:2", "1 a #1: existence, in us at 1:0"],
        },
    )
    both_wrong = conclude([store("a", 1, HEARD), store("b", 1, HEARD)], RACE)
    assert both_wrong.verdict == "invalid", "equal stores can all be wrong"


def test_an_event_in_progress_at_the_end_is_no_fault(engine: QueryEngine) -> None:
    behind = [store("a", 2, HEARD), store("b", 1, {"a:1": 1, "b:1": 9})]
    under_way = conclude(behind, RACE, 1_000.0 + UNDER_WAY_MS / 2)
    assert under_way.verdict == "valid"
    assert "Not yet applied at the end: 1 document is older" in under_way.sentence
    late = conclude(behind, RACE, 1_001.0 + UNDER_WAY_MS)
    assert late.verdict == "unknown"
    assert late.witness[0]["event"] == "50 a #2: policies/max, in us at 1:2"
    cut = replace(CALM, cut=frozenset({("us", "eu")}))
    assert conclude(behind, RACE, 1_001.0 + UNDER_WAY_MS, cut).verdict == "valid"


def test_what_was_deleted_is_not_brought_back_by_an_older_event(engine: QueryEngine) -> None:
    gone = event(0, 60, "b", 2, element=EXISTENCE, gone=True)
    told = [*RACE, gone]
    assert conclude([store("a", None, HEARD), store("b", None, HEARD)], told).verdict == "valid"
    back = conclude([store("a", None, HEARD), store("b", 2, HEARD)], told)
    assert back.verdict == "invalid"
    assert {one["event"] for one in back.witness} == {"60 b #2: existence, in us at 1:3"}


def test_an_event_is_the_same_in_every_region(engine: QueryEngine) -> None:
    """Copies of one event count once; with other contents they are found."""
    stores = [store("a", 2, HEARD), store("b", 2, HEARD)]
    copied = conclude(stores, RACE, more=copies_of(RACE, "eu"))
    assert (copied.verdict, copied.sentence[:18]) == ("valid", "3 metadata events:")
    changed = conclude(stores, RACE, more=copies_of([event(3, 50, "b", 1)], "eu"))
    assert changed.verdict == "invalid"
    assert changed.sentence == (
        "Regions store different contents of one event: 50 b #1, of namespace/acme/orders."
    )
    assert changed.witness[0]["events"] == [
        "50 b #1: policies/max, in eu at 1:0",
        "50 b #1: policies/max, in us at 1:1",
    ]


def test_a_change_that_was_not_published_is_no_result_of_events(engine: QueryEngine) -> None:
    unpublished = event(7, 90, "b", 5)
    record = (None, "b", RECORD, *event_values(unpublished._replace(published_ms=2_000.0)))
    stores = [store("a", 2, HEARD), [*store("b", 7, HEARD), record]]
    assert conclude(stores, RACE, 3_000.0).verdict == "valid"
    late = conclude(stores, RACE, 2_001.0 + UNDER_WAY_MS)
    assert (late.verdict, late.witness[0]["kind"]) == ("unknown", "not published")


def test_a_region_speaks_for_its_own_cluster_only() -> None:
    pack = {"kind": "events", "source": "a", "events": []}
    one = core_event.SyncEvent(PLACE, "policies/max", 3, False, core_event.SyncStamp(5, 0, "a", 1, "1"))
    payload = json.dumps(pack | {"events": [one.to_json()]}).encode()
    assert [found.value for found in events_in(payload, "a", 1.0)] == [3]
    assert events_in(payload, "b", 1.0) == []
    assert events_in(b"no pack", "a", 1.0) == []


def results_of(events: list[MetadataEvent]) -> dict[str, Document]:
    """Return the documents that result from the events, by path, according to the bound engine."""
    found: dict[str, dict[str, object]] = {}
    copies = small_frame(copies_of(events), EVENT_SCHEMA)
    for row in expected_elements(deciding_events(each_event(copies))).collect():
        found.setdefault(row["path"], {})[row["element"]] = json.loads(row["expected"])
    return found


def chosen_events(seed: int) -> list[MetadataEvent]:
    """Return random events of a document of this seed, in the order of their sequences."""
    chance, path, made = Random(seed), NamespacePath(f"acme/orders-{seed}").text, []
    elements = (EXISTENCE, "policies/max", "policies/min", "owner")
    for sequence in range(1, chance.randint(2, 15)):
        stamp = EventStamp(chance.randint(1, 4), chance.randint(0, 1), chance.choice("abc"), sequence, "1")
        element, gone = chance.choice(elements), chance.random() < 0.3
        value = None if gone or element == EXISTENCE else chance.randint(0, 3)
        made.append(MetadataEvent(path, element, value, gone, stamp, 0.0))
    return made


def chosen_partitions(seed: int) -> list[MetadataEvent]:
    chance, made = Random(seed), []
    path = PartitionedTopicPath(f"persistent://acme/orders/topic-{seed}").text
    for sequence in range(1, chance.randint(2, 12)):
        stamp = EventStamp(chance.randint(1, 4), 0, chance.choice("abc"), sequence, "1")
        count, gone = chance.randint(1, 4), chance.random() < 0.2
        element, value = chance.choice(
            ((EXISTENCE, None), (f"partitions/{count}", count), ("=", {"properties": {"n": count}}))
        )
        made.append(MetadataEvent(path, element, None if gone else value, gone, stamp, 0.0))
    return made


def record_of(events: list[MetadataEvent]) -> Document:
    """Return the document that a region stores after it received the events in this order."""
    path = events[0].path
    record = DocumentRecord(path)
    for one in events:
        stamp = core_event.SyncStamp(*one.stamp)
        record.merge(core_event.SyncEvent(path, one.element, one.value, one.is_deletion, stamp), "a", 0)
    document = record.document()
    return {} if document is None else document_in(path, document)


def test_it_agrees_with_the_regions_on_any_events_in_any_order(engine: QueryEngine) -> None:
    """The query, the simulation's checker and the regions compute the same documents."""
    chance = Random(7)
    of_seeds = [
        chance.sample(made, len(made))
        for made in (*map(chosen_events, range(300)), *map(chosen_partitions, range(100)))
    ]
    found = results_of([one for made in of_seeds for one in chance.sample(made, len(made))])
    existing = 0
    for made in of_seeds:
        (path,) = {one.path for one in made}
        document = found.get(path, {})
        assert document == fold(made).get(path, Folded()).document()
        is_partitioned = bool(document) and path.startswith(PartitionedTopicPath.KIND)
        assert ({"=": {}, **document} if is_partitioned else document) == record_of(made)
        existing += bool(document)
    assert 100 < existing < 350


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
