"""The basic value types of the whole package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args


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
        return self.name.replace("_", " ").title().replace(" ", "")


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

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)")
_PERCENTAGE = re.compile(r"(\d{1,3}(?:\.\d+)?)\s*%")
_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0}


def seconds_in(duration: str) -> float:
    """Return the seconds of a duration like `500ms`, `10s` or `2m`. Raises ValueError for any other text."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError("must be a duration with its unit, like 500ms, 10s or 2m")
    return float(match[1]) * _SECONDS_PER_UNIT[match[2]]


ABSENCE_SECONDS_MAX: Final = 365 * 24 * 3600


def ms_or_never(duration: str) -> int:
    """Return the milliseconds of a duration, at least 1; 0 for an empty text: never. Raises ValueError for any other
    text, 0 and more than a year."""
    if not duration:
        return 0
    seconds = seconds_in(duration)
    if not 0 < seconds <= ABSENCE_SECONDS_MAX:
        raise ValueError("must be longer than 0 and at most a year, or empty: never")
    return max(1, round(seconds * 1000))


_BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB)/s")
_BYTES_PER_UNIT = {"B": 1, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
UNLIMITED = "unlimited"


def bytes_per_second_in(bandwidth: str) -> int | None:
    """Return the bytes per second of a bandwidth like `500KB/s`, at least 1; None for `unlimited`. Raises ValueError
    for any other text."""
    if bandwidth == UNLIMITED:
        return None
    match = _BANDWIDTH.fullmatch(bandwidth)
    found = 0 if match is None else round(float(match[1]) * _BYTES_PER_UNIT[match[2]])
    if not 0 < found < 2**63:
        raise ValueError(
            f"must be a bandwidth above 0 with its unit, like 500KB/s or 1MB/s, or `{UNLIMITED}`"
        )
    return found


def fraction_in(percentage: str) -> float:
    """Return the fraction of a percentage like `50%`. Raises ValueError for any other text."""
    match = _PERCENTAGE.fullmatch(percentage)
    if match is None:
        raise ValueError("must be a percentage, like 50%")
    return float(match[1]) / 100


CLIENTS = "clients"
"""The end of a link that stands for all clients of a region; no region has this name."""
_DRIFT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*ppm")
CLOCK_DRIFT_PPM_MAX: Final = 100_000
"""Maximum drift of a wall clock, a tenth of the elapsed time. Real clocks drift by up to 200 ppm."""


def ppm_in(drift: str) -> float:
    """Return the microseconds per second of a drift like `200ppm` or `-50.5ppm`. Raises ValueError for any other text,
    and for more than CLOCK_DRIFT_PPM_MAX in either direction."""
    match = _DRIFT.fullmatch(drift)
    if match is None:
        raise ValueError("must be a drift with its unit, like 200ppm or -50ppm")
    return checked_drift_ppm(float(match[1]))


def checked_drift_ppm(drift_ppm: float) -> float:
    """Return the drift. Raises ValueError if it is no number from -CLOCK_DRIFT_PPM_MAX to CLOCK_DRIFT_PPM_MAX."""
    is_number = isinstance(drift_ppm, int | float) and not isinstance(drift_ppm, bool)
    if not is_number or not abs(drift_ppm) <= CLOCK_DRIFT_PPM_MAX:
        raise ValueError(f"must be a drift from -{CLOCK_DRIFT_PPM_MAX} to {CLOCK_DRIFT_PPM_MAX} ppm")
    return drift_ppm


DiskState = Literal["healthy", "slow", "full", "failing"]
DISK_STATES: Final[tuple[DiskState, ...]] = get_args(DiskState)
DISK_DELAY_MS: Final = 200.0
"""Default additional duration of a write to a slow disk."""
DISK_DELAY_MS_MAX: Final = 60_000


@dataclass(frozen=True, slots=True)
class DiskCondition:
    """The state of a region's disk. Raises ValueError if the state is unknown or the delay does not fit it."""

    state: DiskState = "healthy"
    """healthy: no fault. slow: a write takes `delay_ms` longer. full: appends and puts fail; reads, trims and deletions
    work. failing: the sync of every write fails, and the write may or may not have been stored."""
    delay_ms: float = 0.0
    """Additional duration of a write to a slow disk, more than 0 and at most DISK_DELAY_MS_MAX; 0 in other states."""

    def __post_init__(self) -> None:
        if self.state not in DISK_STATES:
            raise ValueError(f"state: {repr(self.state)[:100]} is none of {', '.join(DISK_STATES)}")
        delay_ms: object = self.delay_ms
        if not isinstance(delay_ms, int | float) or isinstance(delay_ms, bool):
            raise ValueError(f"delay_ms: {repr(delay_ms)[:100]} is no number")
        if self.state == "slow" and not 0 < delay_ms <= DISK_DELAY_MS_MAX:
            raise ValueError(
                f"delay_ms: {delay_ms:g} must be more than 0 and at most {DISK_DELAY_MS_MAX} for a slow disk"
            )
        if self.state != "slow" and delay_ms != 0:
            raise ValueError(f"delay_ms: {delay_ms:g} requires the state slow, not {self.state}")

    @classmethod
    def of(cls, state: str, delay_ms: float | None = None) -> DiskCondition:
        """Return the condition of a state; without a delay, a slow disk has DISK_DELAY_MS."""
        if delay_ms is None:
            delay_ms = DISK_DELAY_MS if state == "slow" else 0.0
        return cls(state, delay_ms)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"slow, {self.delay_ms:g} ms" if self.state == "slow" else self.state


HEALTHY: Final = DiskCondition()


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """What a region's wall clock was set to by a fault."""

    ahead_ms: int = 0
    """Offset to the true time; negative: behind."""
    drift_ppm: float = 0.0
    """Microseconds that the clock gains per second since then."""

    def __str__(self) -> str:
        how = (
            f"{abs(self.ahead_ms)} ms {'behind' if self.ahead_ms < 0 else 'ahead'}"
            if self.ahead_ms
            else "right"
        )
        return f"{how}, and drifts by {self.drift_ppm:+g} ppm" if self.drift_ppm else how


RIGHT_CLOCK: Final = ClockOffset()

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
_PARTITION = re.compile(r"^(?P<base>.+)-partition-(?P<index>\d+)$")


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
    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Built once: opening a topic needs each of them a dozen times.
        object.__setattr__(self, "full_namespace", f"{self.tenant}/{self.namespace}")
        object.__setattr__(self, "_text", f"{self.domain}://{self.full_namespace}/{self.topic}")

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
        match = _PARTITION.match(self.topic)
        return int(match["index"]) if match else -1

    @property
    def partitioned(self) -> TopicName | None:
        """The partitioned topic, if the name is that of a partition; otherwise None."""
        match = _PARTITION.match(self.topic)
        return replace(self, topic=match["base"]) if match else None

    def __str__(self) -> str:
        return self._text


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
