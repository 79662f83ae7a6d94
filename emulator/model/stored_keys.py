"""The keys of a region's store and the paths of a cluster's configuration store: how they are built and parsed.

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

_ESCAPED = {ord(one): f"%{ord(one):02X}" for one in ("%", "/", *map(chr, range(0x20)))}
_ESCAPE = re.compile(r"%([0-9A-F]{2})")

KINDS: dict[str, type[StoredKey]] = {}
"""Kind -> class, for keys of a region's store."""
PATHS: dict[str, type[StoredKey]] = {}
"""Kind -> class, for paths of a cluster's configuration store."""


@lru_cache(maxsize=4096)
def _escape(part: str) -> str:
    """Escape one part of a key. Cached, because the same names recur: a cursor's with each write."""
    return part.translate(_ESCAPED)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


@dataclass_transform(frozen_default=True)
class StoredKey:
    """Base of all kinds of keys. The fields are strings: the parts of the key, in order.

    Type checkers treat keys as frozen. At run time only `__init__` is generated for each of the 35 kinds: compiling all
    methods of a frozen dataclass would take a twentieth of the time in which a region starts.
    """

    KIND: ClassVar[str]
    _PARTS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, kind: str, table: dict[str, type[StoredKey]] = KINDS, **named: Any) -> None:
        super().__init_subclass__(**named)
        dataclass(eq=False, repr=False)(cls)
        cls.KIND, cls._PARTS = kind, tuple(cls.__annotations__)
        table[kind] = cls

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((self.KIND, *self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.__dict__.values()))})"

    @property
    def text(self) -> str:
        """The stored text of the key."""
        text = self.KIND
        for part in self.__dict__.values():
            text += "/" + _escape(part)
        return text

    @classmethod
    def text_of(cls, part: str) -> str:
        """Return the stored text of a key with a single part, without creating the key."""
        assert len(cls._PARTS) == 1, cls
        return f"{cls.KIND}/{_escape(part)}"

    @classmethod
    def prefix(cls, *parts: str) -> str:
        """Return the prefix for a scan of all keys of this kind with these first parts. It ends in a separator."""
        text = cls.KIND
        for part in parts:
            text += "/" + _escape(part)
        return text + "/"


# The store of a region.


class RegionKey(StoredKey, kind="region"):
    """A fact about the region itself."""

    what: str


class CheckpointKey(StoredKey, kind="topic"):
    """Head of the checkpoint of a topic's state."""

    topic: str


class CheckpointPartKey(StoredKey, kind="topic-part"):
    """The part of that checkpoint for 4,096 entry ids."""

    topic: str
    part: str
    """`<ledger id>-<number>`."""


class CursorKey(StoredKey, kind="cursor"):
    """Head of a durable subscription's cursor."""

    topic: str
    subscription: str


class CursorPartKey(StoredKey, kind="cursor-part"):
    """The part of that cursor for 4,096 entry ids."""

    topic: str
    subscription: str
    part: str
    """Text of a `core.cursor.stored_format.PartName`: `<generation>-<number>`."""


class PendingAckKey(StoredKey, kind="pending-ack"):
    """The acknowledgements of an open transaction for 4,096 entry ids."""

    topic: str
    subscription: str
    row: str
    """Text of a `core.transactions.pending_ack_rows.RowName`."""


class ProgressKey(StoredKey, kind="replicator"):
    """The progress of a replicator to another region."""

    topic: str
    remote: str


class PendingWorkKey(StoredKey, kind="owes"):
    """Exists if the topic must be loaded after a restart, because it may have entries to replicate (D3)."""

    topic: str


class GrantKey(StoredKey, kind="grant"):
    """Exclusive access that one producer was granted."""

    topic: str
    epoch: str
    """The epoch, in twenty digits, so that the newest sorts last."""

    @classmethod
    def of(cls, topic: str, epoch: int) -> GrantKey:
        return cls(topic, f"{epoch:020d}")


class CompactionKey(StoredKey, kind="compaction"):
    """The name of a topic's current compacted log."""

    topic: str


class WaitQueueKey(StoredKey, kind="line"):
    """The producers that wait for exclusive access, with their times of arrival."""

    topic: str


class TerminatedKey(StoredKey, kind="terminated"):
    """The last position of a topic that accepts no more messages."""

    topic: str


class DeletedKey(StoredKey, kind="deleted"):
    """Exists if the topic was deleted here while other regions still have it: replication must not create it again."""

    name: str
    """Name of the topic; not called `topic`, because the key outlives the other keys of the topic."""


class TopicPropertiesKey(StoredKey, kind="topic-properties"):
    """Properties of the topic that administrators set."""

    topic: str


FORMAT_KEY = RegionKey("format")
STARTS_KEY = RegionKey("starts")
"""Number of starts of the region, which makes generated producer names unique across restarts."""
CONFIGURATION_KEY = RegionKey("configuration")
"""The configuration store that the region has used: the region does not start with an empty one afterwards."""


# The configuration store of a cluster.


class TenantPath(StoredKey, kind="tenant", table=PATHS):
    """Document of a tenant."""

    name: str


class NamespacePath(StoredKey, kind="namespace", table=PATHS):
    """Document of a namespace, with its policies."""

    name: str
    """`tenant/namespace`."""


class TopicPoliciesPath(StoredKey, kind="topic-policies", table=PATHS):
    """Policies of a topic in all regions."""

    topic: str


class RegionTopicPoliciesPath(StoredKey, kind="region-topic-policies", table=PATHS):
    """Topic policies of one region only; they take precedence over `TopicPoliciesPath`."""

    region: str
    topic: str


class PartitionedTopicPath(StoredKey, kind="partitioned-topic", table=PATHS):
    """Metadata of a partitioned topic (`core.partitions.Partitioned`)."""

    topic: str


class DeletedPartitionedTopicPath(StoredKey, kind="deleted-partitioned-topic", table=PATHS):
    """Deletion of a partitioned topic that is in progress."""

    topic: str


class SchemaPath(StoredKey, kind="schema", table=PATHS):
    """One version of the schema of a topic, or of all partitions of one."""

    topic: str
    """`tenant/namespace/topic`: shared by the partitions, and by both domains."""
    version: str
    """The version, in twenty digits, so that the newest sorts last."""

    @classmethod
    def of(cls, topic: str, version: int) -> SchemaPath:
        return cls(topic, f"{version:020d}")


class BrokerPoliciesPath(StoredKey, kind="broker-policies", table=PATHS):
    """Dynamic configuration of all regions."""

    of: str


class ClusterPath(StoredKey, kind="cluster", table=PATHS):
    """A cluster that was described through the admin API."""

    name: str


class RemovedRegionPath(StoredKey, kind="removed-region", table=PATHS):
    """A region that was removed for good: the other regions refuse its links."""

    name: str


class StoredOnlyPath(StoredKey, kind="kept", table=PATHS):
    """A setting that tools set and read, and that is not enforced."""

    what: str
    name: str


class SeededPath(StoredKey, kind="seeded", table=PATHS):
    """Marks that a source of seeds was written into the store."""

    by: str


class SyncRecordPath(StoredKey, kind="sync-record", table=PATHS):
    """The record of a synchronised document (`core.metadata.record`)."""

    of: str
    """Path of the document."""


class SyncStatePath(StoredKey, kind="sync", table=PATHS):
    """A part of the cluster's state of metadata synchronisation."""

    what: str


class SyncPeerPath(StoredKey, kind="sync-peer", table=PATHS):
    """The last version vector that another cluster reported."""

    cluster: str


class SyncLossPath(StoredKey, kind="sync-loss", table=PATHS):
    """How often another cluster was declared lost, and by whom it is declared lost now."""

    cluster: str


class SyncExcludedPath(StoredKey, kind="sync-excluded", table=PATHS):
    """The paths that another cluster excludes from synchronisation."""

    cluster: str


BROKER_POLICIES_PATH = BrokerPoliciesPath("all")
SYNC_CLOCK_PATH = SyncStatePath("clock")
"""Sequence number and clock of the cluster's own events."""
SYNC_APPLIED_PATH = SyncStatePath("applied")
"""Version vector of the applied events of other clusters."""
SYNC_SEEN_TO_PATH = SyncStatePath("seen-to")
"""Declaring cluster -> number of its newest declaration that this cluster is lost which this cluster has processed."""
SYNC_PENDING_PATH = SyncStatePath("drawn")
"""The cluster's own changes that may be published and are not applied yet."""
SYNC_LEASE_PATH = SyncStatePath("lease")
"""The lease of the cluster's metadata sync leader, one of its regions."""
SYNC_INCOMPLETE_PATH = SyncStatePath("incomplete")
"""Clusters that must still send all events that they have, because a record of this cluster was damaged."""
SEEDED_PATH = SeededPath("topology")
"""Exists once the topology was written into the store: later starts do not restore what was deleted since."""


def parse_key(text: str) -> StoredKey | None:
    """Parse a `StoredKey.text` of a region's store. None when no key has this text."""
    return _parse(text, KINDS)


def parse_path(text: str) -> StoredKey | None:
    """Parse a `StoredKey.text` of the configuration store. None when no path has this text."""
    return _parse(text, PATHS)


def _parse(text: str, kinds: dict[str, type[StoredKey]]) -> StoredKey | None:
    name, *parts = text.split("/")
    kind = kinds.get(name)
    if kind is None or len(parts) != len(kind._PARTS):
        return None
    key = kind(*map(_unescape, parts))
    return key if key.text == text else None


def keys_of_topic(topic: str) -> list[str]:
    """Return prefixes for scans: each key of a topic begins with one of them. Keys of other topics, whose names begin
    with this topic's name, may begin with one, too."""
    kinds = [kind for kind in KINDS.values() if kind._PARTS[0] == "topic"]
    return [kind.prefix(topic) if len(kind._PARTS) > 1 else kind.prefix(topic).rstrip("/") for kind in kinds]
