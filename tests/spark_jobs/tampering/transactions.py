"""Changes of transactions, transaction keys and the journals of coordinators."""

from __future__ import annotations

import asyncio
from pathlib import Path

from emulator.run.history_events import transaction_text
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry, with_replication, with_transaction
from emulator.wire.markers import encode_transaction_end
from emulator.wire.message_metadata import read_metadata, scan_entry

from ..sample_run import SampleRun, place, store_entries
from .kinds import incomplete, invalid
from .runs import (
    ABORTED,
    COMMITTED,
    EAST,
    FENCED,
    FIRST,
    JOURNAL,
    KEY_JOURNAL,
    SECOND,
    WEST,
    began,
    coordinator,
    cursor_at,
    decided,
    key_granted,
    keyed,
    settles,
    task_commits,
    transactions,
)


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
    metadata = pb.MessageMetadata(producer_name="other", sequence_id=0, publish_time=1)
    entry = with_transaction(build_entry(metadata, b"other"), COMMITTED)
    end, _ = encode_transaction_end(COMMITTED, 1, committed=False)
    log = path / "regions" / EAST / "log.sqlite"
    asyncio.run(store_entries(log, EAST, [entry, end], topic="persistent://public/default/second"))


TRANSACTIONS = [
    invalid(
        "INV-59",
        "an aborted message delivered to a consumer",
        "delivered although not committed",
        "1 message delivered although the log does not commit the transaction (us-east 1)",
        lambda run: run.receive(EAST, EAST, 3, 15, 4),
        run=transactions,
    ),
    invalid(
        "INV-59",
        "a message of an open transaction replicated",
        "replicated although not committed",
        "1 message of a transaction that its region does not commit, stored in another region (us-west 1)",
        open_replicated,
        run=transactions,
    ),
    invalid(
        "INV-58",
        "the marker of a commit removed",
        "committed but not visible",
        "2 messages of a transaction reported as committed to a client, but not committed in the log (us-east 2)",
        lambda run: end_marker(run, 3, (9, 9), commit=True),
        run=transactions,
    ),
    invalid(
        "INV-58",
        "an aborted transaction committed",
        "aborted but visible",
        "1 message of a transaction reported as aborted to a client, but committed in the log (us-east 1)",
        lambda run: end_marker(run, 5, ABORTED, commit=True),
        run=transactions,
    ),
    invalid(
        "INV-58",
        "a message stored outside its transaction",
        "outside its transaction",
        "1 message stored outside of the transaction in which it was published (us-east 1)",
        stored_plain,
        run=transactions,
    ),
    invalid(
        "INV-58",
        "a transaction committed in one topic and aborted in another",
        "partly committed",
        "1 transaction committed in one topic and aborted in another (us-east 1)",
        on_disk=torn_in_two,
        run=transactions,
    ),
    invalid(
        "INV-18",
        "an acknowledgement of an aborted transaction counted",
        "counted as consumed",
        "1 message counted as consumed by a stored cursor, although no consumer acknowledged them (us-east 1)",
        lambda run: run.change("acknowledge", "asked", only=3, transaction=transaction_text(ABORTED)),
        cursor_at(6),
        run=transactions,
    ),
]

KEYS = [
    invalid(
        "INV-70",
        "an older transaction of a key left open",
        "two open transactions",
        "1 transaction begun while another one of the same key was open (us-east 1)",
        on_disk=coordinator(instead=[entry for entry in JOURNAL if entry[:2] != ["decided", FENCED[1]]]),
        run=keyed,
    ),
    invalid(
        "INV-70",
        "a fenced transaction committed",
        "committed after it was fenced",
        "1 transaction committed when a newer one of the same key had begun (us-east 1)",
        lambda run: task_commits(run, "task-1", FENCED, 7.5),
        coordinator(),
        run=keyed,
    ),
    invalid(
        "INV-71",
        "an epoch of a key that decreases",
        "epoch decreases",
        "1 epoch below an earlier one of its key (us-east 1)",
        on_disk=coordinator(keys=[*KEY_JOURNAL, key_granted(3, "three"), key_granted(2, "four")]),
        run=keyed,
    ),
    invalid(
        "INV-71",
        "an epoch of a key granted to two processes",
        "granted twice",
        "1 epoch granted to two processes (us-east 1)",
        on_disk=coordinator(keys=[*KEY_JOURNAL, key_granted(1, "three")]),
        run=keyed,
    ),
    invalid(
        "INV-71",
        "a transaction begun under an epoch that was never granted",
        "begun without a grant",
        "1 epoch of a transaction, never granted (us-east 1)",
        on_disk=coordinator(instead=[*JOURNAL, began((0, 13), 2)]),
        run=keyed,
    ),
    invalid(
        "INV-71",
        "an epoch of a key returned to two clients",
        "one epoch returned to two clients",
        "1 epoch returned to two clients (us-east 1)",
        lambda run: run.change("begin_transaction", "ok", only=2, key_epoch=0),
        coordinator(),
        run=keyed,
    ),
    invalid(
        "INV-71",
        "the log of the keys removed",
        "epoch returned without a grant",
        "3 epochs returned to a client, not stored by the region (us-east 3)",
        on_disk=coordinator(keys=[]),
        run=keyed,
    ),
    invalid(
        "INV-58",
        "the decision on a committed transaction changed to an abort in its coordinator's journal",
        "decided otherwise",
        "1 transaction confirmed to a client with an end that the journal of its coordinator does not have (us-east 1)",
        on_disk=coordinator(instead=[*JOURNAL[:1], decided(FIRST, "ABORTING"), *JOURNAL[2:]]),
        run=keyed,
    ),
    invalid(
        "INV-58",
        "the decision on a committed transaction removed from its coordinator's journal",
        "decided otherwise",
        "1 transaction confirmed to a client with an end that the journal of its coordinator does not have (us-east 1)",
        on_disk=coordinator(instead=JOURNAL[:-1]),
        run=keyed,
    ),
    incomplete(
        "a coordinator's log that cannot be read",
        "__transaction_log_0 of us-east: entry 6 cannot be read",
        on_disk=coordinator(also=[b"torn"]),
        run=keyed,
    ),
    incomplete(
        "a coordinator's entry of an unknown kind",
        "internal://pulsar/system/__transaction_log_0 of us-east: entry 6 cannot be read: 'forgotten' with 1 values",
        on_disk=coordinator(instead=[*JOURNAL, ["forgotten", 1]]),
        run=keyed,
    ),
    invalid(
        "INV-72",
        "a message acknowledged in two committed transactions",
        "acknowledged twice",
        "1 acknowledgement in two committed transactions (us-east 1)",
        lambda run: settles(run, SECOND, 0, 8.5),
        coordinator(),
        run=keyed,
    ),
]
