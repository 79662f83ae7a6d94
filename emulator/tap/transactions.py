"""The ends of transactions that one connection asks for. A region that ends one by itself tells nobody."""

from __future__ import annotations

from emulator.history import Outcome, transaction_text
from emulator.tap.recorder import Recorder
from emulator.wire.observing import Ended
from emulator.wire.transaction_commands import EndTransaction


class TappedTransactions:
    """By the numbers of the requests."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._asked: dict[int, dict[str, str | None]] = {}

    def ending(self, request: EndTransaction) -> None:
        """Before the region is told."""
        transaction = transaction_text((request.most, request.least))
        said = {"transaction": transaction, "action": "commit" if request.commit else "abort"}
        if request.commit is not None:
            self._asked[request.request_id] = said
            self._recorder.write("end_transaction", "asked", **said)

    def ended(self, answer: Ended) -> None:
        said = self._asked.pop(answer.request_id, None)
        if said is None:
            return
        if answer.error is None:
            self._recorder.write("end_transaction", "ok", **said)
        else:
            outcome: Outcome = "failed" if answer.is_certain else "unknown"
            self._recorder.write("end_transaction", outcome, **said, error=answer.error)

    def lost(self) -> None:
        """The connection has ended: what was asked for may have happened or not."""
        for said in self._asked.values():
            self._recorder.write("end_transaction", "unknown", **said, error="the connection ended")
        self._asked.clear()
