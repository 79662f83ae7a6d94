"""Which regions had to replicate what and when: policies that changed during a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from emulator.model.stored_keys import (
    NamespacePath,
    RegionTopicPoliciesPath,
    StoredKey,
    SyncExcludedPath,
    TopicPoliciesPath,
)
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.sources.lifetimes import Lifetime
from spark_jobs.sources.policy_changes import NEVER_MS, SETTLING_MS, Owed, PolicyHistory, read_changes
from spark_jobs.sources.run_folder import Namespace, open_run_folder
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.sample_run import TOPIC, SampleRun

SPACE = NamespacePath("public/default")
ALL = ["us-east", "us-west", "eu-central"]
TWO = ALL[:2]


def tell(
    run: Path, region: str, *told: tuple[float, int, Sequence[str] | None], key: StoredKey = SPACE
) -> None:
    """Write changes of a policy: time, revision, and the regions; None: the policy was removed."""
    folder = run / "regions" / region
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metadata.jsonl").open("a") as file:
        for at_ms, revision, clusters in told:
            policies = {"policies": {"replication_clusters": clusters, "deduplication": True}}
            value = None if clusters is None else json.dumps(policies)
            line = {"at_ms": at_ms, "region": region, "revision": revision, "path": key.text, "value": value}
            file.write(json.dumps(line) + "\n")


def changes(run: Path) -> PolicyHistory:
    found, unreadable = read_changes(run)
    assert unreadable == []
    return found["public/default"]


def test_what_holds_from_the_beginning_to_the_end_is_no_change(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, ALL))
    assert changes(tmp_path) == PolicyHistory(Owed(frozenset(ALL)), True)


def test_what_is_no_policy_may_have_any_form(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, ALL))
    line = {"at_ms": 20.0, "region": "us-east", "revision": 3, "path": SyncExcludedPath("europe").text}
    with (tmp_path / "regions" / "us-east" / "metadata.jsonl").open("a") as file:
        file.write(json.dumps({**line, "value": "[]"}) + "\n")
    assert changes(tmp_path) == PolicyHistory(Owed(frozenset(ALL)), True)


def test_a_region_that_is_added_is_owed_what_is_published_once_everybody_knows(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, TWO), (5000.0, 7, ALL))
    tell(tmp_path, "eu-central", (10.0, 2, TWO), (6000.0, 9, ALL))
    since = changes(tmp_path).owed.since_ms
    assert since["us-east", "eu-central"] == since["eu-central", "us-west"] == 6000.0 + SETTLING_MS
    assert ("us-east", "us-west") not in since


def test_a_region_that_is_taken_out_is_owed_nothing(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, ALL), (5000.0, 7, TWO))
    assert changes(tmp_path).owed.since_ms["us-east", "eu-central"] == NEVER_MS
    assert changes(tmp_path).owed.regions == set(ALL)


def test_one_that_starts_again_is_told_everything_again_and_nothing_changes(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, TWO), (5000.0, 7, ALL), (9000.0, 7, ALL))
    assert changes(tmp_path).owed.since_ms["us-east", "eu-central"] == 5000.0 + SETTLING_MS


def test_a_namespace_that_is_deleted_owes_nothing(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, TWO), (5000.0, 7, None))
    assert changes(tmp_path).owed.since_ms["us-east", "us-west"] == NEVER_MS
    assert not changes(tmp_path).deduplication


def test_a_topic_with_clusters_of_its_own_owes_by_these_and_others_do_not(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, ALL))
    tell(tmp_path, "us-east", (20.0, 3, TWO), key=TopicPoliciesPath(TOPIC))
    found = changes(tmp_path)
    assert found.own_topics[TOPIC].since_ms["us-east", "eu-central"] == NEVER_MS
    assert ("us-east", "us-west") not in found.own_topics[TOPIC].since_ms
    assert found.owed.since_ms == {}


def test_a_topic_whose_clusters_are_unset_owes_by_its_namespace_again(tmp_path: Path) -> None:
    topic = TopicPoliciesPath(TOPIC)
    tell(tmp_path, "us-east", (10.0, 2, ALL))
    tell(tmp_path, "us-east", (2000.0, 3, TWO), (7000.0, 4, None), key=topic)
    tell(tmp_path, "us-west", (10.0, 2, ALL))
    tell(tmp_path, "us-west", (2500.0, 3, TWO), (7500.0, 4, None), key=topic)
    assert changes(tmp_path).own_topics[TOPIC] == Owed(
        frozenset(ALL),
        {pair: 7500.0 + SETTLING_MS for pair in permutations(sorted(ALL), 2) if "eu-central" in pair},
    )


def test_clusters_that_a_topic_sets_for_one_region_are_that_region_s(tmp_path: Path) -> None:
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
    assert found.owed.regions == set(TWO)
    assert found.own_topics[TOPIC].since_ms["us-west", "eu-central"] == 4000.0 + SETTLING_MS


def test_a_line_that_is_cut_off_is_passed_over_and_one_that_is_damaged_is_told(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, ALL))
    file = tmp_path / "regions" / "us-east" / "metadata.jsonl"
    file.write_text(file.read_text() + '{"at_ms":1')
    assert changes(tmp_path).owed.regions == set(ALL)
    file.write_text('{"at_ms":1\n' + file.read_text())
    ((region, sentence),) = read_changes(tmp_path)[1]
    assert region == "us-east"
    assert sentence.startswith("regions/us-east/metadata.jsonl cannot be read")


def test_a_namespace_made_while_the_run_went_on_is_one_of_the_run(tmp_path: Path) -> None:
    tell(tmp_path, "us-east", (10.0, 2, TWO), key=NamespacePath("public/new"))
    assert open_run_folder(tmp_path).namespaces["public/new"] == Namespace(("us-east", "us-west"), True)


def replicated_otherwise(engine: QueryEngine, tmp_path: Path, *, late_to: list[str]) -> Evaluation:
    """eu-central is added at 5 s. A message at 1 s is in two regions, one at 8 s in `late_to`, one at 9 s in all."""
    sample = SampleRun()
    sample.subscribe("us-west", 0.1)
    for number, (at_s, to) in enumerate([(1.0, TWO), (8.0, late_to), (9.0, ALL)]):
        sample.publish("us-east", number, at_s, to=to)
        sample.receive("us-west", "us-east", number, at_s + 0.05, number)
    run = sample.write(tmp_path / "run")
    for region in ALL:
        tell(run, region, (sample.time_ms(0), 2, TWO), (sample.time_ms(5), 7, ALL))
    return evaluate_run(engine, run)


def test_what_was_published_before_a_region_was_added_is_not_missing_there(
    engine: QueryEngine, tmp_path: Path
) -> None:
    evaluation = replicated_otherwise(engine, tmp_path, late_to=ALL)
    assert evaluation.verdict == "valid"
    whole = next(check for check in evaluation.checks if check.name == "evidence-complete")
    assert "The replication of public/default changed during the run" in whole.sentence


def test_what_was_published_afterwards_is(engine: QueryEngine, tmp_path: Path) -> None:
    evaluation = replicated_otherwise(engine, tmp_path, late_to=TWO)
    assert evaluation.verdict == "invalid"
    replicated = next(check for check in evaluation.checks if check.name == "replicated-exactly-once")
    assert [(one["region"], one["sequence_id"]) for one in replicated.witness] == [("eu-central", 1)]


def with_topic_clusters(
    engine: QueryEngine, tmp_path: Path, *, early_to: list[str], late_to: list[str]
) -> Evaluation:
    """The topic removes eu-central at 5 s; its namespace does not. A message at 1 s, one at 8 s."""
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


def test_what_a_topic_does_not_owe_is_not_missing(engine: QueryEngine, tmp_path: Path) -> None:
    evaluation = with_topic_clusters(engine, tmp_path, early_to=ALL, late_to=TWO)
    assert evaluation.verdict == "valid"
    whole = next(check for check in evaluation.checks if check.name == "evidence-complete")
    assert f"Replication clusters of their own: {TOPIC}." in whole.sentence


def test_what_a_topic_owes_is_missing(engine: QueryEngine, tmp_path: Path) -> None:
    evaluation = with_topic_clusters(engine, tmp_path, early_to=ALL, late_to=["us-east"])
    assert evaluation.verdict == "invalid"
    replicated = next(check for check in evaluation.checks if check.name == "replicated-exactly-once")
    assert {(one["region"], one["sequence_id"]) for one in replicated.witness} == {("us-west", 1)}


def test_what_a_policy_ever_let_go_is_no_proof(tmp_path: Path) -> None:
    """Also when the policy was removed again, and when a topic had it."""

    def said(revision: int, key: StoredKey, policies: dict[str, object]) -> None:
        folder = tmp_path / "regions" / "us-east"
        folder.mkdir(parents=True, exist_ok=True)
        value = json.dumps({"policies": policies})
        line = {
            "at_ms": revision,
            "region": "us-east",
            "revision": revision,
            "path": key.text,
            "value": value,
        }
        with (folder / "metadata.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    keeps = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    said(1, SPACE, {"replication_clusters": ALL, "retention": keeps})
    assert changes(tmp_path).lifetime == Lifetime()
    said(2, SPACE, {"replication_clusters": ALL, "retention": {**keeps, "retentionSizeInMB": 5}})
    said(3, SPACE, {"replication_clusters": ALL, "message_ttl": 60})
    said(4, SPACE, {"replication_clusters": ALL})
    assert changes(tmp_path).lifetime == Lifetime(trims=True, expires_after_ms=60_000.0)
    evict = {"limitSize": 9, "limitTime": -1, "policy": "consumer_backlog_eviction"}
    hold = {"limitSize": 9, "limitTime": -1, "policy": "producer_request_hold"}
    said(5, TopicPoliciesPath(TOPIC), {"backlog_quotas": {"destination_storage": hold}})
    assert changes(tmp_path).own_lifetimes == {}
    said(6, TopicPoliciesPath(TOPIC), {"backlog_quotas": {"destination_storage": evict}})
    assert changes(tmp_path).own_lifetimes == {TOPIC: Lifetime(expires_after_ms=0.0)}
