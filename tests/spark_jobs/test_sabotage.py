"""Manipulated evidence: each manipulation gives an invalid or unknown verdict with a witness (docs/HISTORY.md, table).

A small run is changed in memory, or on disk after it was written, as by a faulty region or an attacker.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emulator.model.markers import Snapshot, SubscriptionUpdate
from emulator.model.stored_keys import CursorKey, GrantKey
from emulator.run.history_events import transaction_text
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry, with_replication, with_transaction
from emulator.wire.markers import encode_marker, encode_transaction_end
from emulator.wire.message_metadata import read_metadata, scan_entry
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.verdict import Verdict
from spark_jobs.verify import evaluate_run

from .sample_run import TOPIC, SampleRun, place, store_entries

MESSAGES = 6
EAST, WEST, EU = "us-east", "us-west", "eu-central"


def small_run(*, replicated: bool = True) -> SampleRun:
    """us-east and eu-central publish in turns; billing receives and acknowledges every message in us-east."""
    run = SampleRun()
    run.fact(0.0, "phase", detail="it begins")
    run.subscribe(EAST, 0.1, replicated=replicated)
    for number in range(MESSAGES):
        run.publish(EAST, number, 1 + number)
        run.publish(EU, number, 1.5 + number)
    for entry in range(2 * MESSAGES):
        run.receive(EAST, EAST if entry % 2 == 0 else EU, entry // 2, 10 + entry, entry)
        run.acknowledge(EAST, entry, 10.5 + entry)
    return run


def entry_with(run: SampleRun, region: str, entry: int, **fields: object) -> None:
    """Rewrite one entry's metadata, with a valid checksum."""
    data = run.logs[region][entry]
    metadata = read_metadata(data)
    metadata.MergeFrom(pb.MessageMetadata(**fields))  # type: ignore[arg-type]
    run.logs[region][entry] = build_entry(metadata, data[scan_entry(data).payload_offset :])


def wrong_checksum(run: SampleRun) -> None:
    data = run.logs[WEST][4]
    run.logs[WEST][4] = data[:-1] + bytes([data[-1] ^ 1])


def other_payload_everywhere(run: SampleRun) -> None:
    for region in run.regions:
        data = run.logs[region][4]
        run.logs[region][4] = build_entry(read_metadata(data), b"another payload")


def no_sources(run: SampleRun) -> None:
    """Every entry of us-west names the same source position."""
    run.logs[WEST] = [
        with_replication(data, str(scan_entry(data).replicated_from), place(EAST, 0))
        for data in run.logs[WEST]
    ]


def regrouped(run: SampleRun) -> None:
    """Store the messages of one producer after those of the other in us-west; us-east interleaved them."""
    east = [data for data in run.logs[WEST] if scan_entry(data).replicated_from == EAST]
    others = [data for data in run.logs[WEST] if data not in east]
    by_producer = sorted(east, key=lambda data: scan_entry(data).producer_name)
    run.logs[WEST] = [*others, *by_producer]


def two_producers() -> SampleRun:
    run = SampleRun()
    for number in range(MESSAGES):
        for producer in ("pa", "pb"):
            run.publish(EAST, number, 1 + number, producer=producer)
    return run


def restricted(run: SampleRun) -> None:
    """Remove an entry from two regions, and restrict the remaining copy to its own region."""
    entry_with(run, EAST, 10, replicate_to=[EAST])
    for region in (WEST, EU):
        run.logs[region].pop(10)


def without(**wanted: object) -> Callable[[SampleRun], None]:
    """Remove the lines with these fields from the history."""

    def damage(run: SampleRun) -> None:
        before = len(run.events)
        run.events[:] = [
            event
            for event in run.events
            if not wanted.items() <= {"op": event[2], "outcome": event[3], **flat(event[4])}.items()
        ]
        assert len(run.events) < before

    return damage


def flat(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if isinstance(value, (str, int))}


def edit(path: Path, region: str, statement: str, *values: object) -> None:
    """Execute a statement on the SQLite log of a region."""
    with closing(sqlite3.connect(path / "regions" / region / "log.sqlite")) as database, database:
        database.execute(statement, values)


def foreign_topic(path: Path) -> None:
    metadata = pb.MessageMetadata(producer_name="forger", sequence_id=0, publish_time=1)
    log = path / "regions" / WEST / "log.sqlite"
    asyncio.run(store_entries(log, WEST, [build_entry(metadata, b"x")], topic=f"{TOPIC}-2"))


def cut(name: str, lines: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        file = path / "history" / name
        kept = file.read_text().splitlines(keepends=True)[:lines]
        file.write_text("".join(kept))

    return damage


def torn(path: Path) -> None:
    file = path / "history/scenario.jsonl"
    file.write_bytes(file.read_bytes()[:-30])


def edited(old: str, new: str, name: str = "orders-us-east") -> Callable[[Path], None]:
    """Edit a history file and write a matching digest."""

    def damage(path: Path) -> None:
        import hashlib

        file = path / "history" / f"{name}.jsonl"
        body, end = file.read_text().replace(old, new).rsplit("\n", 2)[:2]
        line = json.loads(end) | {"digest": hashlib.sha256(f"{body}\n".encode()).hexdigest()}
        file.write_text(f"{body}\n{json.dumps(line)}\n")

    return damage


def cursor_at(mark_delete: int, region: str = EAST) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        value = json.dumps({"format": 1, "mark_delete": mark_delete, "ranges": []}).encode()
        key = CursorKey(TOPIC, "billing").text
        edit(path, region, "INSERT INTO key_values VALUES (?, ?, 1)", key, value)

    return change


def two_owners() -> SampleRun:
    """A run in which pa has exclusive access to the topic in us-east, then pb."""
    run = SampleRun()
    for epoch, producer in enumerate(("pa", "pb")):
        for number in range(MESSAGES):
            run.publish(EAST, number, 1 + MESSAGES * epoch + number, producer=producer)
        run.change("connect", "ok", only=epoch, topic_epoch=epoch)
    return run


def granted(epoch: int, owner: str, first: int, /, **said: object) -> Callable[[Path], None]:
    """Add a grant to the store of us-east."""

    def change(path: Path) -> None:
        row = {"epoch": epoch, "owner": owner, "first_entry": first, "end_entry": None, "why": "", "at_ms": 1}
        value = json.dumps(row | said).encode()
        key = GrantKey.of(TOPIC, epoch).text
        edit(path, EAST, "INSERT OR REPLACE INTO key_values VALUES (?, ?, 1)", key, value)

    return change


def both_granted(path: Path) -> None:
    granted(0, "pa", 0)(path)
    granted(1, "pb", MESSAGES)(path)


def but(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    """Store the grants of pa and pb, then apply these changes."""

    def change(path: Path) -> None:
        both_granted(path)
        for one in changes:
            one(path)

    return change


def unacknowledged(run: SampleRun) -> None:
    """Remove the acknowledgements of the last four messages."""
    run.events = [one for one in run.events if not (one[2] == "acknowledge" and one[1] > run.time_ms(18.4))]


def snapshot(run: SampleRun, local: int, other: int) -> None:
    """Store a snapshot in us-west: a subscription that acknowledged up to `local` here has acknowledged up to `other`
    in us-east."""
    said = Snapshot("s", place(WEST, local), ((EAST, place(EAST, other)),))
    run.store(WEST, encode_marker(said, 1, (WEST,))[0])


def update(run: SampleRun, upto: int) -> None:
    said = SubscriptionUpdate("billing", ((WEST, place(WEST, upto)),))
    run.store(EAST, encode_marker(said, 1, (WEST,))[0])


def blind_in_west(run: SampleRun) -> None:
    """Add a subscription of the same name in us-west that does not receive two messages."""
    run.subscribe(WEST, 0.1, replicated=False)
    for entry in range(2 * MESSAGES):
        if entry not in (3, 4):
            run.receive(WEST, EAST if entry % 2 == 0 else EU, entry // 2, 30 + entry, entry)


def planned() -> SampleRun:
    """Billing acknowledges all messages in us-east. us-west has acknowledged the first eight of them when the fail-over
    is planned, and delivers the last four again."""
    run = small_run()
    figures: dict[str, object] = {"redelivered_messages": 4, "exact": True, "quiet": True}
    state = {"source_mark_delete": str(place(EAST, 11)), "target_last": str(place(WEST, 11))}
    plan = {"begun_at_ms": run.time_ms(30), **figures, **state}
    run.fact(
        30, "failover_plan", region=EAST, other_region=WEST, topic=TOPIC, subscription="billing", plan=plan
    )
    run.subscribe(WEST, 31)
    for entry in range(8, 2 * MESSAGES):
        run.receive(WEST, EAST if entry % 2 == 0 else EU, entry // 2, 31 + entry, entry)
        run.acknowledge(WEST, entry, 31.5 + entry)
    return run


def with_plan(**changed: object) -> Callable[[SampleRun], None]:
    """Change fields of the recorded plan."""

    def damage(run: SampleRun) -> None:
        (fields,) = (event[4] for event in run.events if event[2] == "failover_plan")
        plan = {**fields["plan"], **changed}  # type: ignore[dict-item]
        fields["plan"] = {name: value for name, value in plan.items() if value is not None}

    return damage


def finished_in_west(path: Path) -> None:
    cursor_at(11, WEST)(path)


def converged() -> SampleRun:
    """Billing acknowledges all messages in us-east. A snapshot there covers them, and its update reached us-west. Then
    nothing happens for half a minute."""
    run = small_run()
    positions = ((WEST, place(WEST, 11)), (EU, place(EU, 11)))
    run.store(EAST, encode_marker(Snapshot("s", place(EAST, 11), positions), 1, (EAST,))[0])
    for region in (WEST, EU):
        run.store(region, with_replication(run.logs[EAST][store_update(run)], EAST, place(EAST, 13)))
    run.fact(60, "phase", detail="nothing happened for half a minute")
    return run


def other_snapshot(run: SampleRun) -> None:
    said = Snapshot("s", place(EAST, 11), ((WEST, place(WEST, 10)), (EU, place(EU, 10))))
    run.logs[EAST][12] = encode_marker(said, 1, (EAST,))[0]


def store_update(run: SampleRun) -> int:
    """Store the update of the snapshot in us-east, unless it is there. Returns its entry id."""
    if len(run.logs[EAST]) == 13:
        positions = ((WEST, place(WEST, 11)), (EU, place(EU, 11)))
        run.store(EAST, encode_marker(SubscriptionUpdate("billing", positions), 1, (WEST, EU))[0])
    return 13


def cursors(**changed: int | None) -> Callable[[Path], None]:
    """Store replicated cursors that count everything. `changed`: region -> other mark-delete; None: no cursor."""

    def change(path: Path) -> None:
        for region in (EAST, WEST, EU):
            mark_delete = changed.get(region.replace("-", "_"), 11)
            if mark_delete is not None:
                head = {"format": 2, "write": 1, "generation": 0, "mark_delete": mark_delete}
                state = {"highest_acked": 11, "ahead_of_peers": region == EAST, "replicated": True}
                value = json.dumps(head | state).encode()
                edit(
                    path,
                    region,
                    "INSERT INTO key_values VALUES (?, ?, 1)",
                    CursorKey(TOPIC, "billing").text,
                    value,
                )

    return change


COMMITTED, ABORTED, OPEN = (0, 1), (0, 2), (1, 0)


def transactions() -> SampleRun:
    """us-east stores a plain message, two of a committed transaction, one of an aborted one, a plain one, and one of an
    open transaction. Billing receives and acknowledges the visible messages in us-east."""
    run = SampleRun()
    run.fact(0.0, "phase", detail="it begins")
    run.subscribe(EAST, 0.1)
    run.publish(EAST, 0, 1)
    run.publish(EAST, 1, 2, transaction=COMMITTED)
    run.publish(EAST, 2, 3, transaction=COMMITTED)
    run.end(EAST, COMMITTED, 4, commit=True)
    run.publish(EAST, 3, 5, transaction=ABORTED, to=[EAST])
    run.end(EAST, ABORTED, 6, commit=False)
    run.publish(EAST, 4, 7)
    run.publish(EAST, 5, 8, transaction=OPEN, to=[EAST])
    for number, entry in enumerate((0, 1, 2)):
        run.receive(EAST, EAST, number, 10 + number, entry)
        run.acknowledge(EAST, entry, 10.5 + number)
    run.receive(EAST, EAST, 4, 13, 6)
    run.acknowledge(EAST, 6, 14)
    return run


def open_replicated(run: SampleRun) -> None:
    data = run.logs[EAST][7]
    run.logs[WEST].append(with_replication(data, EAST, place(EAST, 7)))


def end_marker(run: SampleRun, entry: int, transaction: tuple[int, int], *, commit: bool) -> None:
    run.logs[EAST][entry] = encode_transaction_end(transaction, 1, committed=commit)[0]


def stored_plain(run: SampleRun) -> None:
    data = run.logs[EAST][4]
    metadata = read_metadata(data)
    metadata.ClearField("txnid_most_bits")
    metadata.ClearField("txnid_least_bits")
    run.logs[EAST][4] = build_entry(metadata, data[scan_entry(data).payload_offset :])


def torn_in_two(path: Path) -> None:
    """Add a message of the committed transaction to a second topic, where its marker is an abort."""
    import asyncio

    metadata = pb.MessageMetadata(producer_name="other", sequence_id=0, publish_time=1)
    entry = with_transaction(build_entry(metadata, b"other"), COMMITTED)
    end, _ = encode_transaction_end(COMMITTED, 1, committed=False)
    log = path / "regions" / EAST / "log.sqlite"
    asyncio.run(store_entries(log, EAST, [entry, end], topic="persistent://public/default/second"))


KEY = "settlement"
FIRST, FENCED, SECOND = (0, 10), (0, 11), (0, 12)
"""Transactions under the key: two of task-1, the second of which is fenced, and one of task-2."""


def keyed() -> SampleRun:
    """In us-east task-1 settles an order and begins a transaction; task-2 takes the key and settles another order."""
    run = SampleRun()
    run.fact(0.0, "phase", detail="it begins")
    run.publish(EAST, 0, 1)
    run.publish(EAST, 1, 1.5)
    run.subscribe(EAST, 2, "settling", replicated=False)
    task_begins(run, "task-1", FIRST, 3, epoch=0)
    settles(run, FIRST, 0, 4)
    task_commits(run, "task-1", FIRST, 5)
    task_begins(run, "task-1", FENCED, 6, epoch=0)
    task_begins(run, "task-2", SECOND, 7, epoch=1)
    settles(run, SECOND, 1, 8)
    task_commits(run, "task-2", SECOND, 9)
    return run


def task_begins(run: SampleRun, task: str, transaction: tuple[int, int], at_s: float, *, epoch: int) -> None:
    said = {"region": EAST, "transaction_key": KEY}
    run.tell(task, at_s - 0.001, "begin_transaction", "asked", **said)
    told = {"transaction": transaction_text(transaction), "key_epoch": epoch}
    run.tell(task, at_s, "begin_transaction", "ok", **said, **told)


def task_commits(run: SampleRun, task: str, transaction: tuple[int, int], at_s: float) -> None:
    said = {"region": EAST, "transaction": transaction_text(transaction), "action": "commit"}
    run.tell(task, at_s, "end_transaction", "asked", **said)
    run.tell(task, at_s + 0.001, "end_transaction", "ok", **said)


def settles(run: SampleRun, transaction: tuple[int, int], entry: int, at_s: float) -> None:
    """Receive and acknowledge a message in a transaction."""
    run.receive(EAST, EAST, entry, at_s, entry, "settling")
    run.acknowledge(EAST, entry, at_s + 0.1, "settling")
    for event in run.events[-2:]:
        event[4]["transaction"] = transaction_text(transaction)


def began(transaction: tuple[int, int], epoch: int) -> list[object]:
    return ["began", transaction[1], 60_000, 1, ["", KEY, epoch]]


def decided(transaction: tuple[int, int], status: str) -> list[object]:
    return ["decided", transaction[1], status, ""]


def key_granted(epoch: int, process: str) -> list[object]:
    return ["granted", "", KEY, epoch, process, 1]


JOURNAL = [
    began(FIRST, 0),
    decided(FIRST, "COMMITTING"),
    began(FENCED, 0),
    decided(FENCED, "ABORTING"),
    began(SECOND, 1),
    decided(SECOND, "COMMITTING"),
]
KEY_JOURNAL = [["floor", -1, 4], key_granted(0, "one"), key_granted(1, "two")]


def coordinator(
    *,
    instead: Sequence[list[object]] = JOURNAL,
    keys: Sequence[list[object]] = KEY_JOURNAL,
    also: Sequence[bytes] = (),
) -> Callable[[Path], object]:
    """Write the journals of coordinator 0 in us-east."""

    def store(path: Path) -> None:
        log = path / "regions" / EAST / "log.sqlite"
        for kind, entries in (("log", instead), ("key", keys)):
            lines = [json.dumps(entry).encode() for entry in entries]
            topic = f"internal://pulsar/system/__transaction_{kind}_0"
            asyncio.run(store_entries(log, EAST, [*lines, *also], topic=topic))

    return store


@dataclass(frozen=True)
class Sabotage:
    name: str
    verdict: Verdict
    check: str
    """Invariant or name of the check that reports the manipulation."""
    kind: str
    """Text of the check's witness, or else of its sentence."""
    in_memory: Callable[[SampleRun], object] | None = None
    on_disk: Callable[[Path], object] | None = None
    run: Callable[[], SampleRun] = small_run

    def write(self, path: Path) -> Path:
        """Write the run directory with the manipulated evidence."""
        run = self.run()
        if self.in_memory is not None:
            self.in_memory(run)
        run.write(path)
        if self.on_disk is not None:
            self.on_disk(path)
        return path


def invalid(check: str, name: str, kind: str, *changes: Any, **more: Any) -> Sabotage:
    return Sabotage(name, "invalid", check, kind, *changes, **more)


def unknown(check: str, name: str, kind: str, *changes: Any, **more: Any) -> Sabotage:
    return Sabotage(name, "unknown", check, kind, *changes, **more)


def incomplete(name: str, kind: str, *changes: Any, **more: Any) -> Sabotage:
    return unknown("evidence-complete", name, kind, *changes, **more)


SABOTAGES = [
    invalid("INV-3", "a checksum that is wrong", "corrupt", wrong_checksum),
    invalid("INV-3", "another payload everywhere", "other payload", other_payload_everywhere),
    invalid(
        "INV-6",
        "another key in one region",
        "differs",
        lambda run: entry_with(run, WEST, 4, partition_key="k"),
    ),
    invalid(
        "INV-3",
        "another key everywhere",
        "other attributes",
        lambda run: [entry_with(run, region, 4, partition_key="k") for region in run.regions],
    ),
    invalid(
        "INV-6",
        "another publish time in one region",
        "differs",
        lambda run: entry_with(run, WEST, 4, publish_time=7),
    ),
    invalid("INV-4", "invented source positions", "wrong source", no_sources),
    invalid(
        "INV-4",
        "the messages of one producer stored after those of the other, in one region",
        "out of the origin's order",
        regrouped,
        run=two_producers,
    ),
    invalid(
        "INV-3",
        "a restriction to regions that the client did not set, added to an entry; its other copies removed",
        "restricted",
        restricted,
    ),
    invalid("INV-2", "the same change, found by the missing copies", "behind", restricted),
    invalid(
        "INV-2",
        "the beginning of a log removed",
        "missing",
        on_disk=lambda path: edit(path, WEST, "UPDATE logs SET first_entry_id = 6"),
    ),
    unknown("INV-3", "an entry on a topic that no client used", "unknown producer", on_disk=foreign_topic),
    incomplete(
        "no scenario's history",
        "scenario.jsonl is missing",
        on_disk=lambda path: (path / "history/scenario.jsonl").unlink(),
    ),
    incomplete("a scenario's history truncated", "has no end", on_disk=cut("scenario.jsonl", 2)),
    incomplete("a scenario's history truncated within a line", "has no end", on_disk=torn),
    incomplete("a producer's history truncated", "no end", on_disk=cut("orders-us-east.jsonl", 6)),
    incomplete("a consumer's history truncated", "has no end", on_disk=cut("billing.jsonl", 6)),
    incomplete("an unknown region", "must be a region", on_disk=edited(EAST, "atlantis")),
    incomplete("an unknown operation", "op: must be", on_disk=edited("publish", "publsh")),
    incomplete(
        "a response to a publish that was never invoked",
        "which it never published",
        without(op="publish", outcome="asked", region=EAST, sequence_id=3),
    ),
    incomplete("a session that was never opened", "has no line that opens it", without(op="connect")),
    incomplete(
        "deliveries without a subscribe",
        "where no line says that it subscribed",
        without(op="subscribe", region=EAST),
    ),
    invalid(
        "INV-13",
        "receipts with other message ids",
        "acknowledged with a wrong message id",
        lambda run: run.change("publish", "ok", message_id=f"{place(EAST, 77)}:-1", only=2),
    ),
    invalid(
        "INV-13",
        "deliveries with other message ids",
        "delivered with a wrong message id",
        lambda run: run.change("receive", "ok", message_id=f"{place(EAST, 77)}:-1", only=2),
    ),
    invalid(
        "INV-13",
        "deliveries with another payload",
        "delivered with another payload",
        lambda run: run.change("receive", "ok", payload_digest="0" * 16, only=2),
    ),
    invalid("INV-18", "a cursor moved forward", "counted as consumed", unacknowledged, cursor_at(11)),
    invalid("INV-18", "a cursor beyond the end of the log", "beyond the end", on_disk=cursor_at(12)),
    invalid(
        "INV-12",
        "a snapshot with positions that are too high",
        "broken snapshot",
        lambda run: snapshot(run, 6, 8),
    ),
    invalid(
        "INV-12",
        "an update of messages that were not acknowledged",
        "broken update",
        lambda run: (unacknowledged(run), update(run, 11)),
    ),
    invalid(
        "INV-12",
        "the snapshot of an update changed",
        "without snapshot",
        other_snapshot,
        cursors(),
        run=converged,
    ),
    invalid(
        "INV-12",
        "a message removed from the log of a region whose snapshot covers it",
        "unreceived",
        lambda run: run.logs[EAST].pop(11),
        run=converged,
    ),
    invalid(
        "INV-128",
        "a cursor moved back behind an update",
        "not applied",
        on_disk=cursors(us_west=7),
        run=converged,
    ),
    invalid(
        "INV-128",
        "an update removed from the log of its receiver, whose cursor does not count it",
        "not replicated",
        lambda run: run.logs[WEST].pop(),
        cursors(us_west=7),
        run=converged,
    ),
    invalid(
        "INV-128",
        "an update removed from all logs",
        "not sent",
        lambda run: [run.logs[region].pop() for region in run.regions],
        cursors(us_west=7, eu_central=7),
        run=converged,
    ),
    unknown(
        "INV-128",
        "a cursor deleted in a region that stores an update",
        "without a cursor",
        on_disk=cursors(us_west=None),
        run=converged,
    ),
    invalid(
        "INV-5",
        "a subscription of one region skips messages",
        "skipped",
        blind_in_west,
        run=lambda: small_run(replicated=False),
    ),
    invalid(
        "INV-25",
        "an entry of another producer in an owner's epoch",
        "entry of another producer",
        lambda run: run.publish(EAST, MESSAGES, 20, producer="pa"),
        both_granted,
        run=two_owners,
    ),
    unknown(
        "INV-25",
        "a grant deleted",
        "missing grant",
        on_disk=but(
            lambda path: edit(path, EAST, "DELETE FROM key_values WHERE key = ?", GrantKey.of(TOPIC, 0).text)
        ),
        run=two_owners,
    ),
    unknown(
        "INV-25",
        "a grant that cannot be read",
        "unreadable grant",
        on_disk=but(granted(0, "pa", 0, epoch=None)),
        run=two_owners,
    ),
    invalid(
        "INV-25",
        "an epoch that decreases",
        "epoch decreases",
        on_disk=but(granted(1, "pb", MESSAGES, epoch=0)),
        run=two_owners,
    ),
    invalid(
        "INV-25",
        "the owner of an epoch changed",
        "entry of another producer",
        on_disk=but(granted(1, "pc", MESSAGES)),
        run=two_owners,
    ),
    invalid(
        "INV-25",
        "an epoch returned to another producer",
        "epoch returned without a grant",
        on_disk=but(granted(1, "pc", 2 * MESSAGES)),
        run=two_owners,
    ),
    invalid(
        "INV-25",
        "the beginning of an epoch moved",
        "entry of another producer",
        on_disk=but(granted(1, "pb", MESSAGES - 2)),
        run=two_owners,
    ),
    invalid(
        "INV-59",
        "an aborted message delivered to a consumer",
        "delivered although not committed",
        lambda run: run.receive(EAST, EAST, 3, 15, 4),
        run=transactions,
    ),
    invalid(
        "INV-59",
        "a message of an open transaction replicated",
        "replicated although not committed",
        open_replicated,
        run=transactions,
    ),
    invalid(
        "INV-58",
        "the marker of a commit removed",
        "committed but not visible",
        lambda run: end_marker(run, 3, (9, 9), commit=True),
        run=transactions,
    ),
    invalid(
        "INV-58",
        "an aborted transaction committed",
        "aborted but visible",
        lambda run: end_marker(run, 5, ABORTED, commit=True),
        run=transactions,
    ),
    invalid(
        "INV-58",
        "a message stored outside its transaction",
        "outside its transaction",
        stored_plain,
        run=transactions,
    ),
    invalid(
        "INV-58",
        "a transaction committed in one topic and aborted in another",
        "partly committed",
        on_disk=torn_in_two,
        run=transactions,
    ),
    invalid(
        "INV-18",
        "an acknowledgement of an aborted transaction counted",
        "counted as consumed",
        lambda run: run.change("acknowledge", "asked", only=3, transaction=transaction_text(ABORTED)),
        cursor_at(6),
        run=transactions,
    ),
    invalid(
        "INV-70",
        "an older transaction of a key left open",
        "two open transactions",
        on_disk=coordinator(instead=[entry for entry in JOURNAL if entry[:2] != ["decided", FENCED[1]]]),
        run=keyed,
    ),
    invalid(
        "INV-70",
        "a fenced transaction committed",
        "committed after it was fenced",
        lambda run: task_commits(run, "task-1", FENCED, 7.5),
        coordinator(),
        run=keyed,
    ),
    invalid(
        "INV-71",
        "an epoch of a key that decreases",
        "epoch decreases",
        on_disk=coordinator(keys=[*KEY_JOURNAL, key_granted(3, "three"), key_granted(2, "four")]),
        run=keyed,
    ),
    invalid(
        "INV-71",
        "an epoch of a key granted to two processes",
        "granted twice",
        on_disk=coordinator(keys=[*KEY_JOURNAL, key_granted(1, "three")]),
        run=keyed,
    ),
    invalid(
        "INV-71",
        "a transaction begun under an epoch that was never granted",
        "begun without a grant",
        on_disk=coordinator(instead=[*JOURNAL, began((0, 13), 2)]),
        run=keyed,
    ),
    invalid(
        "INV-71",
        "an epoch of a key returned to two clients",
        "one epoch returned to two clients",
        lambda run: run.change("begin_transaction", "ok", only=2, key_epoch=0),
        coordinator(),
        run=keyed,
    ),
    invalid(
        "INV-71",
        "the log of the keys removed",
        "epoch returned without a grant",
        on_disk=coordinator(keys=[]),
        run=keyed,
    ),
    incomplete(
        "a coordinator's log that cannot be read",
        "cannot be read",
        on_disk=coordinator(also=[b"torn"]),
        run=keyed,
    ),
    invalid(
        "INV-72",
        "a message acknowledged in two committed transactions",
        "acknowledged twice",
        lambda run: settles(run, SECOND, 0, 8.5),
        coordinator(),
        run=keyed,
    ),
    invalid(
        "INV-125",
        "a plan that states fewer redeliveries than follow",
        "more than planned",
        with_plan(redelivered_messages=3),
        run=planned,
    ),
    invalid(
        "INV-125",
        "an exact plan that states more redeliveries than follow",
        "fewer than planned",
        with_plan(redelivered_messages=5),
        finished_in_west,
        run=planned,
    ),
    invalid(
        "INV-125",
        "a plan without a response of its source that states fewer messages than follow",
        "more than planned",
        with_plan(redelivered_messages=3, exact=False, source_mark_delete=None),
        run=planned,
    ),
    incomplete(
        "a plan with a number that cannot be",
        "must be a fail-over plan",
        on_disk=edited('"redelivered_messages":4', '"redelivered_messages":-4', "scenario"),
        run=planned,
    ),
]


@pytest.mark.parametrize(
    "sabotage",
    [
        pytest.param(one, id=one.name, marks=[] if number % 6 == 0 else pytest.mark.long)
        for number, one in enumerate(SABOTAGES)
    ],
)
def test_the_check_reports_it(engine: QueryEngine, tmp_path: Path, sabotage: Sabotage) -> None:
    evaluation = evaluate_run(engine, sabotage.write(tmp_path / "run"))
    (check,) = [one for one in evaluation.checks if sabotage.check in (one.invariant, one.name)]
    assert check.verdict == sabotage.verdict, verdicts(evaluation)
    assert evaluation.verdict in ("invalid", sabotage.verdict), verdicts(evaluation)
    assert sabotage.kind in check.sentence or sabotage.kind in {one.get("kind") for one in check.witness}, (
        check
    )


def verdicts(evaluation: Evaluation) -> str:
    return "\n".join(f"{one.verdict} {one.invariant} {one.sentence}" for one in evaluation.checks)


def untouched() -> SampleRun:
    run = small_run()
    snapshot(run, 11, 10)
    return run


def all_stored(path: Path) -> None:
    cursor_at(11)(path)
    granted(0, f"orders-{EAST}", 0)(path)


WITHOUT_TRANSACTIONS = (
    "INV-1",
    "INV-2",
    "INV-3",
    "INV-4",
    "INV-5",
    "INV-6",
    "INV-12",
    "INV-13",
    "INV-18",
    "INV-25",
)


@pytest.mark.parametrize(
    ("make", "on_disk", "valid"),
    [
        pytest.param(untouched, all_stored, WITHOUT_TRANSACTIONS, id="all"),
        pytest.param(two_producers, None, (), id="producers"),
        pytest.param(two_owners, both_granted, (), id="owners"),
        pytest.param(lambda: small_run(replicated=False), None, (), id="one region"),
        pytest.param(
            transactions, cursor_at(6), ("INV-1", "INV-5", "INV-18", "INV-58", "INV-59"), id="transactions"
        ),
        pytest.param(keyed, coordinator(), ("INV-70", "INV-71", "INV-72"), id="keys"),
        pytest.param(planned, finished_in_west, ("INV-5", "INV-18", "INV-125"), id="plan"),
        pytest.param(converged, cursors(), ("INV-12", "INV-18", "INV-128"), id="converged"),
    ],
)
def test_unchanged_evidence_is_valid(
    engine: QueryEngine,
    tmp_path: Path,
    make: Callable[[], SampleRun],
    on_disk: Callable[[Path], object] | None,
    valid: Sequence[str],
) -> None:
    """`valid`: the invariants whose checks have something to check."""
    path = make().write(tmp_path / "run")
    if on_disk is not None:
        on_disk(path)
    evaluation = evaluate_run(engine, path)
    assert evaluation.verdict == "valid", verdicts(evaluation)
    assert evaluation.checks[0].verdict == "valid", verdicts(evaluation)
    found = {one.invariant: one.verdict for one in evaluation.checks}
    assert {name: found[name] for name in valid} == dict.fromkeys(valid, "valid"), verdicts(evaluation)


def test_the_page_lists_every_sabotage() -> None:
    page = (Path(__file__).parents[2] / "docs" / "HISTORY.md").read_text()
    rows = page.split("<!-- sabotages: compared with the test -->")[1].split("<!-- end of sabotages -->")[0]
    assert [row for row in rows.splitlines() if row.startswith("| ")][1:] == table()


def table() -> list[str]:
    return [f"| {one.name} | {one.verdict} | {one.check} | {one.kind} |" for one in SABOTAGES]
