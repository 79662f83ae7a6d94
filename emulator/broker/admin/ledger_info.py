"""The stored state of a topic in the form of Pulsar's managed ledger info: `internal-info`."""

from __future__ import annotations

from typing import Any

from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic


def ledger_info(topic: Topic) -> dict[str, Any]:
    """One ledger, and each cursor in it. Versions and dates of Pulsar's store do not exist in regions: left out."""
    ledger_id = topic.log.ledger_id
    entries = topic.log.next_entry_id - topic.log.first_entry_id
    size_bytes = topic.log.size_bytes
    info: dict[str, Any] = {
        "ledgers": [{"ledgerId": ledger_id, "entries": entries, "size": size_bytes, "isOffloaded": False}],
        "cursors": {
            name: _cursor(one, ledger_id) for name, one in topic.subscriptions.items() if one.durable
        },
    }
    if topic.ending.is_over:
        info["terminatedPosition"] = _position(ledger_id, topic.last_position.entry)
    return info


def _cursor(subscription: Subscription, ledger_id: int) -> dict[str, Any]:
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
