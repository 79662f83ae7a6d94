"""The tap records the transaction commands of a connection; in-process, without a region."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.errors import ServerError
from emulator.recording.tap.connection import TappedConnection
from emulator.recording.tap.recorder import Recorder
from emulator.run.history import HistoryWriter
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.commands import (
    NO_EPOCH,
    ConnectCoordinator,
    CoordinatorConnected,
    EndTransaction,
    NewTransaction,
    NewTransactionResponse,
)
from emulator.wire.frames import simple_frame


class Tapped:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._history = HistoryWriter(path, "tap")
        self.connection = TappedConnection(Recorder(self._history, "eu", 1), "pulsar://tap:1")

    def lines(self) -> list[dict[str, Any]]:
        self._history.close()
        lines = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [line for line in lines if line["op"].endswith("_transaction")]


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
        (lambda tapped: tapped.on_connection_lost(), "unknown"),
    ],
)
def test_the_end_of_a_transaction_is_recorded_with_its_outcome(
    tmp_path: Path, commit: bool, then: Callable[[TappedConnection], object], outcome: str
) -> None:
    tapped = Tapped(tmp_path / "history" / "tap.jsonl")
    frame = EndTransaction(7, 1, 2, commit).encode()
    assert tapped.connection.to_region(frame) == frame
    then(tapped.connection)
    requested, outcome_line = tapped.lines()
    said = {"region": "eu", "transaction": "1,2", "action": "commit" if commit else "abort"}
    assert requested | {**said, "outcome": "asked"} == requested
    assert outcome_line | {**said, "outcome": outcome} == outcome_line


def coordinator_ready(request_id: int, epoch: int | None) -> bytes:
    return CoordinatorConnected(request_id, epoch).encode()


def begin_refused(request_id: int) -> bytes:
    body = pb.CommandNewTxnResponse(request_id=request_id, error=pb.NotAllowedError, message="no")
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.NEW_TXN_RESPONSE, newTxnResponse=body))


@pytest.mark.parametrize(("key", "epoch"), [("", None), ("billing", 4)])
@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        (lambda tapped: tapped.to_client(NewTransactionResponse(8, 3, 7).encode()), "ok"),
        (lambda tapped: tapped.to_client(begin_refused(8)), "unknown"),
        (lambda tapped: tapped.on_connection_lost(), "unknown"),
    ],
)
def test_a_beginning_is_written_with_the_key_that_its_connection_was_granted(
    tmp_path: Path, key: str, epoch: int | None, then: Callable[[TappedConnection], object], outcome: str
) -> None:
    tapped = Tapped(tmp_path / "history" / "tap.jsonl")
    tapped.connection.to_region(ConnectCoordinator(7, 3, key, NO_EPOCH if key else None).encode())
    tapped.connection.to_client(coordinator_ready(7, epoch))
    tapped.connection.to_region(NewTransaction(8, 3, 60_000).encode())
    then(tapped.connection)
    requested, outcome_line = tapped.lines()
    under = {"transaction_key": key} if key else {}
    granted = {"key_epoch": epoch} if key and outcome == "ok" else {}
    begun = {"transaction": "3,7"} if outcome == "ok" else {"error": outcome_line.get("error")}
    frame = ("at_ms", "actor")
    assert {name: requested[name] for name in requested if name not in frame} == {
        "op": "begin_transaction",
        "outcome": "asked",
        "region": "eu",
        **under,
    }
    assert {name: outcome_line[name] for name in outcome_line if name not in frame} == {
        "op": "begin_transaction",
        "outcome": outcome,
        "region": "eu",
        **under,
        **granted,
        **begun,
    }


def test_a_refused_key_begins_nothing_under_it(tmp_path: Path) -> None:
    tapped = Tapped(tmp_path / "history" / "tap.jsonl")
    frame = ConnectCoordinator(7, 3, "billing", NO_EPOCH).encode()
    tapped.connection.to_region(frame)
    refused = CoordinatorConnected(7, error=ServerError.NotAllowedError, message="no")
    tapped.connection.to_client(refused.encode())
    tapped.connection.to_region(NewTransaction(8, 3, 60_000).encode())
    (requested,) = tapped.lines()
    assert "transaction_key" not in requested


def test_an_answer_to_nothing_is_no_beginning(tmp_path: Path) -> None:
    tapped = Tapped(tmp_path / "history" / "tap.jsonl")
    tapped.connection.to_client(NewTransactionResponse(8, 3, 7).encode())
    tapped.connection.to_client(coordinator_ready(9, 1))
    assert tapped.lines() == []
