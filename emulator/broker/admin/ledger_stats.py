"""Statistics of a topic's log as JSON, in the form of Pulsar's managed ledgers: one ledger and its cursors."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.stats import iso_time
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic


def internal_stats(topic: Topic) -> dict[str, Any]:
    """Return the `internalStats` of a topic."""
    ledger_id = topic.log.ledger_id
    entries = topic.log.next_entry_id - topic.log.first_entry_id
    ledger = {"ledgerId": ledger_id, "entries": entries, "size": topic.log.size_bytes, "offloaded": False}
    return {
        "entriesAddedCounter": topic.state.readable_end - topic.metrics.loaded_end_entry_id,
        "numberOfEntries": entries,
        "totalSize": topic.log.size_bytes,
        "currentLedgerEntries": entries,
        "currentLedgerSize": topic.log.size_bytes,
        "lastLedgerCreatedTimestamp": iso_time(topic.metrics.loaded_ms),
        "waitingCursorsCount": sum(
            1 for one in topic.subscriptions.values() if one.consumers and not one.backlog()
        ),
        "lastConfirmedEntry": str(topic.reading.last_position),
        "state": "Terminated" if topic.termination.is_terminated else "LedgerOpened",
        "ledgers": [ledger],
        "schemaLedgers": [],
        "cursors": {name: _cursor_stats(one, ledger_id) for name, one in topic.subscriptions.items()},
        "compactedLedger": _compacted_ledger(topic),
    }


def ledger_info(topic: Topic) -> dict[str, Any]:
    """Return `internal-info` in the form of Pulsar's managed ledger info: one ledger and the durable cursors as they
    are in memory, without the versions and dates of Pulsar's metadata store, which regions do not have."""
    ledger_id = topic.log.ledger_id
    entries = topic.log.next_entry_id - topic.log.first_entry_id
    size_bytes = topic.log.size_bytes
    info: dict[str, Any] = {
        "ledgers": [{"ledgerId": ledger_id, "entries": entries, "size": size_bytes, "isOffloaded": False}],
        "cursors": {
            name: _stored_cursor(one, ledger_id) for name, one in topic.subscriptions.items() if one.durable
        },
    }
    if topic.termination.is_terminated:
        info["terminatedPosition"] = _position(ledger_id, topic.reading.last_stored_position.entry)
    return info


def _stored_cursor(subscription: Subscription, ledger_id: int) -> dict[str, Any]:
    cursor = subscription.cursor
    return {
        "cursorsLedgerId": -1,
        "markDelete": _position(ledger_id, cursor.mark_delete),
        "individualDeletedMessages": [
            {"from": _position(ledger_id, first - 1), "to": _position(ledger_id, last)}
            for first, last in cursor.acked_ranges
        ],
    }


def _position(ledger_id: int, entry_id: int) -> dict[str, int]:
    return {"ledgerId": ledger_id, "entryId": entry_id}


def _compacted_ledger(topic: Topic) -> dict[str, Any]:
    view = topic.compaction.view
    if view is None:
        return {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False}
    row = view.row
    return {
        "ledgerId": view.log.ledger_id,
        "entries": row.entries,
        "size": row.size_bytes,
        "offloaded": False,
    }


def _cursor_stats(subscription: Subscription, ledger_id: int) -> dict[str, Any]:
    cursor = subscription.cursor
    ranges = [f"({ledger_id}:{first - 1}..{ledger_id}:{last}]" for first, last in cursor.acked_ranges]
    # Where a replicated subscription has no consumers, mark-delete advances although no entry is read.
    read = max(subscription.dispatcher.strategy.read_entry_id, cursor.mark_delete + 1)
    return {
        "markDeletePosition": f"{ledger_id}:{cursor.mark_delete}",
        "readPosition": f"{ledger_id}:{read}",
        "individuallyDeletedMessages": f"[{','.join(ranges)}]",
        "totalNonContiguousDeletedMessagesRange": len(ranges),
        "numberOfEntriesSinceFirstNotAckedMessage": max(0, read - cursor.mark_delete - 1),
        "waitingReadOp": bool(subscription.consumers) and not subscription.backlog(),
        "messagesConsumedCounter": subscription.sent.messages,
        "state": "Open",
        "active": bool(subscription.consumers),
    }
