"""Events of a history: their fields, digests and details; reading them back from a file (docs/HISTORY.md)."""

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
"""asked: the operation began. ok: it certainly happened. failed: it certainly did not.
unknown: it may have. fact: something that simply happened (a kill, a phase of the scenario)."""


@dataclass(slots=True)
class HistoryEvent:
    """One line. Fields that do not apply are None and left out of the line; which apply to what, `history_format` says.

    Treat it as immutable. It is not frozen because creating a frozen one takes three times as long, and a simulated
    scenario creates 1300 of them in a tenth of a second.
    """

    at_ms: float
    actor: str
    """Who writes: `producer-us-east`, `consumer-orders`, `scenario`."""
    op: str
    outcome: Outcome
    region: str | None = None
    """The region talked to, or the one the fact is about."""
    other_region: str | None = None
    """Second end of a link fact."""
    topic: str | None = None
    subscription: str | None = None
    origin_region: str | None = None
    """With `producer` and `sequence_id`: the message's origin, its identity everywhere."""
    producer: str | None = None
    sequence_id: int | None = None
    """As it is on the wire."""
    message_id: str | None = None
    """`ledger:entry:batch_index` in `region`."""
    error: str | None = None
    detail: str | None = None
    session: str | None = None
    """One opened producer; another one of the same name has another."""
    last_sequence_id: int | None = None
    """What the region returned to a producer that was opened: the newest id that it has of that name, or -1."""
    topic_epoch: int | None = None
    """What the region returned to a producer that asked for exclusive access."""
    payload_digest: str | None = None
    attributes_digest: str | None = None
    key: str | None = None
    """The message's key, as its publisher gave it."""
    replicate_to: list[str] | None = None
    replicated: bool | None = None
    initial: str | None = None
    compacted: bool | None = None
    """The subscriber reads compacted: of each key it need not be given more than the newest message."""
    how: str | None = None
    """individual or cumulative."""
    transaction: str | None = None
    """`most,least` of the transaction that a publish or acknowledgement belongs to, in which what is received is
    processed, or that begins or ends."""
    action: str | None = None
    """commit or abort."""
    transaction_key: str | None = None
    """Of the client that begins a transaction."""
    key_epoch: int | None = None
    """What the region granted that client's connection under the key."""
    file: str | None = None
    """Another history file of the run, without its suffix."""

    def to_line(self) -> str:
        """The line, without its newline."""
        fields = ((name, getattr(self, name)) for name in self.__slots__)
        return as_line({name: value for name, value in fields if value is not None})


def payload_digest(payload: bytes) -> str:
    """Of a payload as the application gave it, before compression and encryption."""
    return hashlib.blake2b(payload, digest_size=8).hexdigest()


def attributes_digest(
    key: str | bytes | None = None,
    properties: Mapping[str, str | bytes] | None = None,
    event_time_ms: int = 0,
    ordering_key: bytes | None = None,
) -> str | None:
    """Of what an application says of a message beside its payload; None when it says nothing.

    The digest is made of these parts, each behind its length in four bytes (big endian; all ones for one that is not
    there): key, ordering key, event time in decimal digits, then name and value of each property, sorted by name. The
    property that replication adds says nothing of the application, which may have copied it.
    """
    said = {name: text for name, text in (properties or {}).items() if name != SOURCE_POSITION_PROPERTY}
    if key is None and not said and not event_time_ms and ordering_key is None:
        return None
    pairs = sorted((_bytes(name), _bytes(text)) for name, text in said.items())
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


def skew_detail(ahead_ms: int) -> str:
    """What the fact of a clock that was set says."""
    return f"clock {ahead_ms:+d} ms"


def latency_detail(milliseconds: float, *, one_way: bool) -> str:
    """`detail` of a `latency` fact."""
    return f"{milliseconds:g} ms {'one way' if one_way else 'both ways'}"


def latency_in(detail: str) -> float:
    """Milliseconds in the `detail` of a `latency` fact. ValueError when it is none."""
    return float(detail.partition(" ms ")[0])


def transaction_text(transaction: tuple[int, int] | None) -> str | None:
    """`most,least`, as histories call a transaction."""
    return None if transaction is None else f"{transaction[0]},{transaction[1]}"


def as_line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def framed(events: Iterable[HistoryEvent], actor: str, run: str, *, others: Iterable[str] = ()) -> str:
    """The whole file of an actor whose events were kept in memory, with head and end."""
    kept = list(events)
    first_ms, last_ms = (kept[0].at_ms, kept[-1].at_ms) if kept else (0.0, 0.0)
    head = {"at_ms": first_ms, "actor": actor, "op": "head", "outcome": "fact", "format": FORMAT_VERSION}
    lines = [as_line({**head, "run": run, "others": list(others)}), *(event.to_line() for event in kept)]
    body = "".join(f"{line}\n" for line in lines)
    end = {"at_ms": last_ms, "actor": actor, "op": "end", "outcome": "fact", "lines": len(lines)}
    return body + as_line({**end, "digest": hashlib.sha256(body.encode()).hexdigest()}) + "\n"


def read_events(path: Path) -> Iterator[HistoryEvent]:
    """Events of one file in order, without what frames them. A torn last line is skipped; any other bad line is a
    ValueError with its number."""
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
