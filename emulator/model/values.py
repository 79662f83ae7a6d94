"""The basic value types of the whole package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple


class Position(NamedTuple):
    """The position of an entry in one region's log of one topic: (ledger, entry).

    Positions of one topic in one region are totally ordered and only grow. Positions in different regions are not
    comparable (PIP-33 solves this problem).
    """

    ledger: int
    entry: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse `"<ledger>:<entry>"`. Raises ValueError for any other text."""
        ledger, _, entry = text.partition(":")
        return cls(int(ledger), int(entry))


class AccessMode(IntEnum):
    """Access mode of a producer (PIP-68); numbers are the protocol's."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3

    @property
    def label(self) -> str:
        """Name of the mode in Pulsar: `WaitForExclusive`."""
        return _ACCESS_MODE_LABELS[self]


_ACCESS_MODE_LABELS: Final = {
    mode: mode.name.replace("_", " ").title().replace(" ", "") for mode in AccessMode
}


class SchemaType(IntEnum):
    """The type of a schema; names are the admin API's, numbers the protocol's."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21
    """Type for a consumer that accepts any schema of the topic."""
    EXTERNAL = 22


class Schema(NamedTuple):
    """The schema of a producer's or consumer's messages. The format of `data` depends on the type."""

    type: SchemaType
    data: bytes = b""
    properties: Mapping[str, str] = {}


class MessageChunk(NamedTuple):
    """The chunk of a message that an entry contains."""

    of: str
    """Name of the chunked message, equal for all its chunks. Two messages have different names."""
    is_last: bool


class KeyedMessage(NamedTuple):
    """The fields of one message that compaction reads."""

    key: str | None
    deletes: bool
    """Whether the payload is null or empty, which deletes the key."""
    is_gone: bool = False
    """Whether an earlier compaction removed the message and left only its index in the batch."""


class KeyedEntry(NamedTuple):
    """The fields of one entry that compaction reads."""

    messages: tuple[KeyedMessage, ...] | None
    """Messages in the order of the batch; None: the entry cannot be parsed."""
    chunk: MessageChunk | None = None


class Change(NamedTuple):
    """A change of a configuration store."""

    revision: int
    """Revision of the whole store, which grows by one with each change."""
    path: str
    value: bytes | None
    """New value; None: the path was deleted."""
    version: int
    """Version of the path: 0 for its first value; -1: it was deleted."""


BEFORE_EVERYTHING = Position(-1, -1)
"""Pulsar's MessageId.earliest."""
AFTER_EVERYTHING = Position(2**63 - 1, 2**63 - 1)
"""Pulsar's MessageId.latest."""
SOURCE_POSITION_PROPERTY = "__MSG_PROP_REPL_SOURCE_POSITION"
"""Property of a replicated entry: its position in its origin's log, as "ledger:entry"."""


CLIENTS = "clients"
"""The end of a link that stands for all clients of a region; no region has this name."""


PERSISTENT, NON_PERSISTENT = "persistent", "non-persistent"
"""Domains of topics."""
_NAME = re.compile(r"[-=:.\w]+")
"""Pulsar's rule for names of tenants, namespaces and clusters."""
PARTITIONS_MAX = 10_000
"""Maximum number of partitions of a topic; each has its own log. Larger numbers are mistakes or attacks."""
REMEMBERED_MAX: Final = 1_024
"""Maximum number of remembered names of topics: opening a topic parses its name several times."""
REMEMBERED_LENGTH_MAX: Final = 512
"""Maximum length of a remembered name: a client may send longer ones, which must not use memory permanently."""
_PARTITION_MARK: Final = "-partition-"
"""Part of the name of each partition. Most topics are no partitions, and a search for this costs much less than a
regular expression."""
_PARTITION = re.compile(rf"^(?P<base>.+){_PARTITION_MARK}(?P<index>\d{{1,9}})$")
"""The name of a partition. One with a longer number is an ordinary topic, as in Pulsar: an index has 32 bits."""


def is_valid_name(text: str) -> bool:
    """Whether `text` may name a tenant, namespace, cluster or region."""
    return bool(_NAME.fullmatch(text))


@dataclass(frozen=True, slots=True)
class TopicName:
    """The name of a topic or partition; its text is the full form `persistent://tenant/namespace/topic`."""

    domain: str
    tenant: str
    namespace: str
    topic: str
    full_namespace: str = field(init=False, repr=False, compare=False)
    """`tenant/namespace`."""
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Built once: opening a topic needs each of them a dozen times.
        object.__setattr__(self, "full_namespace", f"{self.tenant}/{self.namespace}")
        object.__setattr__(self, "text", f"{self.domain}://{self.full_namespace}/{self.topic}")

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parse the full form, or `topic` (in public/default) or `tenant/namespace/topic`, which are persistent. Raises
        ValueError, naming the violated rule."""
        return _parse_remembered(text) if len(text) <= REMEMBERED_LENGTH_MAX else cls._parse(text)

    @classmethod
    def _parse(cls, text: str) -> TopicName:
        domain, separator, rest = text.partition("://")
        if not separator:
            domain, rest = PERSISTENT, text
        if domain not in (PERSISTENT, NON_PERSISTENT):
            raise ValueError(f"topic {text!r}: domain must be persistent or non-persistent, not {domain!r}")
        parts = rest.split("/", 2)
        if len(parts) == 1 and not separator:
            parts = ["public", "default", rest]
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"topic {text!r}: must be [persistent://tenant/namespace/]topic")
        for part in parts[:2]:
            if not is_valid_name(part):
                raise ValueError(f"topic {text!r}: {part!r} is not a valid tenant or namespace name")
        return cls(domain, *parts)

    @property
    def is_persistent(self) -> bool:
        """Whether the topic's messages are stored."""
        return self.domain == PERSISTENT

    @property
    def partition_index(self) -> int:
        """Index of this partition; -1: the topic is no partition."""
        if _PARTITION_MARK not in self.topic:
            return -1
        match = _PARTITION.match(self.topic)
        return int(match["index"]) if match else -1

    @property
    def partitioned(self) -> TopicName | None:
        """The partitioned topic, if the name is that of a partition; otherwise None. Not built in advance: clients
        choose names, and that of a partition may itself end like one, any number of times."""
        if _PARTITION_MARK not in self.topic:
            return None
        match = _PARTITION.match(self.topic)
        return replace(self, topic=match["base"]) if match else None

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=REMEMBERED_MAX)
def _parse_remembered(text: str) -> TopicName:
    return TopicName._parse(text)


# Replicated subscriptions (PIP-33): values of the settings and policies with these names.

SNAPSHOT_SCHEDULES: Final = ("periodic", "adaptive")
"""Values of `snapshot_schedule`; the first is the default."""
SUBSCRIPTION_REPLICATION_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "snapshot_interval_ms": (20, 3_600_000),
    "snapshot_timeout_ms": (100, 3_600_000),
    "snapshot_timeout_growth_max": (1, 8),
    "snapshot_cache_size": (10, 100),
    "individual_ack_interval_ms": (10, 3_600_000),
    "individual_acks_max": (1, 100_000),
}
"""Setting or policy -> its minimum and maximum."""
