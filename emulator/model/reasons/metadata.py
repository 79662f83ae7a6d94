"""Reasons of the configuration store, transactions and readiness."""

from __future__ import annotations

from functools import partial

from emulator.model.reasons.row import Question, ReasonRow

_metadata = partial(ReasonRow, Question.METADATA)
_transaction = partial(ReasonRow, Question.TRANSACTION)
_readiness = partial(ReasonRow, Question.READINESS)


class MetadataCauses:
    """Why metadata is older than in other clusters, a transaction is open, or a region is not ready."""

    # The configuration store of a cluster.

    STORE_AWAY = _metadata(
        "the value may be outdated: the configuration store is unavailable: {failure}",
        "the region cannot read the configuration store of its cluster",
        ("the configuration store of the cluster",),
    )
    ROW_DAMAGED = _metadata(
        "{problem}",
        "a row of metadata sync cannot be decoded and is not replaced yet",
        ("a region of this cluster to replace the row",),
    )
    ROW_REPLACED = _metadata(
        "{problem}; the row was replaced at {time}",
        "since the region started, the row or the record of the document was damaged and was replaced",
    )
    PATH_EXCLUDED = _metadata(
        "metadata_sync_excluded_paths contains {path}, so the path is local to this cluster{also}",
        "the cluster excludes the path from synchronisation",
    )
    PATH_NOT_COMPARED = _metadata(
        "this cluster has not compared the path with other clusters yet",
        "no region of the cluster has recorded the path since it was written",
        ("the metadata sync leader of this cluster",),
    )
    EVENT_APPLIED = _metadata(
        "{element} {value} by {event}, applied here at {time}",
        "the event is the newest one for that part of the path",
    )
    EVENT_LOST = _metadata(
        "{element}{value} of {event} lost to {winner}",
        "a newer event for that part of the path, or a deletion of the path, won; the most recent losses are stored",
    )
    CLUSTER_EXCLUDES = _metadata(
        "cluster {cluster} excludes the path (metadata_sync_excluded_paths) and does not receive it",
        "the other cluster has the path in its `metadata_sync_excluded_paths`",
    )
    RECORDS_INCOMPLETE = _metadata(
        "a record of this cluster was damaged; cluster {cluster} has not sent its events again",
        "a damaged record was replaced, and another cluster, not declared lost, has not sent its events since",
        ("cluster {cluster} to send all its events",),
    )
    EVENTS_NOT_CARRIED = _metadata(
        "this cluster has no metadata sync leader, so {clusters} did not confirm these changes",
        "another cluster has not confirmed an event of the path, and no region here has the lease",
        ("a region of this cluster to become metadata sync leader",),
    )
    EVENT_TOPIC_FAILS = _metadata(
        "metadata sync is interrupted, so {clusters} did not confirm these changes: {failure}",
        "another cluster has not confirmed an event of the path, and this region is the metadata sync leader and "
        "failed to read or write the event topic; it retries",
        ("the event topic: {failure}",),
    )
    CLUSTERS_BEHIND = _metadata(
        "{clusters} did not confirm {count} of these changes",
        "a cluster that is not declared lost has not confirmed an event of the path",
        ("cluster {clusters} to confirm {count} of these changes",),
    )

    # Transactions.

    TRANSACTION_NOT_ENDED = _transaction(
        "its client has not ended it",
        "the transaction is open",
        ("its client to end it, or its time-out of {timeout_s:g} s",),
    )
    PARTICIPANT_REFUSED = _transaction(
        "{why}; {participant} has not stored the outcome: {failure}",
        "the transaction is decided, and a participant failed to store the outcome; it is retried",
        ("{participant} to store the outcome: {failure}",),
    )
    PARTICIPANTS_PENDING = _transaction(
        "{why}; its participants have not confirmed the outcome yet",
        "the transaction is decided, and participants have not confirmed the outcome yet",
        ("the participants of the transaction",),
    )

    KEY_IN_USE = _transaction(
        "transaction {transaction} is {status}",
        "a transaction of the key has not ended; the newest ones are listed",
        ("transaction {transaction}",),
    )

    # Readiness.

    READINESS_LINK = _readiness(
        "link to {region}: {reason}",
        "a link to a region that is expected to run is not established; the reason is one of the rows for links",
    )
