"""Transaction keys: their epochs, their clients and their transactions (docs/components/transaction-keys.md)."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Resource, changes, reads
from emulator.broker.admin.resources.transactions import V3, coordinators_of
from emulator.broker.transactions.coordinator import RunningCoordinator
from emulator.core.transactions.keys import KeyState
from emulator.core.transactions.live import KeyTransaction
from emulator.model.transaction_names import SEPARATOR, TxnId, full_text
from emulator.net.http_server import HttpError


async def keys(call: AdminRequest) -> Content:
    names = [
        full_text(state.owner, state.key)
        for coordinator in coordinators_of(call).loaded
        for state in coordinator.keys.book.keys.values()
    ]
    return sorted(names)


async def key(call: AdminRequest) -> Content:
    coordinator, state = _key(call)
    status = None if state.least is None else coordinator.core.status(state.least)
    return {
        "transactionKey": state.key,
        "owner": state.owner,
        "coordinatorId": coordinator.number,
        "epoch": state.epoch,
        "transactionId": None if state.least is None else TxnId(coordinator.number, state.least).text,
        "transactionStatus": None if status is None else status.name,
        "transactions": [_of_key(one) for one in coordinator.core.known_of_key(state.owner, state.key)],
        "connected": coordinator.keys.is_connected(state.owner, state.key),
        "lastClient": state.client or None,
        "sinceMs": state.since_ms,
        "createdMs": state.created_ms,
    }


def _of_key(one: KeyTransaction) -> dict[str, Any]:
    return {"txnId": one.txn.text, "status": one.status.name, "why": one.why, "epoch": one.epoch}


async def delete_key(call: AdminRequest) -> None:
    coordinator, state = _key(call)
    await coordinator.keys.delete(state.owner, state.key)


def _key(call: AdminRequest) -> tuple[RunningCoordinator, KeyState]:
    """Return the transaction key in the path: `key` or `owner&key`. HttpError 404 if it does not exist, 409 if a `key`
    has several owners."""
    name = call.names["key"]
    owner, separator, short = name.rpartition(SEPARATOR)
    found = [
        (coordinator, state)
        for coordinator in coordinators_of(call).loaded
        for state in coordinator.keys.book.keys.values()
        if state.key == short and (not separator or state.owner == owner)
    ]
    if not found:
        raise HttpError(404, f"there is no transaction key {name!r}")
    if len(found) > 1:
        owners = ", ".join(repr(state.owner) for _, state in found)
        raise HttpError(
            409, f"transaction key {name!r} belongs to several owners: use OWNER&{name} with one of {owners}"
        )
    return found[0]


def _key_rows(base: str) -> tuple[Resource, ...]:
    return (
        Resource(f"{base}/transaction-keys", get=reads(keys, "All transaction keys.")),
        Resource(
            f"{base}/transaction-keys/{{key}}",
            get=reads(
                key,
                "A key's epoch, its last client, and every transaction of it that is not forgotten, with its status. "
                "`key`, or `owner%26key`.",
            ),
            delete=changes(
                delete_key,
                "Delete a key except its epoch; its transaction is aborted and its connection closed.",
            ),
        ),
    )


RESOURCES = (*_key_rows("/admin/v2/transactions"), *_key_rows(V3))
