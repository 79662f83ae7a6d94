"""The keys of a region's store and the paths of a cluster's configuration store: one table, from which they are built
and parsed.

A key is a kind and its parts, in the order of the fields. Each part is escaped, so no name of a topic or subscription
contains a separator: different keys have different texts, `parse_key(key.text)` is `key` again, and a prefix that ends
in a separator matches whole parts only (D4).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, dataclass_transform

STORE_FORMAT = 2
"""Format of the keys, stored under `FORMAT_KEY`. Format 1 did not escape names and has no `FORMAT_KEY`."""

_ESCAPED = re.compile(r"[%/\x00-\x1f]")
_ESCAPE = re.compile(r"%([0-9A-F]{2})")

KINDS: dict[str, type[StoredKey]] = {}
"""Keys of a region's store, by kind."""
PATHS: dict[str, type[StoredKey]] = {}
"""Paths of a cluster's configuration store, by kind."""


@lru_cache(maxsize=4096)
def _escape(part: str) -> str:
    """Cached, because the same names recur: a cursor's with each write of it."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", part)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


@dataclass_transform(frozen_default=True)
class StoredKey:
    """Base of all kinds. Fields are strings, the parts of the key in their order."""

    KIND: ClassVar[str]
    _PARTS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, kind: str, table: dict[str, type[StoredKey]] = KINDS, **named: Any) -> None:
        super().__init_subclass__(**named)
        dataclass(frozen=True)(cls)
        cls.KIND, cls._PARTS = kind, tuple(cls.__annotations__)
        table[kind] = cls

    @property
    def text(self) -> str:
        """The key as it is stored."""
        parts: list[str] = [getattr(self, name) for name in self._PARTS]
        return "/".join((self.KIND, *map(_escape, parts)))

    @classmethod
    def prefix(cls, *parts: str) -> str:
        """For a scan: the beginning of all keys of this kind with these first parts. Ends in a separator."""
        return "/".join((cls.KIND, *map(_escape, parts), ""))


# The store of a region.


class RegionKey(StoredKey, kind="region"):
    """A fact about the region itself."""

    what: str


class CheckpointKey(StoredKey, kind="topic"):
    """Head of the checkpoint of a topic's state."""

    topic: str


class CheckpointPartKey(StoredKey, kind="topic-part"):
    """What that checkpoint stores of some 4,096 ids."""

    topic: str
    part: str
    """`<ledger id>-<number>`."""


class CursorKey(StoredKey, kind="cursor"):
    """Head of a durable subscription's cursor."""

    topic: str
    subscription: str


class CursorPartKey(StoredKey, kind="cursor-part"):
    """What that cursor stores of some 4,096 ids."""

    topic: str
    subscription: str
    part: str
    """Text of a `core.cursor.stored_format.PartName`: `<generation>-<number>`."""


class PendingAckKey(StoredKey, kind="pending-ack"):
    """What an open transaction acknowledged of some 4,096 ids."""

    topic: str
    subscription: str
    row: str
    """Text of a `core.transactions.pending_ack_rows.RowName`."""


class ProgressKey(StoredKey, kind="replicator"):
    """How far a replicator to another region got."""

    topic: str
    remote: str


class PendingWorkKey(StoredKey, kind="owes"):
    """The topic has pending work although no client uses it."""

    topic: str


class GrantKey(StoredKey, kind="grant"):
    """Exclusive access that one producer was granted."""

    topic: str
    epoch: str
    """Twenty digits: the newest sorts last."""

    @classmethod
    def of(cls, topic: str, epoch: int) -> GrantKey:
        return cls(topic, f"{epoch:020d}")


class CompactionKey(StoredKey, kind="compaction"):
    """Which compacted log of a topic is current."""

    topic: str


class WaitQueueKey(StoredKey, kind="line"):
    """Which producers wait for exclusive access, and since when."""

    topic: str


class TerminatedKey(StoredKey, kind="terminated"):
    """The topic accepts no more messages; its last position."""

    topic: str


class DeletedKey(StoredKey, kind="deleted"):
    """The topic was deleted here, and replication must not create it again."""

    name: str
    """Of a topic; the key outlives the other keys of the topic."""


class TopicPropertiesKey(StoredKey, kind="topic-properties"):
    """Properties that users and tools set on the topic."""

    topic: str


FORMAT_KEY = RegionKey("format")
STARTS_KEY = RegionKey("starts")
"""Number of starts of the region: makes generated producer names unique for ever."""
CONFIGURATION_KEY = RegionKey("configuration")
"""Which configuration store the region used: it refuses to continue with an empty one."""


# The configuration store of a cluster.


class TenantPath(StoredKey, kind="tenant", table=PATHS):
    name: str


class NamespacePath(StoredKey, kind="namespace", table=PATHS):
    name: str
    """`tenant/namespace`."""


class TopicPoliciesPath(StoredKey, kind="topic-policies", table=PATHS):
    topic: str


class RegionTopicPoliciesPath(StoredKey, kind="region-topic-policies", table=PATHS):
    """Topic policies of one region only; they take precedence over `TopicPoliciesPath`."""

    region: str
    topic: str


class PartitionedTopicPath(StoredKey, kind="partitioned-topic", table=PATHS):
    topic: str


class DeletedPartitionedTopicPath(StoredKey, kind="deleted-partitioned-topic", table=PATHS):
    topic: str


class SchemaPath(StoredKey, kind="schema", table=PATHS):
    """One version of the schema of a topic, or of all partitions of one."""

    topic: str
    """`tenant/namespace/topic`: shared by the partitions, and by both domains."""
    version: str
    """Twenty digits: the newest sorts last."""

    @classmethod
    def of(cls, topic: str, version: int) -> SchemaPath:
        return cls(topic, f"{version:020d}")


class BrokerPoliciesPath(StoredKey, kind="broker-policies", table=PATHS):
    of: str


class ClusterPath(StoredKey, kind="cluster", table=PATHS):
    """A cluster that was described by the admin API."""

    name: str


class StoredOnlyPath(StoredKey, kind="kept", table=PATHS):
    """A setting that tools set and read back, and that is not enforced."""

    what: str
    name: str


class SeededPath(StoredKey, kind="seeded", table=PATHS):
    by: str


class SyncRecordPath(StoredKey, kind="sync-record", table=PATHS):
    """Of a document that clusters share: the event that set each element of it."""

    of: str
    """The document's path."""


class SyncStatePath(StoredKey, kind="sync", table=PATHS):
    what: str


class SyncPeerPath(StoredKey, kind="sync-peer", table=PATHS):
    """The last version vector that another cluster reported."""

    cluster: str


class SyncLossPath(StoredKey, kind="sync-loss", table=PATHS):
    """How often another cluster was declared lost, and by whom it is declared lost now."""

    cluster: str


class SyncExcludedPath(StoredKey, kind="sync-excluded", table=PATHS):
    """Which paths another cluster excludes from synchronisation."""

    cluster: str


BROKER_POLICIES_PATH = BrokerPoliciesPath("all")
SYNC_CLOCK_PATH = SyncStatePath("clock")
"""Sequence and clock of the cluster's own events."""
SYNC_APPLIED_PATH = SyncStatePath("applied")
"""How far the cluster has the events of others."""
SYNC_SEEN_TO_PATH = SyncStatePath("seen-to")
"""Which declarations that this cluster is lost it has processed, by the cluster that declared it."""
SYNC_PENDING_PATH = SyncStatePath("drawn")
"""Its own changes that are published before they are applied, and are not applied yet."""
SYNC_LEASE_PATH = SyncStatePath("lease")
"""Which of its regions is the metadata sync leader."""
SYNC_INCOMPLETE_PATH = SyncStatePath("incomplete")
"""Clusters that must still send all events of this cluster's own: a record of it was damaged."""
SEEDED_PATH = SeededPath("topology")
"""Exists once the topology was written into the store: what is deleted afterwards stays deleted."""


def parse_key(text: str) -> StoredKey | None:
    """Inverse of `StoredKey.text` for keys of a region's store. None when no key has this text."""
    return _parse(text, KINDS)


def parse_path(text: str) -> StoredKey | None:
    """Inverse of `StoredKey.text` for paths of the configuration store. None when no path has this text."""
    return _parse(text, PATHS)


def _parse(text: str, kinds: dict[str, type[StoredKey]]) -> StoredKey | None:
    name, *parts = text.split("/")
    kind = kinds.get(name)
    if kind is None or len(parts) != len(kind._PARTS):
        return None
    key = kind(*map(_unescape, parts))
    return key if key.text == text else None


def keys_of_topic(topic: str) -> list[str]:
    """For scans: each key that belongs to a topic begins with one of these. So may keys of topics whose names begin
    alike."""
    kinds = [kind for kind in KINDS.values() if kind._PARTS[0] == "topic"]
    return [kind.prefix(topic) if len(kind._PARTS) > 1 else kind.prefix(topic).rstrip("/") for kind in kinds]
