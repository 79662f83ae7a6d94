"""Reasons of subscriptions, topics and exclusive producers."""

from __future__ import annotations

from functools import partial

from emulator.model.reasons.row import Question, ReasonRow

_delivery = partial(ReasonRow, Question.DELIVERY)
_topic = partial(ReasonRow, Question.TOPIC)
_visibility = partial(ReasonRow, Question.VISIBILITY)
_publishing = partial(ReasonRow, Question.PUBLISHING)
_access = partial(ReasonRow, Question.ACCESS)


class TopicCauses:
    """Why messages or producers of a topic wait."""

    # Messages of a subscription that are not acknowledged.

    SEEKING = _delivery(
        "a seek of the subscription is in progress",
        "the new position is not durable yet",
        ("the store of this region",),
    )
    NO_CONSUMER = _delivery(
        "no consumer is connected here",
        "messages are not acknowledged and the subscription has no consumer in this region",
        ("a consumer in this region, or in a region that sends its position to this one",),
    )
    SETTLING = _delivery(
        "a cumulative acknowledgement of a committed transaction is being applied",
        "the transaction is committed and its acknowledgement is not in the cursor yet",
        ("the store of this region",),
    )
    FAILOVER_PAUSE = _delivery(
        "consumer {consumer!r} has just become active and waits {wait_ms} ms for acknowledgements of its predecessor",
        "the active consumer changed while its predecessor is still connected (`failover_delay_ms`)",
    )
    SUBSCRIPTION_UNACKED_MAX = _delivery(
        "its consumers hold {unacknowledged} unacknowledged messages, the maximum is {limit}"
        " (max_unacked_messages_per_subscription)",
        "Shared and Key_Shared: all consumers together hold as many messages as the policy allows",
        ("acknowledgements of its consumers",),
    )
    CONSUMER_UNACKED_MAX = _delivery(
        "{count} wait for consumer {consumer!r}: it holds {unacknowledged} unacknowledged messages, the maximum is"
        " {limit} (max_unacked_messages_per_consumer)",
        "Shared and Key_Shared: the consumer holds as many messages as the policy allows",
        ("acknowledgements of consumer {consumer!r}",),
    )
    WAITS_FOR_CONSUMER = _delivery(
        "{count} wait for consumer {consumer!r} ({permits} permits, {unacknowledged} unacknowledged)",
        "only that consumer may receive them: it has their keys, or earlier chunks, or is the active one;"
        " and it has no permits",
        ("permits of consumer {consumer!r}",),
    )
    WAITS_FOR_PERMITS = _delivery(
        "{count} wait for a consumer with permits; {consumer!r} has {permits} permits and {unacknowledged}"
        " unacknowledged messages",
        "Shared and Key_Shared with several consumers: none of them can receive, and the named one has no permits",
        ("permits of any consumer",),
    )
    CONNECTION_FULL = _delivery(
        "{count} wait for consumer {consumer!r}: its connection's send buffer is full",
        "the send buffer of the consumer's connection is full",
        ("the client of {consumer!r} to read from its connection",),
    )
    KEY_MOVED = _delivery(
        "{count} wait until consumer {consumer!r} acknowledges earlier messages with their keys",
        "Key_Shared: keys have moved to another consumer, and the former one holds messages of them",
        ("acknowledgements of consumer {consumer!r}",),
    )
    NO_OWNER_OF_KEYS = _delivery(
        "{count} have keys that no connected consumer accepts",
        "Key_Shared with hash ranges: no consumer has a range with their keys",
        ("a consumer with their hash range",),
    )
    DISPATCH_RATE = _delivery(
        "{setting} is exhausted",
        "the rate limit of the subscription or topic is exhausted",
        ("the rate limit, in {wait_ms} ms",),
    )
    READING_MESSAGES = _delivery(
        "messages are read from the store",
        "the next messages are not in memory",
        ("the store of this region",),
    )
    NOT_DUE = _delivery(
        "{count} are delayed; the first is due in {wait_ms} ms",
        "Shared and Key_Shared: the producer requested delivery at a later time",
        ("the delivery time of the first of them",),
    )
    NOT_ACKNOWLEDGED = _delivery(
        "{count} dispatched and not acknowledged",
        "consumers received them",
        ("acknowledgements of its consumers",),
    )
    HELD_BY_TRANSACTION = _delivery(
        "messages are acknowledged in transaction {transaction}, which is not committed",
        "everything else is acknowledged, and a transaction holds these acknowledgements",
        ("transaction {transaction}",),
    )

    # A topic.

    TOPIC_OPENING = _topic(
        "being loaded or created",
        "a client or a remote region uses the topic, and its log is being read",
        ("the store",),
    )
    TOPIC_LEAVING = _topic(
        "closed; writes to the store may be pending",
        "the topic is being unloaded, or its store failed",
        ("the store",),
    )
    TOPIC_DELETING = _topic("being removed from the store", "the topic is being deleted", ("the store",))
    REGION_LACKS = _topic(
        "{region} lacks {backlog}",
        "a region that the topic is replicated to has not confirmed all entries",
        ("replication {topic} {region}",),
    )

    # Transactions that hide messages.

    TRANSACTION_OPEN = _visibility(
        "entries from {position} on are not readable ({count} entries): transaction {transaction}{producers}"
        " has been open for {seconds:.1f} s{holder}",
        "a transaction published here and has neither been committed nor aborted",
        ("transaction {transaction}",),
    )

    # Limits of publishing clients.

    QUOTA_EXCEEDED = _publishing(
        "producers of clients are refused: {message}",
        "a backlog quota with `producer_request_hold` or `producer_exception` is exceeded; other regions still"
        " replicate to the topic",
        ("the backlog to shrink, or the backlog quota to be raised or removed",),
    )
    PUBLISH_RATE = _publishing(
        "publish_rate is exhausted",
        "the broker does not read from clients that publish to the topic; other regions still replicate to it",
        ("the rate limit, in {wait_ms} ms",),
    )
    CLIENT_MEMORY = _publishing(
        "clients hold {held_bytes:,} bytes, and the region does not read from those that hold the most",
        "the clients of the region exceeded `clients_bytes_max`; other regions still replicate to the topic",
        ("half of clients_bytes_max to be free",),
    )

    DISK_SLOW = _publishing(
        "{count} wait for the disk of {region}, which is slow: a write takes up to {delay_ms:g} ms longer",
        "`geoemu disk` made the disk slow, and appends of the topic are not durable yet",
        ("the next sync of the disk",),
    )
    DISK_FULL = _publishing(
        "publishes fail: the disk of {region} is full",
        "`geoemu disk` made the disk full; producers wait and send again, and no publish is acknowledged",
        ("the disk to have room: geoemu disk {region} healthy",),
    )
    DISK_FAILING = _publishing(
        "publishes fail: the disk of {region} does not sync, and a topic whose append failed is not loaded again",
        "`geoemu disk` made the disk failing; producers wait and send again, and no publish is acknowledged",
        ("the disk to sync again: geoemu disk {region} healthy",),
    )

    # Exclusive producers.

    ACCESS_ELSEWHERE = _access(
        "{producer!r} waits: clients may publish in {region} only",
        "the policy `exclusive_home` names another region",
        ("the policy exclusive_home to change",),
    )
    ACCESS_KEPT = _access(
        "{producer!r} waits: the former owner may reconnect",
        "the topic was loaded again and its owner has `exclusive_grace_period_ms` to reconnect",
        ("{owner!r} to reconnect, or its time-out (exclusive_grace_period_ms) to expire",),
    )
    ACCESS_OWNED = _access(
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
    ACCESS_SHARED = _access(
        "{producer!r} waits for exclusive access",
        "producers with shared access are open",
        ("shared producers to close: {producers}",),
    )
    ACCESS_CHANGES = _access(
        "{producer!r} waits for exclusive access, which is being granted or revoked",
        "the change of the owner is not durable yet",
        ("the store",),
    )
