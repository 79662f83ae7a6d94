"""Reasons of links, replicators, snapshots and replicated positions."""

from __future__ import annotations

from functools import partial

from emulator.model.reasons.row import Question, ReasonRow

_link = partial(ReasonRow, Question.LINK)
_replication = partial(ReasonRow, Question.REPLICATION)
_snapshot = partial(ReasonRow, Question.SNAPSHOT)
_position = partial(ReasonRow, Question.POSITION)
_failover = partial(ReasonRow, Question.FAILOVER)


class ReplicationCauses:
    """Why messages or positions do not reach another region."""

    # The link from this region to another one.

    LINK_NOT_TRIED = _link(
        "no connection to {region} has been attempted yet",
        "the region has just started",
        ("region {region} to respond; the connection is retried without limit",),
    )
    LINK_REMOVED = _link(
        "{region} was removed at {time}: no region connects to it, and its links are refused",
        "an administrator removed the region (`geoemu region remove`)",
        ("the removal of {region} to be revoked (DELETE /geoemu/v1/removed-regions/{region})",),
    )
    LINK_REFUSED = _link(
        "{region} refuses the link: {message}",
        "the remote region answered the newest handshake with an error",
        ("region {region} to accept the link; the connection is retried without limit",),
    )
    LINK_TLS_FAILED = _link(
        "no TLS connection to {region}: {failure}",
        "this region does not accept the certificate of the remote region, or the remote region does not accept the"
        " certificate of this one",
        (
            "valid certificates of both regions, of an authority that both trust, for the host name of the link",
        ),
    )
    LINK_SILENT = _link(
        "{region} does not respond",
        "the remote region sent nothing for one `peer_keep_alive_interval_ms`, or several after earlier losses, so this"
        " region closed the connection",
        ("region {region} to respond; the connection is retried without limit",),
    )
    LINK_UNFINISHED = _link(
        "{region} did not complete the handshake within {seconds:g} s",
        "the connection was open and CONNECTED was missing for that time, so this region closed the connection",
        ("region {region} to respond to the handshake; the connection is retried without limit",),
    )
    LINK_CUT = _link(
        "the link to {region} is cut",
        "a fault cuts the link in one direction or both (`geoemu cut`, a scenario, a test)",
        ("the link to be healed: geoemu heal {here} {region}",),
    )
    LINK_UNREACHABLE = _link(
        "cannot connect to {region}: {failure}",
        "the newest attempt to connect failed",
        ("region {region} to respond; the connection is retried without limit",),
    )
    LINK_LOST = _link(
        "connection to {region} lost: {failure}",
        "the connection ended, and the next attempt to connect has no outcome yet",
        ("region {region} to respond; the connection is retried without limit",),
    )
    LINK_HANDSHAKE = _link(
        "connected to {region}, which has not responded to the handshake yet",
        "the connection is open, the response CONNECTED is missing, and the attempt before was not refused",
        ("region {region} to respond to the handshake",),
    )

    # One replicator.

    NOT_REPLICATED = _replication(
        "the topic is not replicated from {here} to {region}: its replication_clusters are {clusters}",
        "`replication_clusters` of the topic or its namespace lack the remote region or this one",
        ("replication_clusters to include {region}",),
    )
    REPLICATOR_CLOSED = _replication(
        "closed", "the topic was unloaded, or is not replicated to the remote region any more"
    )
    LINK_DOWN = _replication(
        "the link is down",
        "this region has no link to the remote region",
        ("link {here} {region}", "or replication_clusters to leave out {region}"),
    )
    ENTRY_TOO_LARGE = _replication(
        "parked: {region} rejects an entry: {position} has {size} bytes, more than the maximum of {limit} there",
        "the next entry does not fit into a frame of the remote region",
        ("max_message_bytes of {region} to be raised, and the link or the topic to be opened again",),
    )
    ENTRY_REFUSED = _replication(
        "parked: {region} rejects an entry: {message}",
        "the remote region rejected an entry with NotAllowedError",
        ("{region} to accept the entry, and the link or the topic to be opened again",),
    )
    SCHEMA_REFUSED = _replication(
        "held: {region} rejects schema {number} of {topic}: {message}",
        "the remote region rejected the schema of the next entry, or cannot register it now",
        ("{region} to accept the schema",),
    )
    SCHEMA_ASKED = _replication(
        "{region} was asked for its version of schema {number}",
        "the remote region has not returned its version of the schema of the next entry yet",
        ("the response of {region}",),
    )
    REPLICATOR_REFUSED = _replication(
        "{region} refuses: {message}",
        "the remote region rejected or closed the producer of this replicator; it is requested again after a delay",
        ("the producer at {region}",),
    )
    RECEIPT_OUT_OF_TURN = _replication(
        "{region} acknowledged entries out of order",
        "a receipt named another entry than the oldest one in flight; the producer is opened again after a delay",
        ("the producer at {region}",),
    )
    RECEIPT_MISSING = _replication(
        "{region} sent no receipt for {entries} entries in flight; they are sent again",
        "entries were in flight and no receipt arrived for one `peer_keep_alive_interval_ms`, or several after earlier "
        "such cases; the producer is opened again after a delay",
        ("the producer at {region}",),
    )
    PRODUCER_UNANSWERED = _replication(
        "{region} did not respond to the request for a producer within {seconds:g} s; it is sent again",
        "the link is established and the remote region does not respond",
        ("the producer at {region}",),
    )
    REPLICATOR_RESTS = _replication(
        "the replicator is idle: no client uses the topic, and {region} has all entries",
        "the topic has been unused for the time in `inactive_topic_policies`; the replicator continues with the "
        "next message",
    )
    PRODUCER_ASKED = _replication(
        "{region} has not opened the producer yet",
        "the link is established and the remote region has not responded to the request for a producer",
        ("the producer at {region}",),
    )
    REPLICATION_RATE = _replication(
        "replicator_dispatch_rate is exhausted",
        "the rate limit of replicators is exhausted",
        ("the rate limit, in {wait_ms} ms",),
    )
    LINK_FULL = _replication(
        "the link's send buffer is full",
        "the connection's send buffer is full",
        ("bytes in flight on the link",),
    )
    READING_STORE = _replication(
        "entries are read from the store", "the next entries are not in memory", ("the store of this region",)
    )
    IN_FLIGHT = _replication(
        "entries are in flight",
        "entries were sent and the remote region has not acknowledged them yet",
        ("receipts of {region}",),
    )

    # The newest snapshot of a topic.

    NO_SUBSCRIPTION = _snapshot(
        "no subscription is replicated", "no subscription of the topic has `replicated` on"
    )
    SNAPSHOT_NO_REMOTES = _snapshot(
        "no snapshot: the topic is not replicated to another region",
        "`replication_clusters` of the topic or its namespace contain no other region, or lack this one",
        ("replication_clusters to include another region",),
    )
    REPLICATED_SUBSCRIPTIONS_OFF = _snapshot(
        "{here} does not replicate subscriptions",
        "the setting `replicated_subscriptions` of this region is off",
        ("replicated_subscriptions in the settings of {here}, and a restart",),
    )
    SNAPSHOT_NO_MESSAGE = _snapshot("no snapshot yet: no message was stored", "the topic is empty")
    SNAPSHOT_LINK_TO_DOWN = _snapshot(
        "no snapshot: link to {region} is down for {waited}",
        "this region has no link to a region that the topic is replicated to",
        ("link {here} {region}", "or replication_clusters to leave out {region}"),
    )
    SNAPSHOT_LINK_FROM_DOWN = _snapshot(
        "no snapshot: link from {region} is down for {waited}",
        "a region that the topic is replicated to has no link to this region",
        ("link {region} {here}", "or replication_clusters to leave out {region}"),
    )
    SNAPSHOT_REPLICATOR_DOWN = _snapshot(
        "no snapshot: the replicator from {here} to {region} is not connected for {waited}",
        "the link is established, and the replicator to that region is refused, parked or idle",
        ("the replicator to {region}, as `explain replication` describes it",),
    )
    SNAPSHOT_ONE_WAY = _snapshot(
        "no snapshot: {region} has no replicator of the topic to {here} for {waited}",
        "the link from that region is established and no replicator of this topic uses it; usually"
        " `replication_clusters` there leave this region out",
        ("replication_clusters at {region} to include {here}, or those here to leave out {region}",),
    )
    SNAPSHOT_PARTIAL = _snapshot(
        "snapshots are partial: without {regions}, absent for {waited}",
        "a region was absent for `partial_snapshots_after`, and snapshots continue without it: its messages stay"
        " unacknowledged in other regions, and it receives no positions",
        ("the return of {regions}", "or `geoemu region remove`, if it will not return"),
    )
    SNAPSHOT_UNANSWERED = _snapshot(
        "waiting for the response of {regions} (round {round}) for {waited}",
        "the oldest pending snapshot whose links did not break lacks responses",
        (
            "the response of {regions}",
            "or replication_clusters to leave out the region that does not respond",
        ),
    )
    SNAPSHOT_STORING = _snapshot(
        "snapshot {snapshot} is complete; its marker is not stored yet, after {waited}",
        "all responses arrived, and the marker is not durable yet",
        ("the store of this region",),
    )
    SNAPSHOT_NONE_YET = _snapshot(
        "no snapshot yet", "no snapshot was started since the topic was loaded", ("the first snapshot",)
    )
    SNAPSHOT_NOT_DUE = _snapshot(
        "the next snapshot is due in {wait_ms} ms (snapshot_interval_ms)",
        "there are messages after the newest snapshot, and the interval since it is not over",
    )
    SNAPSHOT_NOT_NEEDED = _snapshot(
        "no newer snapshot needed: no message since the last snapshot",
        "the newest snapshot covers every message",
    )

    # The position of one subscription, as sent to other regions.

    POSITION_NOT_APPLIED_THERE = _position(
        "{region} does not apply its positions: the subscription is not replicated in {region}",
        "the region has a subscription of that name whose `replicated` is off; `geoemu explain` compares the regions",
        ("replication of the subscription to be turned on in {region}",),
    )
    POSITION_NOT_APPLIED_HERE = _position(
        "positions of {regions} are not applied here: the subscription is not replicated in {here}",
        "`replicated` is off here, and other regions send their positions of the subscription",
        ("replication of the subscription to be turned on in {here}",),
    )
    SUBSCRIPTION_NOT_REPLICATED = _position(
        "the subscription is not replicated", "the users of this region did not turn `replicated` on for it"
    )
    POSITION_FOLLOWS = _position(
        "consumers here have acknowledged nothing beyond the position that other regions reported",
        "the position came from another region; it is sent again when consumers of this region move it",
    )
    SNAPSHOT_NOT_REACHED = _position(
        "mark-delete {mark_delete} has not reached the oldest of {count} known snapshots"
        " (entry {entry}, {distance} entries later)",
        "an entry before the oldest known snapshot is not acknowledged",
        ("acknowledgements up to entry {entry}",),
    )
    UPDATE_WITH_NEXT_MOVE = _position(
        "the position of the snapshot at entry {entry} is sent with the next mark-delete movement",
        "consumers here acknowledged messages after a gap, after an update had moved mark-delete to a snapshot",
        ("acknowledgement of entry {gap}",),
    )
    UPDATE_NOT_CONFIRMED = _position(
        "{region} has not stored the newest position yet: its update is entry {entry}, {behind} entries beyond the"
        " confirmed ones",
        "the update is stored here, and the remote region has not acknowledged its entry",
        ("the replicator to {region}, as `explain replication` describes it",),
    )

    # A fail-over of one subscription to another region.

    SOURCE_SILENT = _failover(
        "{region} does not respond ({failure}), so the plan is an upper bound from the state of {target}",
        "the region that the fail-over starts from did not contribute to the plan",
        ("region {region} to respond",),
    )
    TOPIC_MISSING_THERE = _failover(
        "{region} does not have the topic",
        "the target of the fail-over has no topic of this name",
        ("the topic to be replicated to {region}",),
    )
    SUBSCRIPTION_MISSING_THERE = _failover(
        "{region} does not have the subscription; the plan assumes that a consumer creates it there at the first"
        " message",
        "the target of the fail-over has no subscription of this name",
        ("an update of the subscription to reach {region}",),
    )
    MESSAGES_MISSING_THERE = _failover(
        "{count} messages are not stored in {region} yet",
        "the source of the fail-over has messages that are meant for the target and are not stored there",
        ("replication to {region}",),
    )
    MESSAGES_SKIPPED_THERE = _failover(
        "{count} messages are not acknowledged here, and are acknowledged, expired or removed in {region}",
        "the target of the fail-over would not deliver messages that are not acknowledged in the source",
    )
    MESSAGES_NOT_ADDRESSED = _failover(
        "{count} messages that are not acknowledged here never reach {region}: their producers named other regions, or"
        " the topic is not replicated there",
        "the source of the fail-over has unacknowledged messages that are not meant for the target",
    )
    PLAN_INCOMPLETE = _failover(
        "more entries matter than the {entries} that a region reads for a plan, so no bound is known",
        "a region reached the limit of entries to read",
        ("acknowledgements of the oldest messages",),
    )
