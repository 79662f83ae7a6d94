"""The rules of metadata sync: whatever the order, the clocks and the links, all clusters converge."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.metadata import messages
from emulator.core.metadata.event import SyncEvent, SyncStamp, document_of, elements_of, is_synced
from emulator.core.metadata.merge import (
    CLOCK_AHEAD_MS_MAX,
    LocalCluster,
    MergeCounts,
    MetadataTransaction,
    Overruled,
)
from emulator.core.metadata.messages import EventOutbox
from emulator.core.metadata.record import UPSTREAM, DocumentRecord, MergeOutcome
from emulator.core.metadata.version_vector import OwnClock, missing, removable_tombstones, vector_of
from emulator.model.stored_keys import (
    SYNC_APPLIED_PATH,
    SYNC_CLOCK_PATH,
    NamespacePath,
    PartitionedTopicPath,
    SyncRecordPath,
    TenantPath,
    parse_path,
)
from emulator.model.values import Change

NAMESPACE = NamespacePath("acme/orders").text


class Rows:
    """A store in memory."""

    def __init__(self) -> None:
        self.values: dict[str, Change] = {}

    def get(self, path: str) -> Change | None:
        return self.values.get(path)

    def put(self, path: str, value: bytes | None) -> None:
        if value is None:
            self.values.pop(path, None)
        else:
            before = self.values.get(path)
            self.values[path] = Change(0, path, value, 0 if before is None else before.version + 1)

    def documents(self) -> dict[str, bytes]:
        return {
            path: one.value for path, one in self.values.items() if is_synced(path) and one.value is not None
        }


class Cluster:
    """One cluster's store, changed by administrators and by events of others; a test sets its clock."""

    def __init__(self, name: str, skew_ms: int = 0, *, hybrid: bool = False, upstream: bool = False) -> None:
        self.rows = Rows()
        self.name = name
        self.skew_ms = skew_ms
        self.now_ms = 0
        self.here = LocalCluster(name, is_hybrid=hybrid, **({"rule": UPSTREAM} if upstream else {}))  # type: ignore[arg-type]

    def _transaction(self) -> MetadataTransaction:
        return MetadataTransaction(self.rows, self.here, max(0, self.now_ms + self.skew_ms), f"{self.name}-1")

    def set(self, path: str, document: Mapping[str, object] | None, *, is_seed: bool = False) -> None:
        before = dict(self.rows.values)
        transaction = self._transaction()
        try:
            value = None if document is None else json.dumps(document).encode()
            transaction.change(path, value, is_seed=is_seed)
        except Overruled:
            self.rows.values = before
            raise
        transaction.finish()

    def policy(self, name: str, value: object, path: str = NAMESPACE) -> None:
        present = self.rows.get(path)
        document = {"policies": {}} if present is None or present.value is None else json.loads(present.value)
        policies = dict(document.get("policies", {}))
        policies.pop(name, None)
        if value is not None:
            policies[name] = value
        self.set(path, {**document, "policies": policies})

    @property
    def clock(self) -> OwnClock:
        stored = self.rows.get(SYNC_CLOCK_PATH.text)
        return OwnClock("none") if stored is None or stored.value is None else OwnClock.decode(stored.value)

    def vector(self) -> dict[str, int]:
        return vector_of(self.rows.get(SYNC_APPLIED_PATH.text), self.clock, self.name)

    def events(self) -> list[SyncEvent]:
        """Return the events of all clusters that are still in effect here."""
        found: list[SyncEvent] = []
        for path, change in self.rows.values.items():
            if path.startswith(SyncRecordPath.prefix()):
                key = parse_path(path)
                assert isinstance(key, SyncRecordPath)
                found += DocumentRecord.decode(key.of, change.value).events()
        return found

    def receive(self, events: list[SyncEvent], upto: Mapping[str, int] | None = None) -> MergeCounts:
        transaction = self._transaction()
        counts = transaction.apply(events)
        transaction.advance(upto or {})
        transaction.finish()
        return counts

    def lets_all_tombstones_go(self) -> None:
        transaction = self._transaction()
        for path in PATHS:
            transaction.remove_tombstones(path, lambda stamp: True)
        transaction.finish()

    def sees_to_its_loss(self, other: Cluster) -> None:
        """Receive everything that the other cluster has, which had declared this one lost."""
        events, has = other.events(), other.vector()
        transaction = self._transaction()
        transaction.apply(events)
        transaction.advance(has)
        for path in PATHS:
            transaction.reconcile(path, {event.stamp for event in events}, has)
        transaction.finish()


def stamp(time_ms: int, source: str, sequence: int = 1) -> SyncStamp:
    return SyncStamp(time_ms, 0, source, sequence, "1")


def policy_event(time_ms: int, source: str, value: object, sequence: int = 1) -> SyncEvent:
    return SyncEvent(NAMESPACE, "policies/deduplication", value, False, stamp(time_ms, source, sequence))


@pytest.fixture
def us() -> Cluster:
    return Cluster("us")


@pytest.fixture
def eu() -> Cluster:
    return Cluster("eu")


def test_of_two_at_the_same_time_the_cluster_that_sorts_first_wins() -> None:
    """The proposal's race: region A and region B at T1."""
    events = [policy_event(1, "B", "b"), policy_event(1, "A", "a")]
    for order in permutations(events):
        record = DocumentRecord(NAMESPACE)
        for event in order:
            record.merge(event, "C", 0)
        assert record.entries["policies/deduplication"].value == "a"


def test_upstream_s_rule_leaves_clusters_different() -> None:
    """The same race leaves two clusters different for ever: this is what the switch demonstrates."""
    kept = {}
    for here, order in (("A", "BA"), ("B", "AB"), ("C", "AB")):
        record = DocumentRecord(NAMESPACE)
        for source in order:
            record.merge(policy_event(1, source, source), here, 1, UPSTREAM)
        kept[here] = record.entries["policies/deduplication"].value
    assert len(set(kept.values())) > 1


def test_two_changes_of_one_cluster_in_one_millisecond_are_ordered() -> None:
    us = Cluster("us")
    us.now_ms = 7
    us.set(NAMESPACE, {"policies": {"deduplication": True}})
    us.policy("deduplication", False)
    eu = Cluster("eu")
    eu.receive(list(reversed(us.events())))
    assert eu.rows.documents() == us.rows.documents()


def test_different_policies_of_one_namespace_are_different_paths(us: Cluster, eu: Cluster) -> None:
    us.now_ms = eu.now_ms = 5
    us.set(NAMESPACE, {"policies": {"deduplication": True}})
    eu.set(NAMESPACE, {"policies": {"replication_clusters": ["us"]}})
    for one, other in ((us, eu), (eu, us)):
        one.receive(other.events())
    document = json.loads(us.rows.documents()[NAMESPACE])
    assert document == {"policies": {"deduplication": True, "replication_clusters": ["us"]}}
    assert eu.rows.documents() == us.rows.documents()


def test_what_was_deleted_is_not_brought_back_by_an_older_event(us: Cluster, eu: Cluster) -> None:
    us.now_ms = 5
    us.set(NAMESPACE, {"policies": {"deduplication": True}})
    old = us.events()
    us.now_ms = 6
    us.set(NAMESPACE, None)
    eu.receive(us.events())
    eu.receive(old)
    assert eu.rows.documents() == {}


def test_a_deletion_reaches_only_what_is_older(us: Cluster, eu: Cluster) -> None:
    """Deleted, created again elsewhere, and the deletion arrives last."""
    us.now_ms = 5
    us.set(NAMESPACE, {"policies": {"deduplication": True, "old": 1}})
    eu.receive(us.events())
    us.now_ms = 6
    us.set(NAMESPACE, None)
    deleted = us.events()
    us.now_ms = 7
    us.set(NAMESPACE, {"policies": {"deduplication": False}})
    again = us.events()
    eu.receive(again)
    eu.receive(deleted)
    assert json.loads(eu.rows.documents()[NAMESPACE]) == {"policies": {"deduplication": False}}


def test_a_seed_overwrites_nothing_and_loses_to_everything(us: Cluster, eu: Cluster) -> None:
    for one in (us, eu):
        one.set(NAMESPACE, {"policies": {"deduplication": one is us}}, is_seed=True)
    assert [event.stamp.time_ms for event in us.events()] == [0, 0]
    us.receive(eu.events())
    eu.receive(us.events())
    assert us.rows.documents() == eu.rows.documents()
    assert json.loads(us.rows.documents()[NAMESPACE]) == {"policies": {"deduplication": False}}, (
        "eu sorts first"
    )


def test_a_change_that_would_be_the_older_one_is_refused_and_nothing_is_changed() -> None:
    fast, slow = Cluster("fast", skew_ms=250), Cluster("slow")
    fast.now_ms = slow.now_ms = 1000
    fast.set(NAMESPACE, {"policies": {"deduplication": True}})
    slow.receive(fast.events())
    slow.now_ms = 1100
    before = slow.rows.documents()
    with pytest.raises(Overruled, match="cluster fast, whose clock was 150 ms ahead"):
        slow.policy("deduplication", False)
    assert slow.rows.documents() == before
    slow.now_ms = 1300
    slow.policy("deduplication", False)
    fast.receive(slow.events())
    assert fast.rows.documents() == slow.rows.documents() != before


def test_hybrid_clocks_put_what_was_known_before_what_followed() -> None:
    fast, slow = Cluster("fast", skew_ms=250, hybrid=True), Cluster("slow", hybrid=True)
    fast.now_ms = slow.now_ms = 1000
    fast.set(NAMESPACE, {"policies": {"deduplication": True}})
    slow.receive(fast.events())
    slow.policy("deduplication", False)
    fast.receive(slow.events())
    assert fast.rows.documents() == slow.rows.documents()
    assert json.loads(fast.rows.documents()[NAMESPACE]) == {"policies": {"deduplication": False}}


def test_a_clock_that_is_set_back_does_not_set_back_a_cluster_s_own_changes() -> None:
    us = Cluster("us")
    us.now_ms = 1000
    us.set(NAMESPACE, {"policies": {"deduplication": True}})
    us.now_ms = 10
    us.policy("deduplication", False)
    assert json.loads(us.rows.documents()[NAMESPACE]) == {"policies": {"deduplication": False}}


def test_what_every_cluster_had_and_removed_does_not_come_back(us: Cluster, eu: Cluster) -> None:
    us.now_ms = 5
    us.set(NAMESPACE, {"policies": {"deduplication": True}})
    old = us.events()
    us.set(NAMESPACE, None)
    eu.receive(us.events(), us.vector())
    eu.rows.put(SyncRecordPath(NAMESPACE).text, None)  # its tombstone is removed
    counts = eu.receive(old)
    assert (counts.won, counts.known) == (0, 2)
    assert eu.rows.documents() == {}


def test_a_tombstone_may_be_removed_when_every_cluster_has_it_and_all_that_was_sent_before_is_here() -> None:
    mine, tombstone = {"a:1": 5, "b:1": 7}, SyncStamp(9, 0, "a", 5, "1")
    assert removable_tombstones(mine, {"b": {"a:1": 5, "b:1": 7}})(tombstone)
    assert not removable_tombstones(mine, {"b": {"a:1": 4, "b:1": 7}})(tombstone), "it does not have it"
    assert not removable_tombstones(mine, {"b": {"a:1": 5, "b:1": 8}})(tombstone), (
        "its event has not arrived yet"
    )
    assert not removable_tombstones(mine, {"b": {"a:1": 5, "b:1": 7}, "c": {}})(tombstone), "never received"


def test_what_is_changed_after_a_tombstone_went_is_later_than_it() -> None:
    """Other clusters may keep their tombstones a while longer."""
    fast, slow = Cluster("fast", skew_ms=500), Cluster("slow")
    fast.set(NAMESPACE, {})
    fast.set(NAMESPACE, None)
    deleted = fast.events()
    slow.receive(deleted)
    transaction = MetadataTransaction(slow.rows, slow.here, 0, "slow-1")
    transaction.remove_tombstones(NAMESPACE, lambda stamp: True)
    transaction.finish()
    assert slow.rows.get(SyncRecordPath(NAMESPACE).text) is None
    slow.set(NAMESPACE, {})
    fast.receive(slow.events())
    assert fast.rows.documents() == slow.rows.documents() == {NAMESPACE: b"{}"}


TOPIC = PartitionedTopicPath("persistent://acme/orders/one").text
PATHS = (NAMESPACE, NamespacePath("acme/bills").text, TenantPath("acme").text, TOPIC)


@pytest.mark.long
@settings(deadline=None, max_examples=150)
@given(st.integers(2, 5), st.integers(0, 2**32), st.booleans())
def test_all_clusters_end_up_with_the_same(count: int, seed: int, hybrid: bool) -> None:
    """Random changes, skewed clocks, and links that deliver a part, duplicates, out of order or nothing, until they
    heal."""
    chance = random.Random(seed)
    skews_ms = (0, 0, -250, 400, FAR_MS)
    clusters = [Cluster(f"c{n}", chance.choice(skews_ms), hybrid=hybrid) for n in range(count)]
    everything: dict[SyncStamp, SyncEvent] = {}
    for step in range(30):
        one = chance.choice(clusters)
        one.now_ms = step * chance.randrange(1, 20)
        try:
            _change(one, chance)
        except Overruled:
            assert not hybrid, "a change made after receiving another gets a later stamp"
        everything |= {event.stamp: event for event in one.events()}
        if chance.random() < 0.5:
            said = chance.choice(clusters).events()
            chance.shuffle(said)
            one.receive(said[: chance.randrange(len(said) + 1)] * chance.choice((1, 2)))
    union = list(everything.values())
    for one in clusters:
        chance.shuffle(union)
        one.receive(union)
    fold = {path: DocumentRecord(path) for path in PATHS}
    for event in union:
        fold[event.path].merge(event, "nobody", 0)
    expected = {path: record.document() for path, record in fold.items() if record.exists}
    for one in clusters:
        assert one.rows.documents() == expected


def _change(one: Cluster, chance: random.Random) -> None:
    path = chance.choice(PATHS)
    match chance.randrange(5):
        case 0:
            one.set(path, None)
        case _ if path == TOPIC:
            present = one.rows.get(TOPIC)
            document = {} if present is None or present.value is None else json.loads(present.value)
            known = document.get("partitions", 0)  # a part of the events may have arrived
            one.set(TOPIC, partitioned(known + chance.randrange(1, 4), {"n": str(chance.randrange(3))}))
        case 1:
            one.set(path, {"policies": {"a": chance.randrange(9)}, "adminRoles": [str(chance.randrange(3))]})
        case 2:
            one.policy(chance.choice("ab"), None, path)
        case _:
            one.policy(chance.choice("abc"), chance.randrange(9), path)


def partitioned(count: int, properties: Mapping[str, str] | None = None) -> Mapping[str, object]:
    return {"partitions": count, "properties": properties or {}}


def partitions(one: Cluster) -> int:
    count = json.loads(one.rows.documents()[TOPIC])["partitions"]
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize("larger_is_later", [False, True])
def test_two_clusters_that_let_a_topic_grow_at_once_end_with_the_larger_number(
    us: Cluster, eu: Cluster, larger_is_later: bool
) -> None:
    us.set(TOPIC, partitioned(2))
    eu.receive(us.events())
    us.now_ms, eu.now_ms = (20, 10) if larger_is_later else (10, 20)
    us.set(TOPIC, partitioned(8, {"by": "us"}))
    eu.set(TOPIC, partitioned(4, {"by": "eu"}))
    theirs, ours = eu.events(), us.events()
    us.receive(theirs)
    eu.receive(ours)
    later = "us" if larger_is_later else "eu"
    assert us.rows.documents() == eu.rows.documents()
    assert json.loads(us.rows.documents()[TOPIC]) == partitioned(8, {"by": later})


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32), st.booleans())
def test_partitions_never_get_fewer_and_none_that_was_acknowledged_is_taken_back(
    seed: int, hybrid: bool
) -> None:
    """INV-80. Clusters grow one topic with wrong clocks, and receive each other's events in any order."""
    chance = random.Random(seed)
    clusters = [Cluster(f"c{n}", chance.choice((0, -250, 400)), hybrid=hybrid) for n in range(3)]
    clusters[0].set(TOPIC, partitioned(1))
    for one in clusters[1:]:
        one.receive(clusters[0].events())
    largest = 1
    for step in range(20):
        one = chance.choice(clusters)
        one.now_ms = step * 10
        before = {cluster.name: partitions(cluster) for cluster in clusters}
        try:
            count = partitions(one) + chance.randrange(3)
            one.set(TOPIC, partitioned(count, {"n": str(chance.randrange(5))}))
            largest = max(largest, count)
        except Overruled:
            assert not hybrid, "a change made after receiving another gets a later stamp"
        said = chance.choice(clusters).events()
        chance.shuffle(said)
        one.receive(said[: chance.randrange(len(said) + 1)])
        assert all(partitions(cluster) >= before[cluster.name] for cluster in clusters)
    everything = [event for one in clusters for event in one.events()]
    for one in clusters:
        chance.shuffle(everything)
        one.receive(everything)
    assert {partitions(one) for one in clusters} == {largest}


def test_a_partitioned_topic_that_was_deleted_and_made_again_may_have_fewer_partitions(
    us: Cluster, eu: Cluster
) -> None:
    us.set(TOPIC, partitioned(8))
    us.now_ms = 10
    us.set(TOPIC, None)
    us.set(TOPIC, partitioned(3))
    eu.receive(us.events())
    assert partitions(us) == partitions(eu) == 3


@pytest.mark.parametrize(
    ("element", "value"),
    [("partitions/4", 5), ("partitions/0", 0), ("partitions/x", "x"), ("partitions/1", True), ("=", [])],
)
def test_what_is_no_number_of_partitions_is_no_event(element: str, value: object) -> None:
    raw = SyncEvent(TOPIC, element, value, False, stamp(1, "us")).to_json()
    with pytest.raises(ValueError, match="partitions"):
        SyncEvent.from_json(raw)


FAR_MS = 7_000_000_000_000
"""A clock that is two centuries ahead."""


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_policy_from_the_far_future_counts_until_it_is_changed(hybrid: bool) -> None:
    """INV-81. Every cluster applies it, and any cluster that has it may replace it."""
    us, eu = Cluster("us", FAR_MS, hybrid=hybrid), Cluster("eu", hybrid=hybrid)
    us.now_ms = eu.now_ms = 1_000_000
    us.policy("deduplication", True)
    eu.receive(us.events())
    eu.policy("deduplication", False)
    us.receive(eu.events())
    assert us.rows.documents() == eu.rows.documents()
    assert json.loads(us.rows.documents()[NAMESPACE])["policies"] == {"deduplication": False}
    eu.policy("other", 1, TenantPath("acme").text)
    assert max(event.stamp.time_ms for event in eu.events() if event.path != NAMESPACE) == 1_000_000


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_document_from_the_far_future_can_be_deleted_and_its_tombstone_stays(hybrid: bool) -> None:
    us, eu = Cluster("us", FAR_MS, hybrid=hybrid), Cluster("eu", hybrid=hybrid)
    us.now_ms = eu.now_ms = 1_000_000
    us.policy("deduplication", True)
    eu.receive(us.events())
    eu.set(NAMESPACE, None)
    us.receive(eu.events())
    assert us.rows.documents() == eu.rows.documents() == {}
    eu.set(NAMESPACE, {"policies": {}})
    us.receive(eu.events())
    assert us.rows.documents() == eu.rows.documents() == {NAMESPACE: b"{}"}


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_cluster_whose_clock_is_corrected_does_not_stay_in_the_future(hybrid: bool) -> None:
    us = Cluster("us", FAR_MS, hybrid=hybrid)
    us.now_ms = 1_000_000
    us.policy("deduplication", True)
    us.skew_ms = 0
    us.policy("deduplication", False)
    us.policy("a", 1, TenantPath("acme").text)
    events = {event.full_path: event.stamp.time_ms for event in us.events()}
    assert json.loads(us.rows.documents()[NAMESPACE])["policies"] == {"deduplication": False}
    assert events[f"{TenantPath('acme').text}/policies/a"] == 1_000_000


def test_within_the_bound_the_older_change_is_refused_as_ever() -> None:
    us, eu = Cluster("us", CLOCK_AHEAD_MS_MAX), Cluster("eu")
    us.policy("deduplication", True)
    eu.receive(us.events())
    with pytest.raises(Overruled, match="300000 ms ahead"):
        eu.policy("deduplication", False)


@pytest.mark.long
@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32), st.booleans())
def test_a_lost_cluster_that_comes_back_ends_with_what_the_others_have(seed: int, hybrid: bool) -> None:
    """INV-82. Two continue without it, and drop their tombstones at different times. It continues alone,
    disconnected."""
    chance = random.Random(seed)
    first, second, lost = clusters = [Cluster(name, hybrid=hybrid) for name in "abc"]
    for step in range(8):
        changed = chance.choice(clusters)
        changed.now_ms = 100 + step
        _change(changed, chance)
        _exchange(clusters)
    for step in range(10):
        for one in clusters:
            one.now_ms = 200 + step
        _change(chance.choice((first, second)), chance)
        _exchange([first, second])
        if chance.random() < 0.3:
            _change(lost, chance)
        if chance.random() < 0.3:
            chance.choice((first, second)).lets_all_tombstones_go()
    lost.sees_to_its_loss(chance.choice((first, second)))
    for _ in range(2):
        _exchange(clusters)
    assert first.rows.documents() == second.rows.documents() == lost.rows.documents()


def _exchange(clusters: list[Cluster]) -> None:
    for one in clusters:
        for other in clusters:
            one.receive(other.events(), other.vector())


def test_of_two_that_forgot_a_deletion_at_different_times_neither_differs_over_a_lost_cluster_s_change() -> (
    None
):
    """By its own stamp the change would win where the tombstone is gone, and lose where it is not."""
    first, second, lost = clusters = [Cluster(name) for name in "abc"]
    first.set(NAMESPACE, {})
    _exchange(clusters)
    for now_ms, one in ((5, lost), (7, first), (9, second)):
        one.now_ms = now_ms
    lost.policy("deduplication", True)
    first.set(NAMESPACE, None)
    _exchange([first, second])
    first.lets_all_tombstones_go()
    second.set(NAMESPACE, {})
    first.receive([event for event in second.events() if not event.is_deleted], second.vector())
    lost.now_ms = 30
    lost.sees_to_its_loss(first)
    _exchange(clusters)
    assert first.rows.documents() == second.rows.documents() == lost.rows.documents()
    assert json.loads(first.rows.documents()[NAMESPACE]) == {"policies": {"deduplication": True}}


def test_what_a_lost_cluster_changed_unseen_counts_as_changed_when_it_came_back() -> None:
    first, lost = Cluster("a"), Cluster("b")
    first.set(NAMESPACE, {})
    first.set(TenantPath("acme").text, {})
    _exchange([first, lost])
    first.now_ms = lost.now_ms = 10
    lost.policy("deduplication", True, TenantPath("acme").text)
    first.set(NAMESPACE, None)
    first.lets_all_tombstones_go()
    assert lost.rows.documents().keys() == {NAMESPACE, TenantPath("acme").text}
    lost.now_ms = 30
    lost.sees_to_its_loss(first)
    _exchange([first, lost])
    assert first.rows.documents() == lost.rows.documents()
    assert first.rows.documents().keys() == {TenantPath("acme").text}
    assert [event.stamp.time_ms for event in first.events() if event.element] == [30]


def test_a_vector_shows_what_is_missing() -> None:
    assert missing({"a:1": 3}, {"a:1": 5, "b:1": 2}) == {"a:1": 5, "b:1": 2}
    assert missing({"a:1": 5, "b:1": 2}, {"a:1": 5}) == {}


def test_documents_and_elements_are_the_same_thing() -> None:
    document = {"policies": {"a/b": 1, "c": None}, "adminRoles": [], "x%": {"policies": 1}}
    elements = elements_of(NAMESPACE, json.dumps(document).encode())
    assert json.loads(document_of(NAMESPACE, elements)) == document
    topic = PartitionedTopicPath("persistent://a/b/c").text
    whole = b'{"partitions": 3, "properties": {}}'
    assert document_of(topic, elements_of(topic, whole)) == whole


MESSAGES: list[messages.Message] = [
    messages.Events(
        "us",
        "1",
        0,
        3,
        (policy_event(1, "us", {"x": [1]}), SyncEvent(NAMESPACE, "", None, True, stamp(2, "us", 2))),
    ),
    messages.VersionReport("us", {"us:1": 3}, asks=True, declared={"eu": 2}),
    messages.VersionReport("us", {"us:1": 3}, excluded=("namespace/acme/", "tenant/test")),
    messages.CatchUpRequest("us", "eu", {"us:1": 3}),
    messages.CatchUpResponse("us", "eu", 4, 0, 2, {"us:1": 3}, (policy_event(1, "eu", None),)),
    messages.CatchUpResponse(
        "us", "eu", 5, 0, 1, {"us:1": 3}, (), is_whole=True, declared=2, seen_to={"eu": 1}
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_as_it_was_written(message: messages.Message) -> None:
    assert messages.decode(messages.encode(message)) == message


def test_options_are_carried_and_an_expected_version_is_not() -> None:
    raw = policy_event(1, "us", {"x": [1]}).to_json()
    read = SyncEvent.from_json({**raw, "options": ["Ephemeral", "Sequential"], "expectedVersion": 7})
    assert read.options == ("Ephemeral", "Sequential")
    assert read.to_json() == {**raw, "options": ["Ephemeral", "Sequential"]}
    for version in (-1, "x", 2**70):
        assert SyncEvent.from_json({**raw, "expectedVersion": version}) == SyncEvent.from_json(raw)


@pytest.mark.parametrize("options", ["Ephemeral", ["Persistent"], [None], {}])
def test_what_is_no_option_is_refused(options: object) -> None:
    raw = policy_event(1, "us", {"x": [1]}).to_json()
    with pytest.raises(ValueError, match="are not some of Ephemeral, Sequential"):
        SyncEvent.from_json({**raw, "options": options})


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_fields_of_a_newer_cluster_are_ignored(message: messages.Message) -> None:
    unknown = {"sinceAnotherVersion": {"deep": [1, "x"]}}
    raw = json.loads(messages.encode(message)) | unknown
    if "events" in raw:
        raw["events"] = [event | unknown for event in raw["events"]]
    assert messages.decode(json.dumps(raw).encode()) == message


def test_a_policy_of_a_newer_cluster_is_stored_as_it_came() -> None:
    value = {"deep": [1, "x"]}
    event = messages.decode(messages.encode(MESSAGES[0])).events[0]  # type: ignore[union-attr]
    raw = event.to_json() | {"path": f"{NAMESPACE}/policies/sinceAnotherVersion", "value": value}
    record = DocumentRecord(NAMESPACE)
    record.merge(SyncEvent(NAMESPACE, "", None, False, stamp(1, "us", 1)), "us", 0)
    assert record.merge(SyncEvent.from_json(raw), "us", 0) is MergeOutcome.WON
    assert elements_of(NAMESPACE, record.document()) == {"policies/sinceAnotherVersion": value}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"version": 2}, "not a pack of this version"),
        ({"kind": "other"}, "kind 'other' is not known"),
        ({"kind": "standing", "vector": {}, "excluded": "all"}, "a list of 1000 at most"),
        ({"kind": "standing", "vector": {}, "excluded": [""]}, "a text of 1 to 4096 characters"),
        ({"source": "a b"}, "not a name of a cluster"),
        ({"source": "eu"}, "eu speaks for us"),
        ({"after": -1}, "after -1 is not a whole number"),
        ({"upto": True}, "upto True is not a whole number"),
        ({"events": {}}, "events must be a list"),
        ({"events": [{"path": "broker-policies/all", "type": "Created"}]}, "not shared by clusters"),
        ({"events": [{"path": NAMESPACE, "type": "Made"}]}, "type 'Made' is none of"),
        ({"events": [{"path": NAMESPACE, "type": "Created"}]}, "sourceCluster"),
    ],
)
def test_what_is_no_pack_is_refused_with_its_rule(change: Mapping[str, object], rule: str) -> None:
    raw = json.loads(messages.encode(MESSAGES[0])) | change
    with pytest.raises(ValueError, match=rule):
        messages.decode(json.dumps(raw).encode())


def test_many_events_travel_in_few_messages() -> None:
    events = [policy_event(1, "us", "v", n + 1) for n in range(10_000)]
    portions = list(messages.portions(events))
    assert [event for portion in portions for event in portion] == events
    assert len(portions) < 20


def test_what_changed_while_packs_were_under_way_is_due_again() -> None:
    outbox, record = EventOutbox("us", "1", published=0), DocumentRecord(NAMESPACE)
    record.merge(policy_event(1, "us", True, 1), "us", 1)
    outbox.noted(record)
    under_way = outbox.event_messages([record], 1)
    record.merge(policy_event(2, "us", False, 2), "us", 2)
    outbox.noted(record)
    outbox.sent(under_way, [record])
    assert [event.value for message in outbox.event_messages([record], 2) for event in message.events] == [
        False
    ]
    assert outbox.due == [NAMESPACE]
    outbox.sent(outbox.event_messages([record], 2), [record])
    assert outbox.due == []


def test_outcomes_are_distinguished() -> None:
    record = DocumentRecord(NAMESPACE)
    assert record.merge(policy_event(2, "us", 1), "us", 0) is MergeOutcome.WON
    assert record.merge(policy_event(2, "us", 1), "us", 0) is MergeOutcome.KNOWN
    assert record.merge(policy_event(1, "us", 0), "us", 0) is MergeOutcome.LOST
    assert [(loser.value, loser.winner) for loser in record.losers] == [(0, stamp(2, "us"))]
    assert DocumentRecord.decode(NAMESPACE, record.encode()) == record
