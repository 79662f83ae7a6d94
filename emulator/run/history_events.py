"""Events of a history: their fields, digests and details, and a reader of history files (docs/HISTORY.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from emulator.model.values import SOURCE_POSITION_PROPERTY
from emulator.run.history_schema import FORMAT_VERSION, FRAME

Outcome = Literal["asked", "ok", "failed", "unknown", "fact"]
"""asked: the operation was requested. ok: it certainly happened. failed: it certainly did not happen.
unknown: it may have happened. fact: an event without a request, such as a kill or a phase of the scenario."""


@dataclass(slots=True)
class HistoryEvent:
    """One event, a line of a history. Fields that do not apply are None and omitted from the line; `history_schema`
    defines the fields of each operation.

    Treat events as immutable. The class is not frozen, because creating frozen instances takes three times as long, and
    a simulated scenario creates 1300 of them in a tenth of a second.
    """

    at_ms: float
    actor: str
    """Name of the actor, such as `producer-us-east`, `consumer-orders` or `scenario`."""
    op: str
    outcome: Outcome
    region: str | None = None
    """The region that received the request, or to which the fact applies."""
    other_region: str | None = None
    """The second region of a fact about a link or a move."""
    topic: str | None = None
    subscription: str | None = None
    origin_region: str | None = None
    """The region where the message was published. With `producer` and `sequence_id` it identifies the message."""
    producer: str | None = None
    sequence_id: int | None = None
    """Sequence id of the message on the wire."""
    message_id: str | None = None
    """Message id in `region`, as `ledger:entry:batch_index`."""
    error: str | None = None
    detail: str | None = None
    session: str | None = None
    """Name of one opened producer; each opening of a producer has another session."""
    last_sequence_id: int | None = None
    """Last sequence id that the region stored for the producer name, as returned when the producer was opened; -1:
    none."""
    topic_epoch: int | None = None
    """Topic epoch that the region returned to a producer with exclusive access."""
    payload_digest: str | None = None
    attributes_digest: str | None = None
    key: str | None = None
    """Key of the message, as published."""
    replicate_to: list[str] | None = None
    replicated: bool | None = None
    initial: str | None = None
    compacted: bool | None = None
    """Whether the subscriber reads the compacted topic: only the newest message of each key must be delivered."""
    how: str | None = None
    """Kind of an acknowledgement: individual or cumulative."""
    transaction: str | None = None
    """Transaction id, as `most,least`: of the transaction that begins or ends, of a publish or acknowledgement, or in
    which a received message is processed."""
    action: str | None = None
    """Requested end of a transaction: commit or abort."""
    transaction_key: str | None = None
    """Transaction key of the client that begins a transaction."""
    key_epoch: int | None = None
    """Client epoch that the region returned for the transaction key."""
    plan: Mapping[str, Any] | None = None
    """Figures of a fail-over plan from `region` to `other_region`."""
    file: str | None = None
    """Name of another history file of the run, without suffix."""

    def to_line(self) -> str:
        """Return the event as a line, without a newline."""
        fields = ((name, getattr(self, name)) for name in self.__slots__)
        return as_line({name: value for name, value in fields if value is not None})


def payload_digest(payload: bytes) -> str:
    """Return the digest of a payload as the application published it, before compression and encryption."""
    return hashlib.blake2b(payload, digest_size=8).hexdigest()


def attributes_digest(
    key: str | bytes | None = None,
    properties: Mapping[str, str | bytes] | None = None,
    event_time_ms: int = 0,
    ordering_key: bytes | None = None,
) -> str | None:
    """Return the digest of a message's attributes that an application sets; None if it sets none.

    The digest covers key, ordering key, event time in decimal digits, then name and value of each property, sorted by
    name. Each part is preceded by its length in four bytes, big endian; all bits are 1 for a missing part. The property
    that replication adds is left out.
    """
    published = {name: text for name, text in (properties or {}).items() if name != SOURCE_POSITION_PROPERTY}
    if key is None and not published and not event_time_ms and ordering_key is None:
        return None
    pairs = sorted((_bytes(name), _bytes(text)) for name, text in published.items())
    parts = [
        None if key is None else _bytes(key),
        ordering_key,
        str(event_time_ms).encode(),
        *(text for pair in pairs for text in pair),
    ]
    joined = b"".join(
        b"\xff\xff\xff\xff" if part is None else len(part).to_bytes(4, "big") + part for part in parts
    )
    return hashlib.blake2b(joined, digest_size=8).hexdigest()


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def skew_detail(ahead_ms: int, drift_ppm: float = 0.0) -> str:
    """Return the `detail` of a `skew` fact."""
    drift = f", drift {drift_ppm:+g} ppm" if drift_ppm else ""
    return f"clock {ahead_ms:+d} ms{drift}"


def latency_in(detail: str) -> float:
    """Return the milliseconds in the `detail` of a `latency` or `profile` fact. Raises ValueError for other text."""
    return float(detail.partition(" ms ")[0].rpartition(" ")[2])


def transaction_text(transaction: tuple[int, int] | None) -> str | None:
    """Return a transaction id as histories contain it: `most,least`."""
    return None if transaction is None else f"{transaction[0]},{transaction[1]}"


def as_line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def framed(events: Iterable[HistoryEvent], actor: str, run: str, *, others: Iterable[str] = ()) -> str:
    """Return the content of a complete history file: head, these events and end."""
    listed = list(events)
    first_ms, last_ms = (listed[0].at_ms, listed[-1].at_ms) if listed else (0.0, 0.0)
    head = {"at_ms": first_ms, "actor": actor, "op": "head", "outcome": "fact", "format": FORMAT_VERSION}
    lines = [as_line({**head, "run": run, "others": list(others)}), *(event.to_line() for event in listed)]
    body = "".join(f"{line}\n" for line in lines)
    end = {"at_ms": last_ms, "actor": actor, "op": "end", "outcome": "fact", "lines": len(lines)}
    return body + as_line({**end, "digest": hashlib.sha256(body.encode()).hexdigest()}) + "\n"


def read_events(path: Path) -> Iterator[HistoryEvent]:
    """Yield the events of one file in order, without head, end and seal. A torn, unsealed last line is skipped; for any
    other invalid line, ValueError is raised with its number."""
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            read = json.loads(line)
            if read.get("op") not in FRAME:
                yield HistoryEvent(**read)
        except (ValueError, TypeError, AttributeError) as problem:
            if number == len(lines):
                return
            raise ValueError(f"{path}:{number}: not a history event: {problem}") from problem
