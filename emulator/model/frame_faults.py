"""Faults of single frames on a link: which command or marker is dropped, delayed, duplicated or reordered.

`FrameFault` is the one place that validates such a fault; scenarios, commands, the Python API and admin ports create it
and report its error. `broker.links.frame_faults` applies armed faults to the frames of connections.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final

from emulator.model.suggestions import nearest

COUNT_MAX: Final = 1_000_000
DELAY_MS_MAX: Final = 3_600_000


class FrameAction(StrEnum):
    """What happens to a frame; the value is the verb."""

    DROP = "drop"
    DELAY = "delay"
    DUPLICATE = "duplicate"
    REORDER = "reorder"


class Sender(Enum):
    """The side of a connection between regions that sends a command."""

    CONNECTING = "the region that opened the connection, whose replicators send"
    ACCEPTING = "the region that accepted the connection, which responds"


MARKERS: Final = {
    "snapshot_request": 10,
    "snapshot_response": 11,
    "subscription_update": 13,
}
"""Name -> type of the markers that cross links. They travel in SEND frames, and have these names instead of `send`."""
LOCAL_MARKERS: Final = {"snapshot": 12, "txn_commit": 21, "txn_abort": 22}
"""Name -> type of the markers that are never replicated."""

BETWEEN_REGIONS: Final = {
    "connect": Sender.CONNECTING,
    "auth_challenge": Sender.ACCEPTING,
    "auth_response": Sender.CONNECTING,
    "connected": Sender.ACCEPTING,
    "producer": Sender.CONNECTING,
    "producer_success": Sender.ACCEPTING,
    "send": Sender.CONNECTING,
    "send_receipt": Sender.ACCEPTING,
    "send_error": Sender.ACCEPTING,
    "close_producer": Sender.ACCEPTING,
    "success": Sender.ACCEPTING,
    "error": Sender.ACCEPTING,
    "ping": Sender.CONNECTING,
    "pong": Sender.ACCEPTING,
    "partitioned_metadata": Sender.CONNECTING,
    "partitioned_metadata_response": Sender.ACCEPTING,
    "get_or_create_schema": Sender.CONNECTING,
    "get_or_create_schema_response": Sender.ACCEPTING,
    **dict.fromkeys(MARKERS, Sender.CONNECTING),
}
"""Name -> sender, for every command and marker that replication between regions uses. A fault counts the frames of one
side only: both sides may send `close_producer`, `ping` and `pong`, and those of the side named here are meant."""

CLIENT_COMMANDS: Final = (
    "ack",
    "ack_response",
    "active_consumer_change",
    "add_partition_to_txn",
    "add_partition_to_txn_response",
    "add_subscription_to_txn",
    "add_subscription_to_txn_response",
    "close_consumer",
    "consumer_stats",
    "consumer_stats_response",
    "end_txn",
    "end_txn_on_partition",
    "end_txn_on_partition_response",
    "end_txn_on_subscription",
    "end_txn_on_subscription_response",
    "end_txn_response",
    "flow",
    "get_last_message_id",
    "get_last_message_id_response",
    "get_schema",
    "get_schema_response",
    "get_topics_of_namespace",
    "get_topics_of_namespace_response",
    "lookup",
    "lookup_response",
    "message",
    "new_txn",
    "new_txn_response",
    "reached_end_of_topic",
    "redeliver_unacknowledged_messages",
    "seek",
    "subscribe",
    "tc_client_connect_request",
    "tc_client_connect_response",
    "topic_migrated",
    "unsubscribe",
    "watch_topic_list",
    "watch_topic_list_close",
    "watch_topic_list_success",
    "watch_topic_update",
)
"""Commands that only clients exchange with their region."""

COMMANDS: Final = (*(name for name in BETWEEN_REGIONS if name not in MARKERS), *CLIENT_COMMANDS)
"""Every command of the protocol, in lower case."""


@dataclass(frozen=True, slots=True)
class FrameFault:
    """A fault of frames on one direction of a link. Raises ValueError for a value out of range."""

    action: FrameAction
    what: str
    """Name of a command or marker."""
    count: int = 1
    """Number of matching frames on which the fault acts, in a row; 1 to COUNT_MAX."""
    nth: int = 1
    """The fault acts first on the n-th matching frame after it was armed; 1 to COUNT_MAX."""
    by_ms: float = 0.0
    """Delay in milliseconds, up to DELAY_MS_MAX; more than 0 if and only if the action is DELAY. Later frames of the
    connection overtake the delayed one."""
    number: int = 0
    """Distinguishes faults that are otherwise equal, so that a fault is armed once if it is received twice."""

    def __post_init__(self) -> None:
        if not isinstance(self.action, FrameAction):
            raise ValueError(
                f"action: {self.action!r} is none of {', '.join(one.value for one in FrameAction)}"
            )
        _check_name(self.what)
        _check_range("count", self.count, COUNT_MAX)
        _check_range("nth", self.nth, COUNT_MAX)
        is_delay = self.action is FrameAction.DELAY
        if not _is_number(self.by_ms) or not (
            0 < self.by_ms <= DELAY_MS_MAX if is_delay else self.by_ms == 0
        ):
            rule = (
                f"a delay needs a time up to {DELAY_MS_MAX:,} ms" if is_delay else "only a delay has a time"
            )
            raise ValueError(f"by: {self.by_ms!r} ms: {rule}")
        if type(self.number) is not int or self.number < 0:
            raise ValueError(f"number: {self.number!r} is not a whole number, 0 or more")

    @classmethod
    def from_json(cls, raw: Any) -> FrameFault:
        """Parse the fields of a fault. Raises ValueError for anything else."""
        if not isinstance(raw, dict) or not raw.keys() <= _FIELDS or not raw.keys() >= {"action", "what"}:
            raise ValueError(
                "a fault has the fields action and what, and may have count, nth, by_ms and number"
            )
        try:
            action = FrameAction(raw["action"])
        except ValueError:
            verbs = ", ".join(one.value for one in FrameAction)
            raise ValueError(f"action: {raw['action']!r} is none of {verbs}") from None
        return cls(**{**raw, "action": action})

    @property
    def words(self) -> str:
        """What is affected: `2 send_receipt, from number 3 on`."""
        by = f" by {self.by_ms:g} ms" if self.by_ms else ""
        start = f", from number {self.nth} on" if self.nth > 1 else ""
        return f"{self.count} {self.what}{by}{start}"

    def __str__(self) -> str:
        return f"{self.action.value} {self.words}"


_FIELDS: Final = frozenset(FrameFault.__dataclass_fields__)


def check_link_of(fault: FrameFault, *, clients: bool) -> None:
    """Raise ValueError if frames of this name never pass the link: one between regions, or (`clients`) one between
    clients and their region."""
    if not clients and fault.what not in BETWEEN_REGIONS:
        raise ValueError(
            f"what: {fault.what} is a command of clients; between regions there are "
            f"{', '.join(sorted(BETWEEN_REGIONS))}"
        )
    if clients and fault.what in MARKERS:
        raise ValueError(f"what: {fault.what} is a marker, which clients neither send nor receive")


def _check_name(what: object) -> None:
    if what in LOCAL_MARKERS:
        raise ValueError(f"what: a {what} marker stays in the log of its own region and never passes a link")
    known = (*COMMANDS, *MARKERS)
    if what in known:
        return
    near = nearest(what, known) if isinstance(what, str) else None
    hint = f"do you mean {near}?" if near else f"known are {', '.join(sorted(known))}"
    raise ValueError(f"what: {what!r} is no command or marker; {hint}")


def _check_range(field: str, value: object, highest: int) -> None:
    if type(value) is not int or not 1 <= value <= highest:
        raise ValueError(f"{field}: {value!r} is not a whole number from 1 to {highest:,}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
