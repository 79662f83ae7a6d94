"""Write histories, the requests of clients and the responses that they received: `history/<name>.jsonl`, one JSON
object per line (docs/HISTORY.md).

Each event is written at once with a single write, so a crash of the writer tears at most the last line. The writer's
last line, the end, contains the number and the digest of the lines before it, so a missing, truncated or changed
end is detected. A killed program cannot write the end; the process that ran it *seals* the file
(`seal_history`), and requests of the program without a response stay unknown.

Times are of the wall clock of the machine that drives the run, because the clocks of regions may be skewed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from emulator.errors import Refused
from emulator.run.history_events import Outcome, as_line, attributes_digest, payload_digest, transaction_text
from emulator.run.history_schema import FORMAT_VERSION, FRAME, LineCheck
from emulator.run.json_text import is_unicode

LOCK_POLL_SECONDS = 0.02
"""Interval at which a writer that waits for the lock of a file tries again."""


class NotAHistory(ValueError):
    """A line violates the format of histories; the message names the field and the rule."""


class Writes(Protocol):
    """A HistoryWriter, or the journal of a recorded program."""

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None: ...


class HistoryWriter:
    """Appends events of one actor to one file, which no other process writes at the same time.

    Every line is validated before it is written; NotAHistory is raised for an invalid one. After `close`, a request
    raises NotAHistory, and all other events are ignored. Thread-safe.
    """

    def __init__(
        self,
        path: Path,
        actor: str,
        wall_clock_ms: Callable[[], float] | None = None,
        *,
        program: str = "",
        others: Iterable[str] = (),
        wait_seconds: float = 0.0,
    ) -> None:
        """Open the file, write a head, and continue the file if it exists; one without an end is sealed first.
        `others`: further history files, without suffix, that the run must contain, too. Raises BlockingIOError if
        another process still writes the file after `wait_seconds`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._actor = actor
        self._now_ms = wall_clock_ms or (lambda: time.time() * 1000)
        self._check = LineCheck()
        self._lock = threading.RLock()
        try:
            _lock_file(self._file, wait_seconds)
        except BlockingIOError:
            os.close(self._file)
            raise BlockingIOError(f"{path} is being written by another process; name another actor") from None
        _seal(self._file, "its writer reopened the file", self._now_ms())
        self._digest, self._lines = _read_digest_and_count(self._file)
        head = {"format": FORMAT_VERSION, "run": run_name(path.parent.parent), "program": program}
        self._write("head", "fact", **head, others=list(others) or None)

    @classmethod
    def in_run(cls, run_dir: Path, actor: str, *, program: str = "") -> HistoryWriter:
        """Open the history of a user's program: `history/<actor>.jsonl` of a run. Raises Refused if a verdict cannot
        read a file of that name."""
        if not actor or actor[0] in "_." or set(actor) & {"/", "\0"} or not is_unicode(actor):
            raise Refused(f"actor {actor!r}: a name has no '/' and does not start with '_' or '.'")
        return cls(run_dir / "history" / f"{actor}.jsonl", actor, program=program)

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None:
        """Append one event with the current time. When this returns, the event survives a crash of this process, but
        not of the machine. Fields that are None are omitted. The field `actor` overrides the writer's actor."""
        if op in FRAME:
            raise NotAHistory(f"op: {op} is written by the recorder itself")
        self._write(op, outcome, **fields)

    def opened_producer(
        self, region: str, topic: str, producer: str, last_sequence_id: int
    ) -> ProducerHistory:
        """Record that a producer was opened, and return the recorder of its publishes. `last_sequence_id` is the last
        sequence id that the region stored for the producer name, or -1, as the client reports it."""
        opened = ProducerHistory(self, region, topic, producer, last_sequence_id)
        self.write("connect", "ok", **opened.event_fields, last_sequence_id=last_sequence_id)
        return opened

    def subscribed(
        self,
        region: str,
        topic: str,
        subscription: str,
        *,
        replicated: bool = False,
        initial: str = "latest",
        compacted: bool = False,
    ) -> None:
        """Record that a consumer of a subscription is open. `initial` is the initial position of a new subscription:
        `earliest` or `latest`. `compacted`: the consumer reads the compacted topic."""
        location = {"region": region, "topic": topic, "subscription": subscription}
        options = {"replicated": replicated, "initial": initial, "compacted": compacted or None}
        self.write("subscribe", "ok", **location, **options)

    def received(
        self,
        region: str,
        topic: str,
        subscription: str,
        message_id: str,
        payload: bytes | None = None,
        *,
        transaction: tuple[int, int] | None = None,
    ) -> None:
        """Record that a consumer received the message with `message_id` (`ledger:entry:batch_index`) in `region`.
        `transaction`: the transaction in which the message is processed, as (most, least)."""
        location = {"region": region, "topic": topic, "subscription": subscription, "message_id": message_id}
        digest = None if payload is None else payload_digest(payload)
        self.write(
            "receive", "ok", **location, payload_digest=digest, transaction=transaction_text(transaction)
        )

    def begun(
        self,
        region: str,
        transaction: tuple[int, int],
        *,
        key: str | None = None,
        key_epoch: int | None = None,
    ) -> None:
        """Record that a transaction (most, least) began; with a transaction key, also the key and its client epoch."""
        fields = {
            "transaction": transaction_text(transaction),
            "transaction_key": key,
            "key_epoch": key_epoch,
        }
        self.write("begin_transaction", "ok", region=region, **fields)

    def asked_to_acknowledge(
        self,
        region: str,
        topic: str,
        subscription: str,
        message_id: str,
        *,
        cumulative: bool = False,
        transaction: tuple[int, int] | None = None,
    ) -> None:
        """Record an acknowledge request. Call it BEFORE the request. `transaction`: (most, least)."""
        location = {"region": region, "topic": topic, "subscription": subscription, "message_id": message_id}
        how, text = "cumulative" if cumulative else "individual", transaction_text(transaction)
        self.write("acknowledge", "asked", **location, how=how, transaction=text)

    def asked_to_end(self, region: str, transaction: tuple[int, int], *, commit: bool) -> EndHistory:
        """Record a request to commit or abort a transaction (most, least), and return the recorder of its outcome. Call
        it BEFORE the request."""
        fields = {
            "region": region,
            "transaction": transaction_text(transaction),
            "action": "commit" if commit else "abort",
        }
        self.write("end_transaction", "asked", **fields)
        return EndHistory(self, fields)

    def close(self) -> None:
        """Write the end and close the file. A second call has no effect."""
        with self._lock:
            if self._file >= 0:
                end = {"lines": self._lines, "digest": self._digest.hexdigest()}
                self._write("end", "fact", **end)
                self.abandon()

    def abandon(self) -> None:
        """Close the file without an end, because it is incomplete or another process writes it."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _write(self, op: str, outcome: Outcome, **fields: Any) -> None:
        present = {name: value for name, value in fields.items() if value is not None}
        line = {
            "at_ms": round(self._now_ms(), 3),
            "actor": present.pop("actor", self._actor),
            "op": op,
            "outcome": outcome,
            **present,
        }
        with self._lock:
            if self._file < 0:
                # Threads of a client may report outcomes after the end; these outcomes stay unknown.
                if outcome == "asked":
                    raise NotAHistory("the history is closed")
                return
            wrong = self._check.problem(line)
            if wrong is not None:
                raise NotAHistory(str(wrong))
            data = as_line(line).encode() + b"\n"
            os.write(self._file, data)
            self._digest.update(data)
            self._lines += 1


class ProducerHistory:
    """Records the publishes of one opened producer.

    Without a `sequence_id`, publishes are numbered as the client does: consecutively after `last_sequence_id`.
    """

    def __init__(
        self, history: Writes, region: str, topic: str, producer: str, last_sequence_id: int
    ) -> None:
        self.session = new_session()
        self.event_fields = {"region": region, "topic": topic, "producer": producer, "session": self.session}
        self._history = history
        self._next_sequence_id = last_sequence_id + 1

    def asked_publish(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int = 0,
        ordering_key: bytes | None = None,
        replicate_to: Iterable[str] = (),
        sequence_id: int | None = None,
        transaction: tuple[int, int] | None = None,
    ) -> PublishHistory:
        """Record a publish request, and return the recorder of its outcome. Call it BEFORE the request, in the order of
        the requests. `transaction`: (most, least)."""
        number = self._next_sequence_id if sequence_id is None else sequence_id
        self._next_sequence_id = max(self._next_sequence_id, number + 1)
        self._history.write(
            "publish",
            "asked",
            **self.event_fields,
            sequence_id=number,
            payload_digest=payload_digest(payload),
            attributes_digest=attributes_digest(key, properties, event_time_ms, ordering_key),
            key=key or None,
            replicate_to=list(replicate_to) or None,
            transaction=transaction_text(transaction),
        )
        return PublishHistory(self._history, {**self.event_fields, "sequence_id": number})


@dataclass(frozen=True, slots=True)
class PublishHistory:
    """Records the outcome of one publish. Report it once; without a report the outcome is unknown."""

    history: Writes
    message: Mapping[str, Any]

    def ok(self, message_id: str | None) -> None:
        """Record a receipt with its message id (`ledger:entry:batch_index`); None for a duplicate (-1:-1)."""
        self.history.write("publish", "ok", **self.message, message_id=message_id)

    def failed(self, error: str) -> None:
        """Record that the message was certainly not stored and will not be."""
        self.history.write("publish", "failed", **self.message, error=error)

    def unknown(self, error: str) -> None:
        """Record that the message may have been stored, for example after a timeout or a lost connection."""
        self.history.write("publish", "unknown", **self.message, error=error)


@dataclass(frozen=True, slots=True)
class EndHistory:
    """Records the outcome of one commit or abort. Report it once; without a report the outcome is unknown."""

    history: Writes
    end: Mapping[str, Any]

    def ok(self) -> None:
        """Record that the coordinator confirmed this end."""
        self.history.write("end_transaction", "ok", **self.end)

    def failed(self, error: str) -> None:
        """Record that the transaction certainly did not end this way and will not."""
        self.history.write("end_transaction", "failed", **self.end, error=error)

    def unknown(self, error: str) -> None:
        """Record that the transaction may have ended this way, for example after a timeout or a lost connection."""
        self.history.write("end_transaction", "unknown", **self.end, error=error)


def new_session() -> str:
    """Return a new random name for an opened producer."""
    return secrets.token_hex(6)


def run_name(run_dir: Path) -> str:
    """Return the creation time of a run, which identifies it even if its folder is moved; empty if unknown."""
    try:
        return str(json.loads((run_dir / "run.json").read_text()).get("created_at", ""))
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""


def seal_history(path: Path, why: str, at_ms: float | None = None) -> bool:
    """Seal the history of a program that ended without closing it. Return False if there is no file, or if it is empty
    or closed. Raises BlockingIOError while a process still writes the file."""
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return False
    try:
        _lock_file(file, 0.0)
        return _seal(file, why, time.time() * 1000 if at_ms is None else at_ms)
    finally:
        os.close(file)


def is_closed(path: Path) -> bool:
    """Return whether the last line of a history is an end or a seal; False if the file cannot be read."""
    try:
        return _has_end(path.read_bytes())
    except OSError:
        return False


def _lock_file(file: int, wait_seconds: float) -> None:
    """Lock the file for writing. Raises BlockingIOError if another process holds the lock after `wait_seconds`."""
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOCK_POLL_SECONDS)
        else:
            return


def _seal(file: int, why: str, at_ms: float) -> bool:
    data = _contents(file)
    if not data or _has_end(data):
        return False
    torn = not data.endswith(b"\n")
    if torn:
        os.write(file, b"\n")
        data += b"\n"
    closing = {"lines": data.count(b"\n"), "digest": hashlib.sha256(data).hexdigest(), "torn": torn}
    line = {
        "at_ms": round(at_ms, 3),
        "actor": "seal",
        "op": "seal",
        "outcome": "fact",
        **closing,
        "detail": why,
    }
    os.write(file, as_line(line).encode() + b"\n")
    return True


def _has_end(data: bytes) -> bool:
    """Return whether the last line of this content is an end or a seal."""
    if not data.endswith(b"\n"):
        return False
    try:
        last = json.loads(data[data.rfind(b"\n", 0, len(data) - 1) + 1 :])
        return isinstance(last, dict) and last.get("op") in ("end", "seal")
    except ValueError:
        return False


def _read_digest_and_count(file: int) -> tuple[hashlib._Hash, int]:
    data = _contents(file)
    return hashlib.sha256(data), data.count(b"\n")


def _contents(file: int) -> bytes:
    with open(os.dup(file), "rb") as stream:
        stream.seek(0)
        return stream.read()
