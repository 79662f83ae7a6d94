"""What a connection says of transactions is written down; in-process, without a region."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.history import HistoryWriter
from emulator.tap.connection import TappedConnection
from emulator.tap.recorder import Recorder
from emulator.wire import pulsar_pb2 as pb
from emulator.wire import transaction_requests
from emulator.wire.frames import simple_frame


class Tapped:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._history = HistoryWriter(path, "tap")
        self.connection = TappedConnection(Recorder(self._history, "eu", 1), "pulsar://tap:1")

    def lines(self) -> list[dict[str, Any]]:
        self._history.close()
        lines = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [line for line in lines if line["op"] == "end_transaction"]


def answered(request_id: int, error: int | None = None) -> bytes:
    body = pb.CommandEndTxnResponse(request_id=request_id)
    if error is not None:
        body.error, body.message = error, "no"  # type: ignore[assignment]
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.END_TXN_RESPONSE, endTxnResponse=body))


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        (lambda tapped: tapped.to_client(answered(7)), "ok"),
        (lambda tapped: tapped.to_client(answered(7, pb.InvalidTxnStatus)), "failed"),
        (lambda tapped: tapped.to_client(answered(7, pb.TransactionNotFound)), "unknown"),
        (lambda tapped: tapped.ended(), "unknown"),
    ],
)
def test_an_end_is_asked_for_and_told(
    tmp_path: Path, commit: bool, then: Callable[[TappedConnection], object], outcome: str
) -> None:
    tapped = Tapped(tmp_path / "history" / "tap.jsonl")
    frame = transaction_requests.end(7, (1, 2), commit=commit)
    assert tapped.connection.to_region(frame) == frame
    then(tapped.connection)
    asked, told = tapped.lines()
    said = {"region": "eu", "transaction": "1,2", "action": "commit" if commit else "abort"}
    assert asked | {**said, "outcome": "asked"} == asked
    assert told | {**said, "outcome": outcome} == told
