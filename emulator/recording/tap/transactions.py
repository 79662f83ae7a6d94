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
        self._connecting: dict[int, ConnectCoordinator] = {}
        self._keys: dict[int, dict[str, Any]] = {}
        """Transaction key and epoch of this connection, by coordinator; empty for a client without a key."""
        self._beginning: dict[int, dict[str, Any]] = {}
        self._ending: dict[int, dict[str, str | None]] = {}

    # Transaction keys: a connection has at most one, and each coordinator returns a client epoch for it.

    def connecting(self, request: ConnectCoordinator) -> None:
        self._connecting[request.request_id] = request

    def connected(self, answer: CoordinatorConnected) -> None:
        request = self._connecting.pop(answer.request_id, None)
        if request is None or answer.error is not None:
            return
        key = {"transaction_key": request.key, "key_epoch": answer.epoch} if request.key else {}
        self._keys[request.coordinator] = key

    # Beginnings.

    def beginning(self, request: NewTransaction) -> None:
        """Record the request before it is sent to the region."""
        under = self._keys.get(request.coordinator, {})
        self._beginning[request.request_id] = under
        self._write_begin("asked", under)

    def begun(self, answer: NewTransactionResponse) -> None:
        under = self._beginning.pop(answer.request_id, None)
        if under is None:
            return
        if answer.error is None:
            self._recorder.write(
                "begin_transaction",
                "ok",
                transaction=transaction_text((answer.most or 0, answer.least or 0)),
                **under,
            )
        else:
            # Unknown: the transaction may exist. A client that retries receives another one.
            self._write_begin("unknown", under, error=answer.message or "refused")

    def _write_begin(self, outcome: Outcome, under: dict[str, Any], **more: str) -> None:
        key = {name: value for name, value in under.items() if name == "transaction_key"}
        self._recorder.write("begin_transaction", outcome, **key, **more)

    # Ends.

    def ending(self, request: EndTransaction) -> None:
        """Record the request before it is sent to the region."""
        transaction = transaction_text((request.most, request.least))
        said = {"transaction": transaction, "action": "commit" if request.commit else "abort"}
        if request.commit is not None:
            self._ending[request.request_id] = said
            self._recorder.write("end_transaction", "asked", **said)

    def ended(self, answer: EndTransactionResponse) -> None:
        said = self._ending.pop(answer.request_id, None)
        if said is None:
            return
        if answer.error is None:
            self._recorder.write("end_transaction", "ok", **said)
        else:
            outcome: Outcome = "failed" if answer.error is ServerError.InvalidTxnStatus else "unknown"
            self._recorder.write("end_transaction", outcome, **said, error=error_text(answer))

    def lost(self) -> None:
        """Record unknown outcomes for open requests, because the connection ended."""
        for under in self._beginning.values():
            self._write_begin("unknown", under, error="the connection ended")
        for said in self._ending.values():
            self._recorder.write("end_transaction", "unknown", **said, error="the connection ended")
        self._beginning.clear()
        self._ending.clear()
