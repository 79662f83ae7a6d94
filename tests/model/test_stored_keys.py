"""Every stored key is built and read back by one module (D4)."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.model.stored_keys import (
    BROKER_POLICIES_PATH,
    CONFIGURATION_KEY,
    FORMAT_KEY,
    KINDS,
    PATHS,
    SEEDED_PATH,
    STARTS_KEY,
    SYNC_APPLIED_PATH,
    SYNC_CLOCK_PATH,
    SYNC_INCOMPLETE_PATH,
    SYNC_LEASE_PATH,
    SYNC_PENDING_PATH,
    SYNC_SEEN_TO_PATH,
    CheckpointKey,
    CheckpointPartKey,
    ClusterPath,
    CompactionKey,
    CursorKey,
    CursorPartKey,
    DeletedKey,
    DeletedPartitionedTopicPath,
    GrantKey,
    NamespacePath,
    PartitionedTopicPath,
    PendingAckKey,
    PendingWorkKey,
    ProgressKey,
    RegionTopicPoliciesPath,
    SchemaPath,
    StoredKey,
    StoredOnlyPath,
    SyncExcludedPath,
    SyncLossPath,
    SyncPeerPath,
    SyncRecordPath,
    TenantPath,
    TerminatedKey,
    TopicPoliciesPath,
    TopicPropertiesKey,
    WaitQueueKey,
    keys_of_topic,
    parse_key,
    parse_path,
)

NAMES = st.text(st.sampled_from("a/%2F\0:é") | st.characters(exclude_categories=["Cs"]), max_size=8)
KEYS: st.SearchStrategy[StoredKey] = st.sampled_from(sorted(KINDS)).flatmap(
    lambda name: st.tuples(*[NAMES] * len(fields(KINDS[name]))).map(lambda parts: KINDS[name](*parts))
)


@given(KEYS)
def test_a_key_is_read_back_from_its_text(key: StoredKey) -> None:
    assert parse_key(key.text) == key


@given(KEYS)
def test_the_text_of_a_single_part_needs_no_key(key: StoredKey) -> None:
    if len(fields(key)) == 1:  # type: ignore[arg-type]
        (part,) = key.__dict__.values()
        assert type(key).text_of(part) == key.text


@given(KEYS, KEYS)
def test_different_keys_have_different_texts(one: StoredKey, other: StoredKey) -> None:
    assert (one.text == other.text) == (one == other)


@given(NAMES, NAMES, NAMES)
def test_a_prefix_matches_whole_parts_only(topic: str, subscription: str, other: str) -> None:
    prefix = CursorKey.prefix(other)
    assert prefix.endswith("/")
    assert CursorKey(topic, subscription).text.startswith(prefix) == (topic == other)


@given(st.text(st.sampled_from("cursor/topic%2Fabc\0"), max_size=20))
def test_a_text_that_no_key_has_is_no_key(text: str) -> None:
    key = parse_key(text)
    assert key is None or key.text == text


def test_slashes_of_topics_and_subscriptions_do_not_meet() -> None:
    assert CursorKey("orders", "eu/billing").text != CursorKey("orders/eu", "billing").text


def test_keys_are_readable() -> None:
    key = ProgressKey("persistent://public/default/orders", "us-west")
    assert key.text == "replicator/persistent:%2F%2Fpublic%2Fdefault%2Forders/us-west"


NAME = "persistent://acme/a%b/c\n"
ESCAPED = "persistent:%2F%2Facme%2Fa%25b%2Fc%0A"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (FORMAT_KEY, "region/format"),
        (STARTS_KEY, "region/starts"),
        (CONFIGURATION_KEY, "region/configuration"),
        (CheckpointKey(NAME), f"topic/{ESCAPED}"),
        (CheckpointPartKey(NAME, "7-3"), f"topic-part/{ESCAPED}/7-3"),
        (CursorKey(NAME, "a/b"), f"cursor/{ESCAPED}/a%2Fb"),
        (CursorPartKey(NAME, "s", "1-2"), f"cursor-part/{ESCAPED}/s/1-2"),
        (PendingAckKey(NAME, "s", "1_0_2_3"), f"pending-ack/{ESCAPED}/s/1_0_2_3"),
        (ProgressKey(NAME, "eu"), f"replicator/{ESCAPED}/eu"),
        (PendingWorkKey(NAME), f"owes/{ESCAPED}"),
        (GrantKey.of(NAME, 7), f"grant/{ESCAPED}/00000000000000000007"),
        (CompactionKey(NAME), f"compaction/{ESCAPED}"),
        (WaitQueueKey(NAME), f"line/{ESCAPED}"),
        (TopicPropertiesKey(NAME), f"topic-properties/{ESCAPED}"),
        (TerminatedKey(NAME), f"terminated/{ESCAPED}"),
        (DeletedKey(NAME), f"deleted/{ESCAPED}"),
        (TenantPath("acme"), "tenant/acme"),
        (NamespacePath("acme/orders"), "namespace/acme%2Forders"),
        (TopicPoliciesPath(NAME), f"topic-policies/{ESCAPED}"),
        (RegionTopicPoliciesPath("eu", NAME), f"region-topic-policies/eu/{ESCAPED}"),
        (PartitionedTopicPath(NAME), f"partitioned-topic/{ESCAPED}"),
        (DeletedPartitionedTopicPath(NAME), f"deleted-partitioned-topic/{ESCAPED}"),
        (SchemaPath.of("acme/ns/t", 12), "schema/acme%2Fns%2Ft/00000000000000000012"),
        (BROKER_POLICIES_PATH, "broker-policies/all"),
        (ClusterPath("eu"), "cluster/eu"),
        (StoredOnlyPath("permissions", "a/b"), "kept/permissions/a%2Fb"),
        (SEEDED_PATH, "seeded/topology"),
        (SyncRecordPath("namespace/a%2Fb"), "sync-record/namespace%2Fa%252Fb"),
        (SYNC_CLOCK_PATH, "sync/clock"),
        (SYNC_APPLIED_PATH, "sync/applied"),
        (SYNC_SEEN_TO_PATH, "sync/seen-to"),
        (SYNC_PENDING_PATH, "sync/drawn"),
        (SYNC_LEASE_PATH, "sync/lease"),
        (SYNC_INCOMPLETE_PATH, "sync/incomplete"),
        (SyncPeerPath("eu"), "sync-peer/eu"),
        (SyncLossPath("eu"), "sync-loss/eu"),
        (SyncExcludedPath("eu"), "sync-excluded/eu"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, StoredKey) else "",
)
def test_the_stored_text_of_each_kind_stays_as_it_is(key: StoredKey, text: str) -> None:
    assert key.text == text
    assert (parse_path if isinstance(key, tuple(PATHS.values())) else parse_key)(text) == key


def test_keys_of_a_topic_are_found_by_their_beginnings() -> None:
    assert set(keys_of_topic("t/x")) == {
        *("topic/t%2Fx", "topic-part/t%2Fx/", "cursor/t%2Fx/", "cursor-part/t%2Fx/", "pending-ack/t%2Fx/"),
        *("replicator/t%2Fx/", "owes/t%2Fx", "grant/t%2Fx/", "compaction/t%2Fx", "line/t%2Fx"),
        *("terminated/t%2Fx", "topic-properties/t%2Fx"),
    }


def test_keys_are_values() -> None:
    key = CursorKey("t", subscription="s")
    assert key == CursorKey("t", "s")
    assert hash(key) == hash(CursorKey("t", "s"))
    assert key not in (CursorKey("t", "r"), ProgressKey("t", "s"), ("t", "s"))
    assert repr(key) == "CursorKey('t', 's')"
