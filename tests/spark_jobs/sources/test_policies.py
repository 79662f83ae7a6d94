"""Required copies and lifetimes of messages when policies change during a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest

from emulator.model.stored_keys import (
    BROKER_POLICIES_PATH,
    NamespacePath,
    RegionTopicPoliciesPath,
    StoredKey,
    SyncExcludedPath,
    TopicPoliciesPath,
)
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.sources.policies import (
    NEVER_MS,
    SETTLING_MS,
    Lifetime,
    Namespace,
    ReplicationPolicy,
    read_namespaces,
)
from spark_jobs.sources.run_folder import open_run_folder
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.sample_run import TOPIC, SampleRun

SPACE = NamespacePath("public/default")
ALL = ["us-east", "us-west", "eu-central"]
TWO = ALL[:2]


def receive(run: Path, region: str, at_ms: float, revision: int, key: StoredKey, value: str | None) -> None:
    """Write that the region received a change."""
    folder = run / "regions" / region
    folder.mkdir(parents=True, exist_ok=True)
    line = {"at_ms": at_ms, "region": region, "revision": revision, "path": key.text, "value": value}
    with (folder / "metadata.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def tell(
    run: Path, region: str, *changes: tuple[float, int, Sequence[str] | None], key: StoredKey = SPACE
) -> None:
    """Write changes of a policy: time, revision, and the regions; None: the policy was removed."""
    for at_ms, revision, clusters in changes:
        policies = {"policies": {"replication_clusters": clusters, "deduplication": True}}
        receive(run, region, at_ms, revision, key, None if clusters is None else json.dumps(policies))


def changes(run: Path) -> Namespace:
    found, unreadable = read_namespaces(run, {})
    assert unreadable == []
    return found["public/default"]


def test_policies_that_never_change_are_no_change(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, ALL))
    assert changes(tmp_path) == Namespace(tuple(sorted(ALL)), True)


def test_a_path_that_is_no_policy_may_have_any_value(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, ALL))
    receive(tmp_path, "us-east", 20.0, 3, SyncExcludedPath("europe"), "[]")
    assert changes(tmp_path) == Namespace(tuple(sorted(ALL)), True)


def test_an_added_region_must_receive_what_is_published_once_all_regions_know_it(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, TWO), (5000.0, 7, ALL))
    tell(tmp_path, "eu-central", (10.0, 2, TWO), (6000.0, 9, ALL))
    since = changes(tmp_path).replicated_since_ms
    assert since["us-east", "eu-central"] == since["eu-central", "us-west"] == 6000.0 + SETTLING_MS
    assert ("us-east", "us-west") not in since


def test_a_removed_region_must_receive_nothing(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, ALL), (5000.0, 7, TWO))
    assert changes(tmp_path).replicated_since_ms["us-east", "eu-central"] == NEVER_MS
    assert changes(tmp_path).regions == tuple(sorted(ALL))


def test_changes_that_a_restarted_region_receives_again_change_nothing(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, TWO), (5000.0, 7, ALL), (9000.0, 7, ALL))
    assert changes(tmp_path).replicated_since_ms["us-east", "eu-central"] == 5000.0 + SETTLING_MS


def test_in_a_deleted_namespace_nothing_must_be_replicated(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, TWO), (5000.0, 7, None))
    assert changes(tmp_path).replicated_since_ms["us-east", "us-west"] == NEVER_MS
    assert not changes(tmp_path).deduplication


def test_clusters_of_a_topic_replace_those_of_its_namespace_for_that_topic_only(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, ALL))
    tell(tmp_path, "us-east", (20.0, 3, TWO), key=TopicPoliciesPath(TOPIC))
    found = changes(tmp_path)
    assert found.own_topics[TOPIC].since_ms["us-east", "eu-central"] == NEVER_MS
    assert ("us-east", "us-west") not in found.own_topics[TOPIC].since_ms
    assert found.replicated_since_ms == {}


def test_a_topic_whose_clusters_are_unset_has_those_of_its_namespace_again(tmp_path: Path) -> None:
    topic = TopicPoliciesPath(TOPIC)
    tell(tmp_path, "us-east", (10.0, 2, ALL))
    tell(tmp_path, "us-east", (2000.0, 3, TWO), (7000.0, 4, None), key=topic)
    tell(tmp_path, "us-west", (10.0, 2, ALL))
    tell(tmp_path, "us-west", (2500.0, 3, TWO), (7500.0, 4, None), key=topic)
    assert changes(tmp_path).own_topics[TOPIC] == ReplicationPolicy(
        frozenset(ALL),
        {pair: 7500.0 + SETTLING_MS for pair in permutations(sorted(ALL), 2) if "eu-central" in pair},
    )


def test_clusters_that_a_topic_sets_for_one_region_apply_there(tmp_path: Path) -> None:
    for region in ALL:
        tell(tmp_path, region, (10.0, 2, ALL))
        tell(tmp_path, region, (20.0, 3, TWO), key=RegionTopicPoliciesPath("us-east", TOPIC))
    found = changes(tmp_path).own_topics[TOPIC]
    assert found.since_ms["us-east", "eu-central"] == NEVER_MS
    assert ("us-east", "us-west") not in found.since_ms


def test_clusters_that_a_topic_sets_for_another_region_change_nothing_here(tmp_path: Path) -> None:
    tell(tmp_path, "us-west", (10.0, 2, ALL))
    tell(tmp_path, "us-west", (20.0, 3, TWO), key=RegionTopicPoliciesPath("us-east", TOPIC))
    assert changes(tmp_path).own_topics[TOPIC].since_ms == {}


def test_a_topic_may_have_more_clusters_than_its_namespace(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, TWO))
    tell(tmp_path, "us-east", (4000.0, 3, ALL), key=TopicPoliciesPath(TOPIC))
    found = changes(tmp_path)
    assert found.regions == tuple(sorted(TWO))
    assert found.own_topics[TOPIC].since_ms["us-west", "eu-central"] == 4000.0 + SETTLING_MS


def test_a_torn_last_line_is_skipped_and_a_damaged_line_is_reported(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, ALL))
    file = tmp_path / "regions" / "us-east" / "metadata.jsonl"
    file.write_text(file.read_text() + '{"at_ms":1')
    assert changes(tmp_path).regions == tuple(sorted(ALL))
    file.write_text('{"at_ms":1\n' + file.read_text())
    (sentence,) = read_namespaces(tmp_path, {})[1]
    assert sentence.startswith("regions/us-east/metadata.jsonl cannot be read")


def test_other_texts_of_a_document_may_have_lone_surrogates(tmp_path: Path) -> None:
    document = {
        "policies": {"replication_clusters": ALL, "deduplication": True},
        "properties": {"a": "\ud800"},
    }
    receive(tmp_path, "us-east", 10.0, 2, SPACE, json.dumps(document))
    assert changes(tmp_path) == Namespace(tuple(sorted(ALL)), True)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (SPACE.text, json.dumps({"policies": {"replication_clusters": ["us-east", "\ud800"]}})),
        ("namespace/\ud800", json.dumps({"policies": {"replication_clusters": ["us-east"]}})),
        (f"topic-policies/{TOPIC}\ud800".replace("/", "%2F"), "{}"),
        (SPACE.text, "[" * 200_000),
    ],
)
def test_a_change_with_a_lone_surrogate_is_damage(tmp_path: Path, path: str, value: str) -> None:
    sample = SampleRun()
    sample.publish("us-east", 0, 1.0)
    run = sample.write(tmp_path / "run")
    line = {"at_ms": 1.0, "region": "us-east", "revision": 1, "path": path, "value": value}
    (run / "regions" / "us-east" / "metadata.jsonl").write_text(json.dumps(line) + "\n")
    evaluation = evaluate_run(EmbeddedEngine(), run)
    assert evaluation.verdict == "unknown"
    sentences = " ".join(check.sentence for check in evaluation.checks)
    assert "regions/us-east/metadata.jsonl cannot be read" in sentences


def test_a_namespace_created_during_the_run_belongs_to_it(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, TWO), key=NamespacePath("public/new"))
    assert open_run_folder(tmp_path).namespaces["public/new"] == Namespace(("us-east", "us-west"), True)


def replicated_otherwise(engine: QueryEngine, tmp_path: Path, *, late_to: list[str]) -> Evaluation:
    """Evaluate a run in which eu-central is added at 5 s. The message of 1 s is stored in two regions, that of 8 s in
    `late_to`, and that of 9 s in all."""
    sample = SampleRun()
    sample.subscribe("us-west", 0.1)
    for number, (at_s, to) in enumerate([(1.0, TWO), (8.0, late_to), (9.0, ALL)]):
        sample.publish("us-east", number, at_s, to=to)
        sample.receive("us-west", "us-east", number, at_s + 0.05, number)
    run = sample.write(tmp_path / "run")
    for region in ALL:
        tell(run, region, (sample.time_ms(0), 2, TWO), (sample.time_ms(5), 7, ALL))
    return evaluate_run(engine, run)


def test_what_was_published_before_a_region_was_added_need_not_be_there(
    engine: QueryEngine, tmp_path: Path
) -> None:
    evaluation = replicated_otherwise(engine, tmp_path, late_to=ALL)
    assert evaluation.verdict == "valid"
    whole = next(check for check in evaluation.checks if check.name == "evidence-complete")
    assert "The replication of public/default changed during the run" in whole.sentence


def test_what_was_published_after_a_region_was_added_must_be_there(
    engine: QueryEngine, tmp_path: Path
) -> None:
    evaluation = replicated_otherwise(engine, tmp_path, late_to=TWO)
    assert evaluation.verdict == "invalid"
    replicated = next(check for check in evaluation.checks if check.name == "replicated-exactly-once")
    assert [(one["region"], one["sequence_id"]) for one in replicated.witness] == [("eu-central", 1)]


def with_topic_clusters(
    engine: QueryEngine, tmp_path: Path, *, early_to: list[str], late_to: list[str]
) -> Evaluation:
    """Evaluate a run in which the topic, not its namespace, removes eu-central at 5 s. The message of 1 s is stored in
    `early_to`, and that of 8 s in `late_to`."""
    sample = SampleRun()
    sample.subscribe("us-west", 0.1)
    for number, (at_s, to) in enumerate([(1.0, early_to), (8.0, late_to)]):
        sample.publish("us-east", number, at_s, to=to)
        sample.receive("us-west", "us-east", number, at_s + 0.05, number)
    run = sample.write(tmp_path / "run")
    for region in ALL:
        tell(run, region, (sample.time_ms(0), 2, ALL))
        tell(run, region, (sample.time_ms(5), 7, TWO), key=TopicPoliciesPath(TOPIC))
    return evaluate_run(engine, run)


def test_what_a_topic_need_not_replicate_is_not_missing(engine: QueryEngine, tmp_path: Path) -> None:
    evaluation = with_topic_clusters(engine, tmp_path, early_to=ALL, late_to=TWO)
    assert evaluation.verdict == "valid"
    whole = next(check for check in evaluation.checks if check.name == "evidence-complete")
    assert f"Replication clusters of their own: {TOPIC}." in whole.sentence


def test_what_a_topic_must_replicate_is_missing(engine: QueryEngine, tmp_path: Path) -> None:
    evaluation = with_topic_clusters(engine, tmp_path, early_to=ALL, late_to=["us-east"])
    assert evaluation.verdict == "invalid"
    replicated = next(check for check in evaluation.checks if check.name == "replicated-exactly-once")
    assert {(one["region"], one["sequence_id"]) for one in replicated.witness} == {("us-west", 1)}


def test_what_a_policy_ever_trimmed_or_expired_proves_nothing(tmp_path: Path) -> None:
    """This includes policies that were removed later, and policies of a topic."""

    def set_policies(revision: int, key: StoredKey, policies: dict[str, object]) -> None:
        receive(tmp_path, "us-east", revision, revision, key, json.dumps({"policies": policies}))

    keeps = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    set_policies(1, SPACE, {"replication_clusters": ALL, "retention": keeps})
    assert changes(tmp_path).lifetime == Lifetime()
    set_policies(2, SPACE, {"replication_clusters": ALL, "retention": {**keeps, "retentionSizeInMB": 5}})
    set_policies(3, SPACE, {"replication_clusters": ALL, "message_ttl": 60})
    set_policies(4, SPACE, {"replication_clusters": ALL})
    assert changes(tmp_path).lifetime == Lifetime(trims=True, expires_after_ms=60_000.0)
    evict = {"limitSize": 9, "limitTime": -1, "policy": "consumer_backlog_eviction"}
    hold = {"limitSize": 9, "limitTime": -1, "policy": "producer_request_hold"}
    set_policies(5, TopicPoliciesPath(TOPIC), {"backlog_quotas": {"destination_storage": hold}})
    assert changes(tmp_path).own_lifetimes == {}
    set_policies(6, TopicPoliciesPath(TOPIC), {"backlog_quotas": {"destination_storage": evict}})
    assert changes(tmp_path).own_lifetimes == {TOPIC: Lifetime(expires_after_ms=0.0)}


@pytest.mark.parametrize(
    "policies",
    [
        {"retention": {}},
        {"retention": 5},
        {"message_ttl": "x"},
        {"message_ttl": 10**400},
        {"message_ttl": [1]},
        {"replication_clusters": 5},
        {"replication_clusters": None},
        {"replication_clusters": [1]},
        {"backlog_quotas": 5},
        {"backlog_quotas": {"message_age": {}}},
    ],
    ids=lambda policies: str(policies)[:40],
)
def test_invalid_policies_are_named_with_their_line(tmp_path: Path, policies: dict[str, object]) -> None:
    receive(tmp_path, "us-east", 1.0, 1, SPACE, json.dumps({"policies": {}}))
    receive(tmp_path, "us-east", 2.0, 2, SPACE, json.dumps({"policies": policies}))
    _, (sentence,) = read_namespaces(tmp_path, {})
    assert sentence.startswith("regions/us-east/metadata.jsonl cannot be read: line 2")


def claiming(
    run: Path, region: str, at_ms: float, revision: int, value: object, key: StoredKey = SPACE
) -> None:
    """Write that the region received a policy on individual acknowledgements; None: without a value."""
    policies: dict[str, object] = {"replication_clusters": TWO}
    if value is not None:
        policies["replicate_individual_acks"] = value
    receive(run, region, at_ms, revision, key, json.dumps({"policies": policies}))


@pytest.mark.parametrize(
    ("east", "west", "since_ms"),
    [
        ([(10.0, True)], [(20.0, True)], 20.0),
        ([(10.0, None), (30.0, True)], [(20.0, True)], 30.0),
        ([(10.0, True), (30.0, False), (40.0, True)], [(20.0, True)], 40.0),
        ([(10.0, True), (30.0, False)], [(20.0, True)], NEVER_MS),
        ([(10.0, True)], [(20.0, None)], NEVER_MS),
        ([(10.0, True)], [], NEVER_MS),
        ([(10.0, "yes")], [(20.0, True)], NEVER_MS),
    ],
)
def test_individual_acknowledgements_are_replicated_once_every_region_has_the_policy(
    tmp_path: Path,
    east: Sequence[tuple[float, object]],
    west: Sequence[tuple[float, object]],
    since_ms: float,
) -> None:
    for region, received in (("us-east", east), ("us-west", west)):
        for revision, (at_ms, value) in enumerate(received, 2):
            claiming(tmp_path, region, at_ms, revision, value)
    assert changes(tmp_path).individual_acks_since_ms == since_ms


@pytest.mark.parametrize(
    ("values", "is_compared"),
    [
        ({"individual_acks_max": 1_000, "individual_ack_interval_ms": 1_000}, True),
        ({"individual_acks_max": 999}, False),
        ({"individual_ack_interval_ms": 1_001}, False),
        ({"individual_acks_max": "many"}, False),
    ],
)
@pytest.mark.parametrize("place", ["namespace", "topic", "cluster", "setting"])
def test_claims_that_may_be_late_or_incomplete_are_not_compared(
    tmp_path: Path, place: str, values: dict[str, object], is_compared: bool
) -> None:
    for region in TWO:
        claiming(tmp_path, region, 10.0, 2, True)
        (tmp_path / "regions" / region / "region.json").write_text(json.dumps({"settings": {}}))
    keys = {"namespace": SPACE, "topic": TopicPoliciesPath(TOPIC), "cluster": BROKER_POLICIES_PATH}
    if place == "setting":
        (tmp_path / "regions" / "us-west" / "region.json").write_text(json.dumps({"settings": values}))
    else:
        both = (
            {"replication_clusters": TWO, "replicate_individual_acks": True} if place == "namespace" else {}
        )
        receive(tmp_path, "us-east", 20.0, 3, keys[place], json.dumps({"policies": {**both, **values}}))
    assert (changes(tmp_path).individual_acks_since_ms < NEVER_MS) == is_compared


def test_a_topic_with_a_policy_of_its_own_on_individual_acknowledgements_excludes_its_namespace(
    tmp_path: Path,
) -> None:
    for region in TWO:
        claiming(tmp_path, region, 10.0, 2, True)
    claiming(tmp_path, "us-east", 20.0, 3, False, TopicPoliciesPath(TOPIC))
    assert changes(tmp_path).individual_acks_since_ms == NEVER_MS
