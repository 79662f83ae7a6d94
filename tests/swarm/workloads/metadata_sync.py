"""Administrators of several clusters who change the same metadata at the same time (PIP-136).

Namespaces are created and deleted, their policies set and unset, partitioned topics created, grown and deleted: over
HTTP, in any region of 2 to 5 clusters. Meanwhile regions die, links are cut, clocks are wrong or stopped, and
configuration stores are unavailable or lose responses. Each cluster also has a namespace that no other cluster changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from emulator.broker.metadata.store import Metadata
from emulator.core.metadata.event import SyncStamp
from emulator.core.metadata.messages import EventOutbox, Events
from emulator.core.metadata.record import LATEST, DocumentRecord, ElementState
from emulator.errors import StorageError
from emulator.model.stored_keys import PartitionedTopicPath, parse_path
from emulator.net.http import NoHttpResponse
from emulator.simulation.invariant_check import Found
from emulator.simulation.world import NAMESPACE
from emulator.storage.configuration.contract import Conflict
from spark_jobs.evidence.metadata_events import WHOLE, Document
from tests.swarm.checkers.metadata_fold import Folded, fold
from tests.swarm.checkers.stored_metadata import EVENT_TOPIC
from tests.swarm.evidence import Evidence, OperationResult
from tests.swarm.faults import (
    ClockJump,
    ConfigurationAway,
    ConfigurationLosesAnswers,
    Cut,
    Fault,
    Hold,
    Kill,
    Pause,
    PowerOff,
)
from tests.swarm.mutant import part, parts
from tests.swarm.plan import Plan, with_settings
from tests.swarm.workload import Act, ActContext, Workload

NAME = "change-metadata"
WORKLOAD = Workload(NAME)
PUBLISHED_FIRST = "metadata-sync-upstream"
"""Kind of the runs with `metadata_order: upstream`: a change is published before it is stored."""
NAMESPACES = ("public/a", "public/b")
TOPICS = ("one", "two")
POLICIES = {
    "deduplication": ("POST", (True, False)),
    "keepAliveInterval": ("POST", tuple(range(1_000, 30_000, 1_000))),
    "compactionThreshold": ("PUT", tuple(range(100_000, 130_000))),
}
"""Path of a policy -> (HTTP method, possible values)."""
OWN_POLICY, OWN_FIELD = "compactionThreshold", "compaction_threshold"
STOPPED_CLOCK_PPM = -1_000_000.0


@dataclass(frozen=True, slots=True)
class MetadataChangeAct(Act):
    """An administrator's request to change metadata."""

    method: str
    path: str
    """Path below `/admin/v2/`."""
    body: Any = None

    workload: ClassVar[str] = NAME

    async def perform(self, context: ActContext) -> None:
        host, began = context.world.client_host(context.name, self.region), context.now
        about = {"topic": self.path, "detail": "" if self.body is None else repr(self.body)}
        try:
            target = f"/admin/v2/{self.path}"
            answer = await context.world.ask_admin(self.region, self.method, target, self.body, host=host)
        except NoHttpResponse:
            context.note_result("nothing", began=began, **about)
            return
        # After a server error the outcome is unknown: the region may have made the change.
        outcome = {2: "accepted", 4: "refused"}.get(answer.status // 100, "nothing")
        context.note_result(outcome, began=began, **about)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.at_seconds:.2f} s: {self.method} {self.path} {self.body or ''} in {self.region}"


def own_namespace(cluster: str) -> str:
    return f"public/of-{cluster}"


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    topology = with_settings(
        plan.topology,
        configuration_metadata_sync_event_topic=EVENT_TOPIC,
        metadata_sync_hybrid_clocks=random.random() < 0.4,
    )
    clusters = {one.name: [region.name for region in one.regions] for one in topology.clusters}
    acts = [act for cluster in clusters for act in _own_changes(random, plan, cluster, clusters[cluster])]
    acts += [_change(random, plan) for _ in range(random.randint(10, 50))]
    if random.random() < 0.4:
        acts += _concurrent_changes(random, plan, [members[0] for members in clusters.values()])
    faults = [_fault(random, plan, list(clusters)) for _ in range(random.randint(0, 10))]
    return replace(
        plan,
        topology=topology,
        acts=(*plan.acts, *sorted(acts, key=lambda one: one.at_seconds)),
        faults=tuple(sorted((*plan.faults, *faults), key=lambda one: one.at_seconds)),
        clocks=_clocks(random, plan.regions),
    )


def _clocks(random: Random, regions: tuple[str, ...]) -> tuple[tuple[str, float, float], ...]:
    """Draw clocks that are all correct, have different offsets and drifts, or are all stopped, so that all events have
    the same timestamp."""
    kind = random.choice(("right", "wrong", "wrong", "still"))
    if kind == "still":
        return tuple((name, 0.0, STOPPED_CLOCK_PPM) for name in regions)
    offsets = (0.0,) if kind == "right" else (0.0, -3_000.0, -200.0, 200.0, 3_000.0)
    return tuple((name, random.choice(offsets), random.gauss(0, 100)) for name in regions)


def _at(random: Random, plan: Plan) -> float:
    return round(random.uniform(0.5, plan.break_seconds), 3)


def _own_changes(random: Random, plan: Plan, cluster: str, regions: list[str]) -> list[MetadataChangeAct]:
    """Draw changes of the namespace that only this cluster changes, with a different value each."""
    path = f"namespaces/{own_namespace(cluster)}"
    acts = [MetadataChangeAct(0.6, random.choice(regions), "PUT", path)]
    for number in range(random.randint(1, 6)):
        at, region = round(random.uniform(1.2, plan.break_seconds), 3), random.choice(regions)
        unsets = random.random() < 0.2
        call = ("DELETE", None) if unsets else ("PUT", 1_000 + number)
        acts.append(MetadataChangeAct(at, region, call[0], f"{path}/{OWN_POLICY}", call[1]))
    return acts


def _change(random: Random, plan: Plan) -> MetadataChangeAct:
    at, region = _at(random, plan), random.choice(plan.regions)
    namespace = f"namespaces/{random.choice(NAMESPACES)}"
    topic = f"persistent/{NAMESPACE}/{random.choice(TOPICS)}/partitions"
    policy, (method, values) = random.choice(list(POLICIES.items()))
    calls: list[tuple[int, tuple[str, str, Any]]] = [
        (3, ("PUT", namespace, None)),
        (2, ("DELETE", namespace, None)),
        (8, (method, f"{namespace}/{policy}", random.choice(values))),
        (2, ("DELETE", f"{namespace}/{policy}", None)),
        (2, ("PUT", topic, random.randint(1, 4))),
        (2, ("POST", topic, random.randint(2, 8))),
        (1, ("DELETE", topic, None)),
    ]
    method, path, body = random.choices([call for _, call in calls], [weight for weight, _ in calls])[0]
    return MetadataChangeAct(at, region, method, path, body)


def _concurrent_changes(random: Random, plan: Plan, regions: list[str]) -> list[MetadataChangeAct]:
    """Draw moments at which every cluster changes the same policy."""
    path = f"namespaces/{NAMESPACES[0]}"
    acts = [MetadataChangeAct(0.6, regions[0], "PUT", path)]
    for _ in range(random.randint(1, 4)):
        at = _at(random, plan)
        acts += [
            MetadataChangeAct(at, region, "POST", f"{path}/keepAliveInterval", random.randint(1_000, 60_000))
            for region in regions
        ]
    return acts


def _fault(random: Random, plan: Plan, clusters: list[str]) -> Fault:
    at = _at(random, plan)
    lasts = round(min(random.expovariate(1.0) * random.choice((0.3, 1.0, 4.0)), plan.break_seconds), 3)
    region, cluster = random.choice(plan.regions), random.choice(clusters)
    other = random.choice([name for name in plan.regions if name != region])
    one_way = random.random() < 0.3
    kinds: tuple[Fault, ...] = (
        Cut(at, lasts, region, other, one_way),
        Cut(at, lasts, region, other, one_way),
        Hold(at, lasts, region, other, one_way),
        Kill(at, lasts, region),
        Kill(at, round(min(lasts, 0.5), 3), region),
        PowerOff(at, lasts, region),
        Pause(at, lasts, region),
        ClockJump(at, lasts, region, random.choice((-3_000, -200, 200, 3_000))),
        ConfigurationAway(at, lasts, cluster),
        ConfigurationLosesAnswers(at, lasts, cluster, random.choice((0.1, 0.5))),
    )
    return random.choice(kinds)


# INV-51


def _has_metadata(evidence: Evidence) -> bool:
    return evidence.metadata is not None


@WORKLOAD.checker("all-events-received", "INV-51", only_healed=True, applies=_has_metadata)
def all_events_received(evidence: Evidence) -> Found:
    """After healing every cluster has applied all metadata events of the others."""
    if evidence.metadata is None:
        return
    for cluster, other, applied, newest in evidence.metadata.lacking():
        yield (
            f"{cluster} has the metadata events of {other} up to number {applied}; number {newest} exists there",
            {"cluster": cluster, "other": other},
        )


# INV-53


@WORKLOAD.checker("stores-equal-event-fold", "INV-53", only_healed=True, applies=_has_metadata)
def stores_equal_event_fold(evidence: Evidence) -> Found:
    """After healing every cluster's store equals the fold of all events."""
    if evidence.metadata is None:
        return
    folded = fold(evidence.metadata.events)
    for cluster in sorted(evidence.metadata.stores):
        found = evidence.metadata.documents(cluster)
        for path in sorted(folded.keys() | found.keys()):
            stored = _elements(path, found.get(path, {}))
            expected = _elements(path, folded.get(path, Folded()).document())
            if wrong := {name for name in {*stored, *expected} if _differs(name, stored, expected)}:
                yield (
                    f"{path} has {_only(wrong, stored)} in {cluster}; its events give {_only(wrong, expected)}",
                    {"path": path, "cluster": cluster},
                )


def _elements(path: str, document: Document) -> Document:
    """Add empty properties to a partitioned topic without any: no event may have set them."""
    is_partitioned = isinstance(parse_path(path), PartitionedTopicPath)
    return {WHOLE: {}, **document} if document and is_partitioned else document


def _differs(name: str, one: Document, other: Document) -> bool:
    return (name in one) != (name in other) or one.get(name) != other.get(name)


def _only(names: set[str], document: Document) -> dict[str, object]:
    return {name or "exists": document[name] for name in sorted(names) if name in document}


# INV-77


@WORKLOAD.checker("own-changes-persist", "INV-77", only_healed=True, applies=_has_metadata)
def own_changes_persist(evidence: Evidence) -> Found:
    """After healing every cluster has the last value that each owner set in its own namespace. A change with an unknown
    outcome may be the last one, too."""
    if evidence.metadata is None:
        return
    for owner, operations in sorted(_of_owners(evidence).items()):
        path = "namespace/" + own_namespace(owner).replace("/", "%2F")
        allowed = _possibly_last(operations)
        for cluster in sorted(evidence.metadata.stores):
            document = evidence.metadata.documents(cluster).get(path, {})
            value = document.get(f"policies/{OWN_FIELD}")
            stored = "" if value is None else repr(value)
            if stored not in allowed:
                yield (
                    f"{path} has {OWN_FIELD} {stored or 'unset'} in {cluster}; {owner}, which alone changes it, "
                    f"received the response that it is {' or '.join(one or 'unset' for one in sorted(allowed))}",
                    {"path": path, "cluster": cluster, "owner": owner},
                )


def _of_owners(evidence: Evidence) -> dict[str, list[OperationResult]]:
    assert evidence.metadata is not None
    found: dict[str, list[OperationResult]] = defaultdict(list)
    for owner in evidence.metadata.stores:
        path = f"namespaces/{own_namespace(owner)}/{OWN_POLICY}"
        found[owner] = [one for one in evidence.operations if one.topic == path]
    return found


def _possibly_last(operations: list[OperationResult]) -> set[str]:
    """Return the details of the last accepted change, of changes that overlapped with it, and of those with an unknown
    outcome."""
    unknown = {one.detail for one in operations if one.outcome == "nothing"}
    accepted = [one for one in operations if one.outcome == "accepted"]
    if not accepted:
        return unknown | {""}
    latest = max(one.began for one in accepted)
    return unknown | {one.detail for one in accepted if one.ended >= latest}


# Mutants.


def _not_earlier(stamp: SyncStamp, present: ElementState | None, here: str) -> bool:
    return present is None or stamp.reading >= present.stamp.reading


@WORKLOAD.mutant("outbox-in-memory", "INV-51", patch=part("metadata_outbox"))
class _OutboxInMemory(EventOutbox):
    """Unpublished metadata events are only in the memory of the sync leader."""

    def __init__(self, cluster: str, incarnation: str, published: int) -> None:
        super().__init__(cluster, incarnation, published)
        self._stored_at_start: set[SyncStamp] = set()

    def begins_with(self, record: DocumentRecord) -> None:
        self._stored_at_start.update(event.stamp for event in record.events())

    def event_messages(self, records: Iterable[DocumentRecord], settled: int, *how: Any) -> list[Events]:
        seen = [self._without_earlier(record) for record in records]
        newest = max((event.stamp.sequence for record in seen for event in record.events()), default=0)
        return super().event_messages(seen, min(settled, newest), *how)

    def _without_earlier(self, record: DocumentRecord) -> DocumentRecord:
        entries = {
            name: one for name, one in record.entries.items() if one.stamp not in self._stored_at_start
        }
        return DocumentRecord(
            record.path, entries, None if record.deleted in self._stored_at_start else record.deleted
        )


@WORKLOAD.mutant("failed-change-confirmed", "INV-77", patch=part("metadata"))
class _FailedChangeConfirmed(Metadata):
    """A change that the configuration store rejected is confirmed."""

    async def put(self, path: str, value: bytes | None, expected: int | None = None, **how: Any) -> int:
        try:
            return await super().put(path, value, expected, **how)
        except Conflict:
            raise
        except StorageError:
            return self.revision


WORKLOAD.mutant(
    "ties-not-broken",
    "INV-53",
    safeguard="Of two metadata events with the same timestamp the one that arrives last wins.",
)(parts(metadata_rule=replace(LATEST, wins=_not_earlier)))
WORKLOAD.mutant("metadata-deletion-forgotten", "INV-53", safeguard="A cluster forgets metadata deletions.")(
    parts(metadata_rule=replace(LATEST, has_tombstones=False))
)
