"""Record the transactions of one connection: their begin and end requests, and the responses. A region that ends a
transaction by itself, as after a timeout, sends no command, so that end is not recorded."""

from __future__ import annotations

from typing import Any

from emulator.errors import ServerError
from emulator.recording.tap.recorder import Recorder
from emulator.run.history_events import Outcome, transaction_text
from emulator.wire.commands import (
    ConnectCoordinator,
    CoordinatorConnected,
    EndTransaction,
    EndTransactionResponse,
    NewTransaction,
    NewTransactionResponse,
)
from emulator.wire.observing import error_text


class TappedTransactions:
    """The open transaction requests of one connection, by request id."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._connect_requests: dict[int, ConnectCoordinator] = {}
        self._keys: dict[int, dict[str, Any]] = {}
        """Transaction key and epoch of this connection, by coordinator; empty for a client without a key."""
        self._begin_requests: dict[int, dict[str, Any]] = {}
        self._end_requests: dict[int, dict[str, str | None]] = {}

    # Transaction keys: a connection has at most one, and each coordinator returns a client epoch for it.

    def on_connect_coordinator(self, request: ConnectCoordinator) -> None:
        self._connect_requests[request.request_id] = request

    def on_coordinator_connected(self, answer: CoordinatorConnected) -> None:
        request = self._connect_requests.pop(answer.request_id, None)
        if request is None or answer.error is not None:
            return
        key = {"transaction_key": request.key, "key_epoch": answer.epoch} if request.key else {}
        self._keys[request.coordinator] = key

    # Beginnings.

    def on_new_transaction(self, request: NewTransaction) -> None:
        """Record the request before it is sent to the region."""
        key_fields = self._keys.get(request.coordinator, {})
        self._begin_requests[request.request_id] = key_fields
        self._record_begin("asked", key_fields)

    def on_new_transaction_response(self, answer: NewTransactionResponse) -> None:
        key_fields = self._begin_requests.pop(answer.request_id, None)
        if key_fields is None:
            return
        if answer.error is None:
            self._recorder.write(
                "begin_transaction",
                "ok",
                transaction=transaction_text((answer.most or 0, answer.least or 0)),
                **key_fields,
            )
        else:
            # Unknown: the transaction may exist. A client that retries receives another one.
            self._record_begin("unknown", key_fields, error=answer.message or "refused")

    def _record_begin(self, outcome: Outcome, key_fields: dict[str, Any], **more: str) -> None:
        key = {name: value for name, value in key_fields.items() if name == "transaction_key"}
        self._recorder.write("begin_transaction", outcome, **key, **more)

    # Ends.

    def on_end_transaction(self, request: EndTransaction) -> None:
        """Record the request before it is sent to the region."""
        transaction = transaction_text((request.most, request.least))
        fields = {"transaction": transaction, "action": "commit" if request.commit else "abort"}
        if request.commit is not None:
            self._end_requests[request.request_id] = fields
            self._recorder.write("end_transaction", "asked", **fields)

    def on_end_transaction_response(self, answer: EndTransactionResponse) -> None:
        fields = self._end_requests.pop(answer.request_id, None)
        if fields is None:
            return
        if answer.error is None:
            self._recorder.write("end_transaction", "ok", **fields)
        else:
            outcome: Outcome = "failed" if answer.error is ServerError.InvalidTxnStatus else "unknown"
            self._recorder.write("end_transaction", outcome, **fields, error=error_text(answer))

    def on_connection_lost(self) -> None:
        """Record unknown outcomes for open requests, because the connection ended."""
        for key_fields in self._begin_requests.values():
            self._record_begin("unknown", key_fields, error="the connection ended")
        for fields in self._end_requests.values():
            self._recorder.write("end_transaction", "unknown", **fields, error="the connection ended")
        self._begin_requests.clear()
        self._end_requests.clear()
