"""The keys of a region's store: the one place that builds them and reads them back.

    region/<what>                       facts about the region itself
    topic/<topic>                       head of the checkpoint of a topic's state
    topic-part/<topic>/<ledger>-<number>
                                        what that checkpoint says of some 4,096 ids
    cursor/<topic>/<subscription>       head of a durable subscription's cursor
    cursor-part/<topic>/<subscription>/<generation>-<number>
                                        what that cursor says of some 4,096 ids
    pending-ack/<topic>/<subscription>/<row>
                                        what an open transaction acknowledged of some 4,096 ids
    replicator/<topic>/<remote>         how far a replicator to another region got
    owes/<topic>                        the topic has work to do although nobody uses it
    grant/<topic>/<epoch>               exclusive access that one producer was given
    topic-properties/<topic>            notes of people and tools on the topic
    compaction/<topic>                  which compacted log of a topic counts
    line/<topic>                        who waits for exclusive access, and since when
    terminated/<topic>                  the topic takes no more messages; its last position
    deleted/<topic>                     somebody deleted it here, and another region must not bring it back

A key is a kind and its parts. Each part is escaped, so no name of a topic or subscription contains a separator:
different keys have different texts, `parse_key(key.text)` is `key` again, and a prefix that ends in a separator
matches whole parts only (D4).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import ClassVar

STORE_FORMAT = 2
"""What the keys look like, stored under `FORMAT_KEY`. Format 1 did not escape names, and said nothing of itself."""

_ESCAPED = re.compile(r"[%/\x00-\x1f]")
_ESCAPE = re.compile(r"%([0-9A-F]{2})")


@lru_cache(maxsize=4096)
def _escape(part: str) -> str:
    """Names come again and again: a cursor's with each write of it."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", part)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """Base of all kinds. Fields are strings, the parts of the key in their order."""

    KIND: ClassVar[str]

    @property
    def text(self) -> str:
        """What the store is told."""
        names: tuple[str, ...] = self.__slots__
        parts: list[str] = [getattr(self, name) for name in names]
        return "/".join((self.KIND, *map(_escape, parts)))

    @classmethod
    def prefix(cls, *parts: str) -> str:
        """For a scan: what all keys of this kind begin with whose first parts are these. Ends in a separator."""
        return "/".join((cls.KIND, *map(_escape, parts), ""))


@dataclass(frozen=True, slots=True)
class RegionKey(StoredKey):
    KIND: ClassVar[str] = "region"

    what: str


@dataclass(frozen=True, slots=True)
class CheckpointKey(StoredKey):
    KIND: ClassVar[str] = "topic"

    topic: str


@dataclass(frozen=True, slots=True)
class CheckpointPartKey(StoredKey):
    KIND: ClassVar[str] = "topic-part"

    topic: str
    part: str
    """`<ledger id>-<number>`."""


@dataclass(frozen=True, slots=True)
class CursorKey(StoredKey):
    KIND: ClassVar[str] = "cursor"

    topic: str
    subscription: str


@dataclass(frozen=True, slots=True)
class CursorPartKey(StoredKey):
    KIND: ClassVar[str] = "cursor-part"

    topic: str
    subscription: str
    part: str
    """Text of a `core.cursor_parts.PartName`."""


@dataclass(frozen=True, slots=True)
class PendingAckKey(StoredKey):
    KIND: ClassVar[str] = "pending-ack"

    topic: str
    subscription: str
    row: str
    """Text of a `core.transactions.pending_rows.RowName`."""


@dataclass(frozen=True, slots=True)
class ProgressKey(StoredKey):
    KIND: ClassVar[str] = "replicator"

    topic: str
    remote: str


@dataclass(frozen=True, slots=True)
class OwesKey(StoredKey):
    KIND: ClassVar[str] = "owes"

    topic: str


@dataclass(frozen=True, slots=True)
class GrantKey(StoredKey):
    KIND: ClassVar[str] = "grant"

    topic: str
    epoch: str
    """Twenty digits: the newest sorts last."""

    @classmethod
    def of(cls, topic: str, epoch: int) -> GrantKey:
        return cls(topic, f"{epoch:020d}")


@dataclass(frozen=True, slots=True)
class CompactionKey(StoredKey):
    KIND: ClassVar[str] = "compaction"

    topic: str


@dataclass(frozen=True, slots=True)
class LineKey(StoredKey):
    KIND: ClassVar[str] = "line"

    topic: str


@dataclass(frozen=True, slots=True)
class TopicPropertiesKey(StoredKey):
    KIND: ClassVar[str] = "topic-properties"

    topic: str


@dataclass(frozen=True, slots=True)
class TerminatedKey(StoredKey):
    KIND: ClassVar[str] = "terminated"

    topic: str


@dataclass(frozen=True, slots=True)
class DeletedKey(StoredKey):
    KIND: ClassVar[str] = "deleted"

    name: str
    """Of a topic; it outlives what belongs to it."""


FORMAT_KEY = RegionKey("format")
STARTS_KEY = RegionKey("starts")
"""How often the region was started: makes generated producer names unique for ever."""
CONFIGURATION_KEY = RegionKey("configuration")
"""Which configuration store the region used: it does not go on with an empty one."""

KINDS: dict[str, type[StoredKey]] = {
    kind.KIND: kind
    for kind in (
        RegionKey,
        CheckpointKey,
        CheckpointPartKey,
        CursorKey,
        CursorPartKey,
        PendingAckKey,
        ProgressKey,
        OwesKey,
        GrantKey,
        CompactionKey,
        LineKey,
        TerminatedKey,
        DeletedKey,
        TopicPropertiesKey,
    )
}


# Paths of a cluster's configuration store, by the same rules.


@dataclass(frozen=True, slots=True)
class TenantPath(StoredKey):
    KIND: ClassVar[str] = "tenant"

    name: str


@dataclass(frozen=True, slots=True)
class NamespacePath(StoredKey):
    KIND: ClassVar[str] = "namespace"

    name: str
    """`tenant/namespace`."""


@dataclass(frozen=True, slots=True)
class TopicPoliciesPath(StoredKey):
    KIND: ClassVar[str] = "topic-policies"

    topic: str


@dataclass(frozen=True, slots=True)
class RegionTopicPoliciesPath(StoredKey):
    """What one region alone is told of a topic; it outranks what all of them are."""

    KIND: ClassVar[str] = "region-topic-policies"

    region: str
    topic: str


@dataclass(frozen=True, slots=True)
class PartitionedTopicPath(StoredKey):
    KIND: ClassVar[str] = "partitioned-topic"

    topic: str


@dataclass(frozen=True, slots=True)
class DeletedPartitionedTopicPath(StoredKey):
    KIND: ClassVar[str] = "deleted-partitioned-topic"

    topic: str


@dataclass(frozen=True, slots=True)
class SchemaPath(StoredKey):
    """One version of the schema of a topic, or of all partitions of one."""

    KIND: ClassVar[str] = "schema"

    topic: str
    """`tenant/namespace/topic`: partitions share, and so do domains."""
    version: str
    """Twenty digits: the newest sorts last."""

    @classmethod
    def of(cls, topic: str, version: int) -> SchemaPath:
        return cls(topic, f"{version:020d}")


@dataclass(frozen=True, slots=True)
class BrokerPoliciesPath(StoredKey):
    KIND: ClassVar[str] = "broker-policies"

    of: str


@dataclass(frozen=True, slots=True)
class ClusterPath(StoredKey):
    """A cluster that somebody described by the admin API."""

    KIND: ClassVar[str] = "cluster"

    name: str


@dataclass(frozen=True, slots=True)
class KeptPath(StoredKey):
    """What tools may set and read back, and nothing acts upon."""

    KIND: ClassVar[str] = "kept"

    what: str
    name: str


@dataclass(frozen=True, slots=True)
class SeededPath(StoredKey):
    KIND: ClassVar[str] = "seeded"

    by: str


@dataclass(frozen=True, slots=True)
class SyncRecordPath(StoredKey):
    """Of a document that clusters share: which event made each element of it what it is."""

    KIND: ClassVar[str] = "sync-record"

    of: str
    """The document's path."""


@dataclass(frozen=True, slots=True)
class SyncStatePath(StoredKey):
    KIND: ClassVar[str] = "sync"

    what: str


@dataclass(frozen=True, slots=True)
class SyncPeerPath(StoredKey):
    """What another cluster said last of what it has."""

    KIND: ClassVar[str] = "sync-peer"

    cluster: str


@dataclass(frozen=True, slots=True)
class SyncLossPath(StoredKey):
    """How often another cluster was declared lost, and by whom it is."""

    KIND: ClassVar[str] = "sync-loss"

    cluster: str


@dataclass(frozen=True, slots=True)
class SyncExcludedPath(StoredKey):
    """Which paths another cluster said that it keeps to itself."""

    KIND: ClassVar[str] = "sync-excluded"

    cluster: str


BROKER_POLICIES_PATH = BrokerPoliciesPath("all")
SYNC_CLOCK_PATH = SyncStatePath("clock")
"""Numbers and times that the cluster gave its own events."""
SYNC_APPLIED_PATH = SyncStatePath("applied")
"""How far it has the events of others."""
SYNC_SEEN_TO_PATH = SyncStatePath("seen-to")
"""Which declarations that this cluster is lost it has seen to, by the cluster that declared it."""
SYNC_DRAWN_PATH = SyncStatePath("drawn")
"""Its own changes that are published before they are made, and are not made yet."""
SYNC_LEASE_PATH = SyncStatePath("lease")
"""Which of its regions carries the events."""
SYNC_INCOMPLETE_PATH = SyncStatePath("incomplete")
"""Clusters that are still to be asked for all events of this cluster's own: a record of it was damaged."""
SEEDED_PATH = SeededPath("topology")
"""Exists once the topology was written into the store: what is deleted afterwards stays deleted."""

PATHS: dict[str, type[StoredKey]] = {
    kind.KIND: kind
    for kind in (
        TenantPath,
        NamespacePath,
        TopicPoliciesPath,
        RegionTopicPoliciesPath,
        PartitionedTopicPath,
        DeletedPartitionedTopicPath,
        SchemaPath,
        BrokerPoliciesPath,
        ClusterPath,
        KeptPath,
        SeededPath,
        SyncRecordPath,
        SyncStatePath,
        SyncPeerPath,
        SyncLossPath,
        SyncExcludedPath,
    )
}


def parse_path(text: str) -> StoredKey | None:
    """Inverse of `StoredKey.text` for paths. None: no path of ours has this text."""
    return _parse(text, PATHS)


def keys_of_topic(topic: str) -> list[str]:
    """For scans: each key that belongs to a topic begins with one of these. Keys of topics whose names begin alike may
    do so too."""
    kinds = [kind for kind in KINDS.values() if fields(kind)[0].name == "topic"]
    return [kind.prefix(topic) if len(fields(kind)) > 1 else kind.prefix(topic).rstrip("/") for kind in kinds]


def parse_key(text: str) -> StoredKey | None:
    """Inverse of `StoredKey.text`. None: no key of ours has this text."""
    return _parse(text, KINDS)


def _parse(text: str, kinds: dict[str, type[StoredKey]]) -> StoredKey | None:
    name, *parts = text.split("/")
    kind = kinds.get(name)
    if kind is None or len(parts) != len(kind.__slots__):
        return None
    key = kind(*map(_unescape, parts))
    return key if key.text == text else None
