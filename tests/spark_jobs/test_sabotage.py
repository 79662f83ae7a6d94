"""Evidence that was tampered with: each way ends invalid or unknown, with the witness (docs/HISTORY.md, table).

A small run is changed in memory, or on disk after it was written, the way a broken region or a forger would.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

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
from spark_jobs.verdict import INFORMATION, Verdict
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


def another_key(run: SampleRun) -> None:
    entry_with(run, WEST, 4, partition_key="k")


def another_key_everywhere(run: SampleRun) -> None:
    for region in run.regions:
        entry_with(run, region, 4, partition_key="k")


def another_publish_time(run: SampleRun) -> None:
    entry_with(run, WEST, 4, publish_time=7)


def no_sources(run: SampleRun) -> None:
    """Every entry of us-west names the same source position."""
    run.logs[WEST] = [
        with_replication(data, str(scan_entry(data).replicated_from), place(EAST, 0))
        for data in run.logs[WEST]
    ]


def regrouped(run: SampleRun) -> None:
    """The origin interleaved its two producers; us-west stored one after the other."""
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
    """Remove it from two regions; the copy that is left is addressed to no other region."""
    entry_with(run, EAST, 10, replicate_to=[EAST])
    for region in (WEST, EU):
        run.logs[region].pop(10)


def without(**wanted: object) -> Callable[[SampleRun], None]:
    """Remove these lines from the history."""

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


def moved_start(path: Path) -> None:
    with closing(sqlite3.connect(path / "regions" / WEST / "log.sqlite")) as database, database:
        database.execute("UPDATE logs SET first_entry_id = 6")


def foreign_topic(path: Path) -> None:
    metadata = pb.MessageMetadata(producer_name="forger", sequence_id=0, publish_time=1)
    log = path / "regions" / WEST / "log.sqlite"
    asyncio.run(store_entries(log, WEST, [build_entry(metadata, b"x")], topic=f"{TOPIC}-2"))


def without_scenario(path: Path) -> None:
    (path / "history/scenario.jsonl").unlink()


def cut(name: str, lines: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        file = path / "history" / name
        kept = file.read_text().splitlines(keepends=True)[:lines]
        file.write_text("".join(kept))

    return damage


def torn(path: Path) -> None:
    file = path / "history/scenario.jsonl"
    file.write_bytes(file.read_bytes()[:-30])


def edited(old: str, new: str) -> Callable[[Path], None]:
    """Edit the file and write a matching digest."""

    def damage(path: Path) -> None:
        import hashlib

        file = path / "history/orders-us-east.jsonl"
        body, end = file.read_text().replace(old, new).rsplit("\n", 2)[:2]
        line = json.loads(end) | {"digest": hashlib.sha256(f"{body}\n".encode()).hexdigest()}
        file.write_text(f"{body}\n{json.dumps(line)}\n")

    return damage


def cursor_at(mark_delete: int, region: str = EAST) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        value = json.dumps({"format": 1, "mark_delete": mark_delete, "ranges": []}).encode()
        with closing(sqlite3.connect(path / "regions" / region / "log.sqlite")) as database, database:
            database.execute(
                "INSERT INTO key_values VALUES (?, ?, 1)", (CursorKey(TOPIC, "billing").text, value)
            )

    return change


def two_owners() -> SampleRun:
    """In us-east pa has exclusive access to the topic, then pb."""
    run = SampleRun()
    for epoch, producer in enumerate(("pa", "pb")):
        for number in range(MESSAGES):
            run.publish(EAST, number, 1 + MESSAGES * epoch + number, producer=producer)
        run.change("connect", "ok", only=epoch, topic_epoch=epoch)
    return run


def interleaved(run: SampleRun) -> None:
    run.publish(EAST, MESSAGES, 20, producer="pa")


def granted(epoch: int, owner: str, first: int, /, **said: object) -> Callable[[Path], None]:
    """Add a grant to the store of us-east."""

    def change(path: Path) -> None:
        row = {"epoch": epoch, "owner": owner, "first_entry": first, "end_entry": None, "why": "", "at_ms": 1}
        value = json.dumps(row | said).encode()
        with closing(sqlite3.connect(path / "regions" / EAST / "log.sqlite")) as database, database:
            key = GrantKey.of(TOPIC, epoch).text
            database.execute("INSERT OR REPLACE INTO key_values VALUES (?, ?, 1)", (key, value))

    return change


def both_granted(path: Path) -> None:
    granted(0, "pa", 0)(path)
    granted(1, "pb", MESSAGES)(path)


def but(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    """Grant both, then apply these changes."""

    def change(path: Path) -> None:
        both_granted(path)
        for one in changes:
            one(path)

    return change


def no_first_grant(path: Path) -> None:
    with closing(sqlite3.connect(path / "regions" / EAST / "log.sqlite")) as database, database:
        database.execute("DELETE FROM key_values WHERE key = ?", (GrantKey.of(TOPIC, 0).text,))


def unacknowledged(run: SampleRun) -> None:
    """Remove the acknowledgements of the last four."""
    run.events = [one for one in run.events if not (one[2] == "acknowledge" and one[1] > run.time_ms(18.4))]


def snapshot(run: SampleRun, local: int, other: int) -> None:
    """Store a snapshot in us-west: a subscription that acknowledged up to `local` here has acknowledged up to `other`
    in us-east."""
    said = Snapshot("s", place(WEST, local), ((EAST, place(EAST, other)),))
    run.store(WEST, encode_marker(said, 1, (WEST,))[0])


def update(run: SampleRun, upto: int) -> None:
    said = SubscriptionUpdate("billing", ((WEST, place(WEST, upto)),))
    run.store(EAST, encode_marker(said, 1, (WEST,))[0])


def receipts_elsewhere(run: SampleRun) -> None:
    run.change("publish", "ok", message_id=f"{place(EAST, 77)}:-1", only=2)


def receives_elsewhere(run: SampleRun) -> None:
    run.change("receive", "ok", message_id=f"{place(EAST, 77)}:-1", only=2)


def receives_another(run: SampleRun) -> None:
    run.change("receive", "ok", payload_digest="0" * 16, only=2)


def blind_in_west(run: SampleRun) -> None:
    """Add a second subscription of that name, in us-west, which did not receive two of its messages."""
    run.subscribe(WEST, 0.1, replicated=False)
    for entry in range(2 * MESSAGES):
        if entry not in (3, 4):
            run.receive(WEST, EAST if entry % 2 == 0 else EU, entry // 2, 30 + entry, entry)


COMMITTED, ABORTED, OPEN = (0, 1), (0, 2), (1, 0)


def transactions() -> SampleRun:
    """us-east: a plain message, two of a committed transaction, one of an aborted one, a plain one, and one of a
    transaction without an end. Billing receives what it may, in us-east, and acknowledges it."""
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


def aborted_given(run: SampleRun) -> None:
    run.receive(EAST, EAST, 3, 15, 4)


def open_replicated(run: SampleRun) -> None:
    data = run.logs[EAST][7]
    run.logs[WEST].append(with_replication(data, EAST, place(EAST, 7)))


def aborted_marker(run: SampleRun, entry: int, transaction: tuple[int, int], *, commit: bool) -> None:
    run.logs[EAST][entry] = encode_transaction_end(transaction, 1, committed=commit)[0]


def without_commit(run: SampleRun) -> None:
    """Replace the marker by one of an unknown transaction."""
    aborted_marker(run, 3, (9, 9), commit=True)


def committed_after_all(run: SampleRun) -> None:
    aborted_marker(run, 5, ABORTED, commit=True)


def stored_plain(run: SampleRun) -> None:
    data = run.logs[EAST][4]
    metadata = read_metadata(data)
    metadata.ClearField("txnid_most_bits")
    metadata.ClearField("txnid_least_bits")
    run.logs[EAST][4] = build_entry(metadata, data[scan_entry(data).payload_offset :])


def acknowledged_in_vain(run: SampleRun) -> None:
    """Move the last message that billing acknowledged into an aborted transaction."""
    run.change("acknowledge", "asked", only=3, transaction=transaction_text(ABORTED))


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
"""Transactions under the key: two of task-1, the second of which it could not end, and one of task-2."""


def keyed() -> SampleRun:
    """us-east: task-1 settles an order and begins again; task-2 takes the key and settles another order."""
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
    """Receive and acknowledge, in a transaction."""
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
    """The journal of coordinator 0 of us-east."""

    def store(path: Path) -> None:
        log = path / "regions" / EAST / "log.sqlite"
        for kind, entries in (("log", instead), ("key", keys)):
            lines = [json.dumps(entry).encode() for entry in entries]
            topic = f"internal://pulsar/system/__transaction_{kind}_0"
            asyncio.run(store_entries(log, EAST, [*lines, *also], topic=topic))

    return store


def late_commit(run: SampleRun) -> None:
    task_commits(run, "task-1", FENCED, 7.5)


def settled_again(run: SampleRun) -> None:
    settles(run, SECOND, 0, 8.5)


def told_the_same_epoch(run: SampleRun) -> None:
    run.change("begin_transaction", "ok", only=2, key_epoch=0)


@dataclass(frozen=True)
class Sabotage:
    name: str
    verdict: Verdict
    check: str
    """The check that reports it."""
    kind: str
    """The text of its witness, or else of its message."""
    in_memory: Callable[[SampleRun], object] | None = None
    on_disk: Callable[[Path], object] | None = None
    run: Callable[[], SampleRun] = small_run

    def write(self, path: Path) -> Path:
        """Write the run directory with the evidence that was tampered with."""
        run = self.run()
        if self.in_memory is not None:
            self.in_memory(run)
        run.write(path)
        if self.on_disk is not None:
            self.on_disk(path)
        return path


SABOTAGES = [
    Sabotage("a checksum that is wrong", "invalid", "INV-3", "corrupt", wrong_checksum),
    Sabotage("another payload everywhere", "invalid", "INV-3", "other payload", other_payload_everywhere),
    Sabotage("another key in one region", "invalid", "INV-6", "differs", another_key),
    Sabotage("another key everywhere", "invalid", "INV-3", "other attributes", another_key_everywhere),
    Sabotage("another publish time in one region", "invalid", "INV-6", "differs", another_publish_time),
    Sabotage("invented source positions", "invalid", "INV-4", "wrong source", no_sources),
    Sabotage(
        "producers regrouped", "invalid", "INV-4", "out of the origin's order", regrouped, run=two_producers
    ),
    Sabotage(
        "a restriction to regions that the client did not set, only in entries",
        "invalid",
        "INV-3",
        "restricted",
        restricted,
    ),
    Sabotage("the same restriction: a remote copy is missing", "invalid", "INV-2", "behind", restricted),
    Sabotage("the beginning of a log removed", "invalid", "INV-2", "missing", on_disk=moved_start),
    Sabotage(
        "an entry on a topic that no client used",
        "unknown",
        "INV-3",
        "unknown producer",
        on_disk=foreign_topic,
    ),
    Sabotage(
        "no scenario's history",
        "unknown",
        "evidence-complete",
        "scenario.jsonl is missing",
        on_disk=without_scenario,
    ),
    Sabotage(
        "a scenario's history truncated",
        "unknown",
        "evidence-complete",
        "has no end",
        on_disk=cut("scenario.jsonl", 2),
    ),
    Sabotage(
        "a scenario's history truncated within a line",
        "unknown",
        "evidence-complete",
        "has no end",
        on_disk=torn,
    ),
    Sabotage(
        "a producer's history truncated",
        "unknown",
        "evidence-complete",
        "no end",
        on_disk=cut("orders-us-east.jsonl", 6),
    ),
    Sabotage(
        "a consumer's history truncated",
        "unknown",
        "evidence-complete",
        "has no end",
        on_disk=cut("billing.jsonl", 6),
    ),
    Sabotage(
        "an unknown region",
        "unknown",
        "evidence-complete",
        "must be a region",
        on_disk=edited(EAST, "atlantis"),
    ),
    Sabotage(
        "an unknown operation",
        "unknown",
        "evidence-complete",
        "op: must be",
        on_disk=edited("publish", "publsh"),
    ),
    Sabotage(
        "a response to a publish that was never invoked",
        "unknown",
        "evidence-complete",
        "which it never published",
        without(op="publish", outcome="asked", region=EAST, sequence_id=3),
    ),
    Sabotage(
        "a session that was never opened",
        "unknown",
        "evidence-complete",
        "has no line that opens it",
        without(op="connect"),
    ),
    Sabotage(
        "deliveries without a subscribe",
        "unknown",
        "evidence-complete",
        "where no line says that it subscribed",
        without(op="subscribe", region=EAST),
    ),
    Sabotage(
        "receipts with other message ids",
        "invalid",
        "INV-13",
        "acknowledged with a wrong message id",
        receipts_elsewhere,
    ),
    Sabotage(
        "deliveries with other message ids",
        "invalid",
        "INV-13",
        "delivered with a wrong message id",
        receives_elsewhere,
    ),
    Sabotage(
        "deliveries with another payload",
        "invalid",
        "INV-13",
        "delivered with another payload",
        receives_another,
    ),
    Sabotage(
        "a cursor moved forward", "invalid", "INV-18", "counted as consumed", unacknowledged, cursor_at(11)
    ),
    Sabotage(
        "a cursor beyond the end of the log", "invalid", "INV-18", "beyond the end", on_disk=cursor_at(12)
    ),
    Sabotage(
        "a snapshot with positions that are too high",
        "invalid",
        "INV-12",
        "broken snapshot",
        lambda run: snapshot(run, 6, 8),
    ),
    Sabotage(
        "an update of messages that were not acknowledged",
        "invalid",
        "INV-12",
        "broken update",
        lambda run: (unacknowledged(run), update(run, 11)),
    ),
    Sabotage(
        "a subscription of one region skips messages",
        "invalid",
        "INV-5",
        "skipped",
        blind_in_west,
        run=lambda: small_run(replicated=False),
    ),
    Sabotage(
        "an entry of another producer in an owner's epoch",
        "invalid",
        "INV-25",
        "entry of another producer",
        interleaved,
        both_granted,
        run=two_owners,
    ),
    Sabotage(
        "a grant deleted", "unknown", "INV-25", "missing grant", on_disk=but(no_first_grant), run=two_owners
    ),
    Sabotage(
        "a grant that cannot be read",
        "unknown",
        "INV-25",
        "unreadable grant",
        on_disk=but(granted(0, "pa", 0, epoch=None)),
        run=two_owners,
    ),
    Sabotage(
        "an epoch that decreases",
        "invalid",
        "INV-25",
        "epoch decreases",
        on_disk=but(granted(1, "pb", MESSAGES, epoch=0)),
        run=two_owners,
    ),
    Sabotage(
        "the owner of an epoch changed",
        "invalid",
        "INV-25",
        "entry of another producer",
        on_disk=but(granted(1, "pc", MESSAGES)),
        run=two_owners,
    ),
    Sabotage(
        "an epoch returned to another producer",
        "invalid",
        "INV-25",
        "epoch returned without a grant",
        on_disk=but(granted(1, "pc", 2 * MESSAGES)),
        run=two_owners,
    ),
    Sabotage(
        "the beginning of an epoch moved",
        "invalid",
        "INV-25",
        "entry of another producer",
        on_disk=but(granted(1, "pb", MESSAGES - 2)),
        run=two_owners,
    ),
    Sabotage(
        "an aborted message delivered to a consumer",
        "invalid",
        "INV-59",
        "delivered although not committed",
        aborted_given,
        run=transactions,
    ),
    Sabotage(
        "a message of an open transaction replicated",
        "invalid",
        "INV-59",
        "replicated although not committed",
        open_replicated,
        run=transactions,
    ),
    Sabotage(
        "the marker of a commit removed",
        "invalid",
        "INV-58",
        "committed but not visible",
        without_commit,
        run=transactions,
    ),
    Sabotage(
        "an aborted transaction committed",
        "invalid",
        "INV-58",
        "aborted but visible",
        committed_after_all,
        run=transactions,
    ),
    Sabotage(
        "a message stored outside its transaction",
        "invalid",
        "INV-58",
        "outside its transaction",
        stored_plain,
        run=transactions,
    ),
    Sabotage(
        "a transaction committed in one topic and aborted in another",
        "invalid",
        "INV-58",
        "partly committed",
        on_disk=torn_in_two,
        run=transactions,
    ),
    Sabotage(
        "an acknowledgement of an aborted transaction counted",
        "invalid",
        "INV-18",
        "counted as consumed",
        acknowledged_in_vain,
        cursor_at(6),
        run=transactions,
    ),
    Sabotage(
        "an older transaction of a key left open",
        "invalid",
        "INV-70",
        "two open transactions",
        on_disk=coordinator(instead=[entry for entry in JOURNAL if entry[:2] != ["decided", FENCED[1]]]),
        run=keyed,
    ),
    Sabotage(
        "a fenced transaction committed",
        "invalid",
        "INV-70",
        "committed after it was fenced",
        late_commit,
        coordinator(),
        run=keyed,
    ),
    Sabotage(
        "an epoch of a key that decreases",
        "invalid",
        "INV-71",
        "epoch decreases",
        on_disk=coordinator(keys=[*KEY_JOURNAL, key_granted(3, "three"), key_granted(2, "four")]),
        run=keyed,
    ),
    Sabotage(
        "an epoch of a key granted to two processes",
        "invalid",
        "INV-71",
        "granted twice",
        on_disk=coordinator(keys=[*KEY_JOURNAL, key_granted(1, "three")]),
        run=keyed,
    ),
    Sabotage(
        "a transaction begun under an epoch that was never granted",
        "invalid",
        "INV-71",
        "begun without a grant",
        on_disk=coordinator(instead=[*JOURNAL, began((0, 13), 2)]),
        run=keyed,
    ),
    Sabotage(
        "an epoch of a key returned to two clients",
        "invalid",
        "INV-71",
        "one epoch returned to two clients",
        told_the_same_epoch,
        coordinator(),
        run=keyed,
    ),
    Sabotage(
        "the log of the keys removed",
        "invalid",
        "INV-71",
        "epoch returned without a grant",
        on_disk=coordinator(keys=[]),
        run=keyed,
    ),
    Sabotage(
        "a coordinator's log that cannot be read",
        "unknown",
        "evidence-complete",
        "cannot be read",
        on_disk=coordinator(also=[b"torn"]),
        run=keyed,
    ),
    Sabotage(
        "a message acknowledged in two committed transactions",
        "invalid",
        "INV-72",
        "acknowledged twice",
        settled_again,
        coordinator(),
        run=keyed,
    ),
]


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda one: one.name)
def test_it_is_seen(engine: QueryEngine, tmp_path: Path, sabotage: Sabotage) -> None:
    evaluation = evaluate_run(engine, sabotage.write(tmp_path / "run"))
    (check,) = [one for one in evaluation.checks if sabotage.check in (one.invariant, one.name)]
    assert check.verdict == sabotage.verdict, told(evaluation)
    assert evaluation.verdict in ("invalid", sabotage.verdict), told(evaluation)
    assert sabotage.kind in check.sentence or sabotage.kind in {one.get("kind") for one in check.witness}, (
        check
    )


def told(evaluation: Evaluation) -> str:
    return "\n".join(f"{one.verdict} {one.invariant} {one.sentence}" for one in evaluation.checks)


OF_TRANSACTIONS = ("INV-58", "INV-59", "INV-70", "INV-71", "INV-72")


def untouched() -> SampleRun:
    run = small_run()
    snapshot(run, 11, 10)
    return run


@pytest.mark.parametrize(
    "make",
    [untouched, two_producers, two_owners, lambda: small_run(replicated=False), transactions, keyed],
    ids=["all", "producers", "owners", "one region", "transactions", "keys"],
)
def test_what_nobody_touched_is_valid(
    engine: QueryEngine, tmp_path: Path, make: Callable[[], SampleRun]
) -> None:
    path = make().write(tmp_path / "run")
    if make is untouched:
        cursor_at(11)(path)
        granted(0, f"orders-{EAST}", 0)(path)
    if make is two_owners:
        both_granted(path)
    if make is transactions:
        cursor_at(6)(path)
    if make is keyed:
        coordinator()(path)
    evaluation = evaluate_run(engine, path)
    assert evaluation.verdict == "valid", told(evaluation)
    if make is untouched:
        others = [one for one in evaluation.checks if one.invariant not in {*OF_TRANSACTIONS, INFORMATION}]
        assert {one.verdict for one in others} == {"valid"}, told(evaluation)
        assert evaluation.checks[0].verdict == "valid", told(evaluation)
    if make is keyed:
        found = {one.invariant: one.verdict for one in evaluation.checks}
        assert {found[name] for name in ("INV-70", "INV-71", "INV-72")} == {"valid"}, told(evaluation)
    if make is transactions:
        found = {one.invariant: one.verdict for one in evaluation.checks}
        assert {found[name] for name in ("INV-1", "INV-5", "INV-18", "INV-58", "INV-59")} == {"valid"}, told(
            evaluation
        )


def test_the_page_lists_every_sabotage() -> None:
    page = (Path(__file__).parents[2] / "docs" / "HISTORY.md").read_text()
    rows = page.split("<!-- sabotages: compared with the test -->")[1].split("<!-- end of sabotages -->")[0]
    assert [row for row in rows.splitlines() if row.startswith("| ")][1:] == table()


def table() -> list[str]:
    return [f"| {one.name} | {one.verdict} | {one.check} | {one.kind} |" for one in SABOTAGES]
