"""The table of reasons: every sentence by which a region explains why something waits or is as it is.

The producer of a reason is the state machine or the shell that causes the wait. It returns a `Reason` made from a row
of this table. `explain`, the statistics of the admin API and the readiness of a region print that text unchanged.
docs/components/explain.md lists the table.

Rows of one question are in order of precedence: when several causes coincide, the first one is printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, unique
from string import Formatter
from typing import Final, NamedTuple

DETAIL_CHARACTERS_MAX: Final = 500
"""A longer detail is shortened. Some details are text that a remote region sent."""


class Question(Enum):
    """What a reason answers."""

    LINK = "why this region has no link to another region"
    REPLICATION = "why a replicator does not send, or a remote region lacks entries"
    SNAPSHOT = "why a topic has no newer snapshot of replicated subscriptions"
    POSITION = "why the position of a subscription is not sent to other regions"
    DELIVERY = "why messages of a subscription are not consumed"
    TOPIC = "why a topic is not served, or its entries are not in every region"
    VISIBILITY = "why stored messages are not readable yet"
    ACCESS = "why a producer waits for exclusive access"
    METADATA = "why a path of the configuration store has its value, and why it may be older than elsewhere"
    TRANSACTION = "why a transaction has not ended"
    READINESS = "why a region is not ready for clients"


class Row(NamedTuple):
    """One reason. `text` and `ends` name details in braces."""

    question: Question
    text: str
    when: str
    """The condition under which the producer returns it."""
    ends: tuple[str, ...] = ()
    """What removes the cause; empty when it needs no action, or ends by itself within a moment."""


@unique
class Cause(Enum):
    """All reasons. The value of a member is its row."""

    # The link from this region to another one.

    LINK_NOT_TRIED = Row(
        Question.LINK,
        "no connection to {region} has been attempted yet",
        "the region has just started",
        ("region {region} to respond; the connection is retried without limit",),
    )
    LINK_REFUSED = Row(
        Question.LINK,
        "{region} refuses the link: {message}",
        "the remote region answered the newest handshake with an error",
        ("region {region} to accept the link; the connection is retried without limit",),
    )
    LINK_SILENT = Row(
        Question.LINK,
        "{region} does not respond",
        "the remote region sent nothing for `peer_keep_alive_interval_ms`, so this region closed the connection",
        ("region {region} to respond; the connection is retried without limit",),
    )
    LINK_CUT = Row(
        Question.LINK,
        "the link to {region} is cut",
        "a fault cuts the link in one direction or both (`geoemu cut`, a scenario, a test)",
        ("the link to be healed: geoemu heal {here} {region}",),
    )
    LINK_UNREACHABLE = Row(
        Question.LINK,
        "cannot connect to {region}: {failure}",
        "the newest attempt to connect failed",
        ("region {region} to respond; the connection is retried without limit",),
    )
    LINK_LOST = Row(
        Question.LINK,
        "connection to {region} lost: {failure}",
        "the connection ended, and the next attempt to connect has no outcome yet",
        ("region {region} to respond; the connection is retried without limit",),
    )
    LINK_HANDSHAKE = Row(
        Question.LINK,
        "connected to {region}, which has not responded to the handshake yet",
        "the connection is open, the response CONNECTED is missing, and the attempt before was not refused",
        ("region {region} to respond to the handshake",),
    )

    # One replicator.

    NOT_REPLICATED = Row(
        Question.REPLICATION,
        "the topic is not replicated from {here} to {region}: its replication_clusters are {clusters}",
        "`replication_clusters` of the topic or its namespace do not include the remote region",
        ("replication_clusters to include {region}",),
    )
    REPLICATOR_CLOSED = Row(
        Question.REPLICATION,
        "closed",
        "the topic was unloaded, or is not replicated to the remote region any more",
    )
    LINK_DOWN = Row(
        Question.REPLICATION,
        "the link is down",
        "this region has no link to the remote region",
        ("link {here} {region}", "or replication_clusters to leave out {region}"),
    )
    ENTRY_TOO_LARGE = Row(
        Question.REPLICATION,
        "parked: {region} rejects an entry: {position} has {size} bytes, more than the maximum of {limit} there",
        "the next entry does not fit into a frame of the remote region",
        ("max_message_bytes of {region} to be raised, and the link or the topic to be opened again",),
    )
    ENTRY_REFUSED = Row(
        Question.REPLICATION,
        "parked: {region} rejects an entry: {message}",
        "the remote region rejected an entry for good",
        ("{region} to accept the entry, and the link or the topic to be opened again",),
    )
    SCHEMA_REFUSED = Row(
        Question.REPLICATION,
        "held: {region} rejects schema {number} of {topic}: {message}",
        "the remote region rejected the schema of the next entry, or cannot register it now",
        ("{region} to accept the schema",),
    )
    SCHEMA_ASKED = Row(
        Question.REPLICATION,
        "{region} was asked for its version of schema {number}",
        "the remote region has not returned its version of the schema of the next entry yet",
        ("the response of {region}",),
    )
    REPLICATOR_REFUSED = Row(
        Question.REPLICATION,
        "{region} refuses: {message}",
        "the remote region rejected or closed the producer of this replicator; it is requested again after a delay",
        ("the producer at {region}",),
    )
    RECEIPT_OUT_OF_TURN = Row(
        Question.REPLICATION,
        "{region} acknowledged entries out of order",
        "a receipt named another entry than the oldest one in flight; the producer is opened again after a delay",
        ("the producer at {region}",),
    )
    PRODUCER_UNANSWERED = Row(
        Question.REPLICATION,
        "{region} did not respond to the request for a producer within {seconds:g} s; it is sent again",
        "the link is established and the remote region does not respond",
        ("the producer at {region}",),
    )
    REPLICATOR_RESTS = Row(
        Question.REPLICATION,
        "the replicator is idle: no client uses the topic, and {region} has all entries",
        "the topic has been unused for the time in `inactive_topic_policies`; the replicator continues with the "
        "next message",
    )
    PRODUCER_ASKED = Row(
        Question.REPLICATION,
        "{region} has not opened the producer yet",
        "the link is established and the remote region has not responded to the request for a producer",
        ("the producer at {region}",),
    )
    REPLICATION_RATE = Row(
        Question.REPLICATION,
        "replicator_dispatch_rate is exhausted",
        "the rate limit of replicators is exhausted",
        ("the rate limit, in {wait_ms} ms",),
    )
    LINK_FULL = Row(
        Question.REPLICATION,
        "the link's send buffer is full",
        "the connection's send buffer is full",
        ("bytes in flight on the link",),
    )
    READING_STORE = Row(
        Question.REPLICATION,
        "entries are read from the store",
        "the next entries are not in memory",
        ("the store of this region",),
    )
    IN_FLIGHT = Row(
        Question.REPLICATION,
        "entries are in flight",
        "entries were sent and the remote region has not acknowledged them yet",
        ("receipts of {region}",),
    )

    # The newest snapshot of a topic.

    NO_SUBSCRIPTION = Row(
        Question.SNAPSHOT,
        "no subscription is replicated",
        "no subscription of the topic has `replicated` on",
    )
    SNAPSHOT_NO_REMOTES = Row(
        Question.SNAPSHOT,
        "no snapshot: the topic is not replicated to another region",
        "`replication_clusters` of the topic or its namespace contain this region only",
        ("replication_clusters to include another region",),
    )
    SNAPSHOT_NO_MESSAGE = Row(
        Question.SNAPSHOT,
        "no snapshot yet: no message was stored",
        "the topic is empty",
    )
    SNAPSHOT_LINK_TO_DOWN = Row(
        Question.SNAPSHOT,
        "no snapshot: link to {region} is down for {waited}",
        "this region has no link to a region that the topic is replicated to",
        ("link {here} {region}", "or replication_clusters to leave out {region}"),
    )
    SNAPSHOT_LINK_FROM_DOWN = Row(
        Question.SNAPSHOT,
        "no snapshot: link from {region} is down for {waited}",
        "a region that the topic is replicated to has no link to this region",
        ("link {region} {here}", "or replication_clusters to leave out {region}"),
    )
    SNAPSHOT_REPLICATOR_DOWN = Row(
        Question.SNAPSHOT,
        "no snapshot: the replicator from {here} to {region} is not connected for {waited}",
        "the link is established, and the replicator to that region is refused, parked or idle",
        ("the replicator to {region}, as `explain replication` describes it",),
    )
    SNAPSHOT_ONE_WAY = Row(
        Question.SNAPSHOT,
        "no snapshot: {region} has no replicator of the topic to {here} for {waited}",
        "the link from that region is established and no replicator of this topic uses it; usually"
        " `replication_clusters` there leave this region out",
        ("replication_clusters at {region} to include {here}, or those here to leave out {region}",),
    )
    SNAPSHOT_UNANSWERED = Row(
        Question.SNAPSHOT,
        "waiting for the response of {regions} (round {round}) for {waited}",
        "the oldest pending snapshot whose links did not break lacks responses",
        (
            "the response of {regions}",
            "or replication_clusters to leave out the region that does not respond",
        ),
    )
    SNAPSHOT_STORING = Row(
        Question.SNAPSHOT,
        "snapshot {snapshot} is complete; its marker is not stored yet, after {waited}",
        "all responses arrived, and the marker is not durable yet",
        ("the store of this region",),
    )
    SNAPSHOT_NONE_YET = Row(
        Question.SNAPSHOT,
        "no snapshot yet",
        "no snapshot was started since the topic was loaded",
        ("the first snapshot",),
    )
    SNAPSHOT_NOT_DUE = Row(
        Question.SNAPSHOT,
        "the next snapshot is due in {wait_ms} ms (snapshot_interval_ms)",
        "there are messages after the newest snapshot, and the interval since it is not over",
    )
    SNAPSHOT_NOT_NEEDED = Row(
        Question.SNAPSHOT,
        "no newer snapshot needed: no message since the last snapshot",
        "the newest snapshot covers every message",
    )

    # The position of one subscription, as other regions learn it.

    POSITION_NOT_APPLIED_THERE = Row(
        Question.POSITION,
        "{region} does not apply its positions: the subscription is not replicated in {region}",
        "the region has a subscription of that name whose `replicated` is off; `geoemu explain` compares the regions",
        ("replication of the subscription to be turned on in {region}",),
    )
    POSITION_NOT_APPLIED_HERE = Row(
        Question.POSITION,
        "positions of {regions} are not applied here: the subscription is not replicated in {here}",
        "`replicated` is off here, and other regions send their positions of the subscription",
        ("replication of the subscription to be turned on in {here}",),
    )
    SUBSCRIPTION_NOT_REPLICATED = Row(
        Question.POSITION,
        "the subscription is not replicated",
        "the users of this region did not turn `replicated` on for it",
    )
    POSITION_FOLLOWS = Row(
        Question.POSITION,
        "consumers here have acknowledged nothing beyond the position that other regions reported",
        "the position came from another region; it is sent again when consumers of this region move it",
    )
    SNAPSHOT_NOT_REACHED = Row(
        Question.POSITION,
        "mark-delete {mark_delete} has not reached the oldest of {count} known snapshots"
        " (entry {entry}, {distance} entries later)",
        "an entry before the oldest known snapshot is not acknowledged",
        ("acknowledgements up to entry {entry}",),
    )
    UPDATE_WITH_NEXT_MOVE = Row(
        Question.POSITION,
        "the position of the snapshot at entry {entry} is sent with the next mark-delete movement",
        "consumers here acknowledged messages after a gap, after an update had moved mark-delete to a snapshot",
        ("acknowledgement of entry {gap}",),
    )

    # What stands between a subscription's messages and their acknowledgement.

    SEEKING = Row(
        Question.DELIVERY,
        "a seek of the subscription is in progress",
        "the new position is not durable yet",
        ("the store of this region",),
    )
    NO_CONSUMER = Row(
        Question.DELIVERY,
        "no consumer is connected here",
        "messages are not acknowledged and the subscription has no consumer in this region",
        ("a consumer in this region, or in a region that sends its position to this one",),
    )
    SETTLING = Row(
        Question.DELIVERY,
        "a cumulative acknowledgement of a committed transaction is being applied",
        "the transaction is committed and its acknowledgement is not in the cursor yet",
        ("the store of this region",),
    )
    FAILOVER_PAUSE = Row(
        Question.DELIVERY,
        "consumer {consumer!r} has just become active and waits {wait_ms} ms for acknowledgements of its predecessor",
        "the active consumer changed while its predecessor is still connected (`failover_delay_ms`)",
    )
    SUBSCRIPTION_UNACKED_MAX = Row(
        Question.DELIVERY,
        "its consumers hold {unacknowledged} unacknowledged messages, the maximum is {limit}"
        " (max_unacked_messages_per_subscription)",
        "Shared and Key_Shared: all consumers together hold as many messages as the policy allows",
        ("acknowledgements of its consumers",),
    )
    CONSUMER_UNACKED_MAX = Row(
        Question.DELIVERY,
        "{count} wait for consumer {consumer!r}: it holds {unacknowledged} unacknowledged messages, the maximum is"
        " {limit} (max_unacked_messages_per_consumer)",
        "Shared and Key_Shared: the consumer holds as many messages as the policy allows",
        ("acknowledgements of consumer {consumer!r}",),
    )
    WAITS_FOR_CONSUMER = Row(
        Question.DELIVERY,
        "{count} wait for consumer {consumer!r} ({permits} permits, {unacknowledged} unacknowledged)",
        "only that consumer may receive them: it has their keys, or earlier chunks, or is the active one;"
        " and it has no permits",
        ("permits of consumer {consumer!r}",),
    )
    WAITS_FOR_PERMITS = Row(
        Question.DELIVERY,
        "{count} wait for a consumer with permits; {consumer!r} has {permits} permits and {unacknowledged}"
        " unacknowledged messages",
        "Shared and Key_Shared with several consumers: none of them can receive, and the named one has no permits",
        ("permits of any consumer",),
    )
    CONNECTION_FULL = Row(
        Question.DELIVERY,
        "{count} wait for consumer {consumer!r}: its connection's send buffer is full",
        "the send buffer of the consumer's connection is full",
        ("the client of {consumer!r} to read from its connection",),
    )
    KEY_MOVED = Row(
        Question.DELIVERY,
        "{count} wait until consumer {consumer!r} acknowledges earlier messages with their keys",
        "Key_Shared: keys have moved to another consumer, and the former one holds messages of them",
        ("acknowledgements of consumer {consumer!r}",),
    )
    NO_OWNER_OF_KEYS = Row(
        Question.DELIVERY,
        "{count} have keys that no connected consumer accepts",
        "Key_Shared with hash ranges: no consumer has a range with their keys",
        ("a consumer with their hash range",),
    )
    DISPATCH_RATE = Row(
        Question.DELIVERY,
        "{setting} is exhausted",
        "the rate limit of the subscription or topic is exhausted",
        ("the rate limit, in {wait_ms} ms",),
    )
    READING_MESSAGES = Row(
        Question.DELIVERY,
        "messages are read from the store",
        "the next messages are not in memory",
        ("the store of this region",),
    )
    NOT_DUE = Row(
        Question.DELIVERY,
        "{count} are delayed; the first is due in {wait_ms} ms",
        "Shared and Key_Shared: the producer asked for delivery at a later time",
        ("the delivery time of the first of them",),
    )
    NOT_ACKNOWLEDGED = Row(
        Question.DELIVERY,
        "{count} dispatched and not acknowledged",
        "consumers received them",
        ("acknowledgements of its consumers",),
    )
    HELD_BY_TRANSACTION = Row(
        Question.DELIVERY,
        "messages are acknowledged in transaction {transaction}, which is not committed",
        "everything else is acknowledged, and a transaction holds these acknowledgements",
        ("transaction {transaction}",),
    )

    # A topic.

    TOPIC_OPENING = Row(
        Question.TOPIC,
        "being loaded or created",
        "a client or a remote region uses the topic, and its log is being read",
        ("the store",),
    )
    TOPIC_LEAVING = Row(
        Question.TOPIC,
        "closed; writes to the store may be pending",
        "the topic is being unloaded, or its store failed",
        ("the store",),
    )
    TOPIC_DELETING = Row(
        Question.TOPIC,
        "being removed from the store",
        "the topic is being deleted",
        ("the store",),
    )
    REGION_LACKS = Row(
        Question.TOPIC,
        "{region} lacks {backlog}",
        "a region that the topic is replicated to has not confirmed all entries",
        ("replication {topic} {region}",),
    )

    # Transactions that hide messages.

    TRANSACTION_OPEN = Row(
        Question.VISIBILITY,
        "entries from {position} on are not readable ({count} entries): transaction {transaction}{producers}"
        " has been open for {seconds:.1f} s{holder}",
        "a transaction published here and has neither been committed nor aborted",
        ("transaction {transaction}",),
    )

    # Exclusive producers.

    ACCESS_ELSEWHERE = Row(
        Question.ACCESS,
        "{producer!r} waits: clients may publish in {region} only",
        "the policy `exclusive_home` names another region",
        ("the policy exclusive_home to change",),
    )
    ACCESS_KEPT = Row(
        Question.ACCESS,
        "{producer!r} waits: the former owner may reconnect",
        "the topic was loaded again and its owner has `exclusive_patience_ms` to reconnect",
        ("{owner!r} to reconnect, or its time-out (exclusive_patience_ms) to expire",),
    )
    ACCESS_OWNED = Row(
        Question.ACCESS,
        "{producer!r} waits for exclusive access: {owner!r} owns the topic, {published} and its connection"
        " {address} is alive",
        "a producer with exclusive access is open; it counts as open until its client closes it or its connection ends,"
        " even if the program no longer uses it",
        (
            "{owner!r} to close",
            "or its client at {address} to end the connection",
            "or a producer with ExclusiveWithFencing to take the topic",
        ),
    )
    ACCESS_SHARED = Row(
        Question.ACCESS,
        "{producer!r} waits for exclusive access",
        "producers with shared access are open",
        ("shared producers to close: {producers}",),
    )
    ACCESS_CHANGES = Row(
        Question.ACCESS,
        "{producer!r} waits for exclusive access, which is being granted or revoked",
        "the change of the owner is not durable yet",
        ("the store",),
    )

    # The configuration store of a cluster.

    STORE_AWAY = Row(
        Question.METADATA,
        "the value may be outdated: the configuration store is unavailable: {failure}",
        "the region cannot read the configuration store of its cluster",
        ("the configuration store of the cluster",),
    )
    ROW_DAMAGED = Row(
        Question.METADATA,
        "{problem}",
        "a row of metadata sync cannot be decoded and is not replaced yet",
        ("a region of this cluster to replace the row",),
    )
    ROW_REPLACED = Row(
        Question.METADATA,
        "{problem}; the row was replaced at {time}",
        "since the region started, the row or the record of the document was damaged and was replaced",
    )
    PATH_EXCLUDED = Row(
        Question.METADATA,
        "metadata_sync_excluded_paths contains {path}, so the path is local to this cluster{also}",
        "the cluster excludes the path from synchronisation",
    )
    PATH_NOT_COMPARED = Row(
        Question.METADATA,
        "this cluster has not compared the path with other clusters yet",
        "no region of the cluster has recorded the path since it was written",
        ("the metadata sync leader of this cluster",),
    )
    EVENT_APPLIED = Row(
        Question.METADATA,
        "{element} {value} by {event}, applied here at {time}",
        "the event is the newest one for that part of the path",
    )
    EVENT_LOST = Row(
        Question.METADATA,
        "{element}{value} of {event} lost to {winner}",
        "a newer event for that part of the path won; the most recent losses are stored",
    )
    CLUSTER_EXCLUDES = Row(
        Question.METADATA,
        "cluster {cluster} excludes the path (metadata_sync_excluded_paths) and does not receive it",
        "the other cluster has the path in its `metadata_sync_excluded_paths`",
    )
    RECORDS_INCOMPLETE = Row(
        Question.METADATA,
        "a record of this cluster was damaged; cluster {cluster} has not sent its events again",
        "a damaged record was replaced, and another cluster, not declared lost, has not sent its events since",
        ("cluster {cluster} to send all its events",),
    )
    EVENTS_NOT_CARRIED = Row(
        Question.METADATA,
        "this cluster has no metadata sync leader, so {clusters} did not confirm these changes",
        "another cluster has not confirmed an event of the path, and no region here has the lease",
        ("a region of this cluster to become metadata sync leader",),
    )
    EVENT_TOPIC_FAILS = Row(
        Question.METADATA,
        "metadata sync is interrupted, so {clusters} did not confirm these changes: {failure}",
        "another cluster has not confirmed an event of the path, and reading or writing the event topic failed; it "
        "is retried",
        ("the event topic: {failure}",),
    )
    CLUSTERS_BEHIND = Row(
        Question.METADATA,
        "{clusters} did not confirm {count} of these changes",
        "a cluster that is not declared lost has not confirmed an event of the path",
        ("cluster {clusters} to confirm {count} of these changes",),
    )

    # Transactions.

    TRANSACTION_NOT_ENDED = Row(
        Question.TRANSACTION,
        "its client has not ended it",
        "the transaction is open",
        ("its client to end it, or its time-out of {timeout_s:g} s",),
    )
    PARTICIPANT_REFUSED = Row(
        Question.TRANSACTION,
        "{why}; {participant} has not stored the outcome: {failure}",
        "the transaction is decided, and a participant failed to store the outcome; it is retried",
        ("{participant} to store the outcome: {failure}",),
    )
    PARTICIPANTS_PENDING = Row(
        Question.TRANSACTION,
        "{why}; its participants have not confirmed the outcome yet",
        "the transaction is decided, and participants have not confirmed the outcome yet",
        ("the participants of the transaction",),
    )

    KEY_IN_USE = Row(
        Question.TRANSACTION,
        "transaction {transaction} is {status}",
        "a transaction of the key has not ended; the newest ones are listed",
        ("transaction {transaction}",),
    )

    # Readiness.

    READINESS_LINK = Row(
        Question.READINESS,
        "link to {region}: {reason}",
        "a link to a region that is expected to run is not established; the reason is one of the rows for links",
    )

    def __call__(self, **details: object) -> Reason:
        """Return the reason with these details: exactly those that the row names."""
        named = {name for text in (self.value.text, *self.value.ends) for name in _fields(text)}
        if named != details.keys():
            raise TypeError(f"{self.name} has {sorted(named)}, not {sorted(details)}")
        shown = {name: _shown(detail) for name, detail in details.items()}
        return Reason(
            self, self.value.text.format(**shown), tuple(one.format(**shown) for one in self.value.ends)
        )

    @property
    def code(self) -> str:
        """The name of the row in JSON and in the documentation."""
        return self.name.lower().replace("_", "-")


class Reason(str):
    """One sentence of the table. It is empty, and so false, when there is no reason."""

    __slots__ = ("cause", "ends")

    cause: Cause | None
    ends: tuple[str, ...]
    """What removes the cause."""

    def __new__(cls, cause: Cause | None, text: str, ends: tuple[str, ...]) -> Reason:
        made = super().__new__(cls, text)
        made.cause, made.ends = cause, ends
        return made

    @property
    def code(self) -> str:
        """The name of its row; empty when there is no reason."""
        return "" if self.cause is None else self.cause.code

    def __reduce__(self) -> tuple[type[Reason], tuple[Cause | None, str, tuple[str, ...]]]:
        return Reason, (self.cause, str(self), self.ends)


NO_REASON: Final = Reason(None, "", ())
"""Everything is as it should be."""

_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f]+")
_ORDER: Final = {cause: place for place, cause in enumerate(Cause)}


def first_of(reasons: Iterable[Reason]) -> Reason:
    """Return the reason whose row comes first in the table, of several with the same row the first one given."""
    return min(filter(None, reasons), key=lambda one: _ORDER[_cause_of(one)], default=NO_REASON)


def _cause_of(reason: Reason) -> Cause:
    assert reason.cause is not None
    return reason.cause


def rows_of(question: Question) -> list[Cause]:
    """Return the reasons that answer a question, in order of precedence."""
    return [cause for cause in Cause if cause.value.question is question]


def _fields(text: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(text) if name]


def _shown(detail: object) -> object:
    """On one line, and not longer than a line may be."""
    if not isinstance(detail, str):
        return detail
    line = _BREAKS.sub(" ", detail)
    return line if len(line) <= DETAIL_CHARACTERS_MAX else f"{line[:DETAIL_CHARACTERS_MAX]}…"
