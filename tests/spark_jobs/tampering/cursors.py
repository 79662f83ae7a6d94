"""Changes of cursors, snapshots, updates, grants of exclusive access, and fail-over plans."""

from __future__ import annotations

from collections.abc import Callable

from emulator.model.markers import Snapshot, SubscriptionUpdate
from emulator.model.stored_keys import CursorKey, GrantKey
from emulator.model.values import Position
from emulator.wire.markers import encode_marker

from ..sample_run import TOPIC, SampleRun, place, put_value
from .kinds import edit, edited, in_sequence, incomplete, invalid, unknown
from .runs import (
    EAST,
    EU,
    MESSAGES,
    WEST,
    both_granted,
    converged,
    cursor_at,
    finished_in_west,
    granted,
    planned,
    replicated_cursors,
    two_owners,
)


def unacknowledged(run: SampleRun) -> None:
    """Remove the acknowledgements of the last four messages."""
    run.events = [one for one in run.events if not (one[2] == "acknowledge" and one[1] > run.time_ms(18.4))]


def snapshot(run: SampleRun, local: int, other: int) -> None:
    """Store a snapshot in us-west: a subscription that acknowledged up to `local` here has acknowledged up to `other`
    in us-east."""
    said = Snapshot("s", place(WEST, local), ((EAST, place(EAST, other)),))
    run.store(WEST, encode_marker(said, 1, (WEST,))[0])


def damaged_snapshot(run: SampleRun) -> None:
    snapshot(run, 11, 10)
    data = run.logs[WEST][-1]
    run.logs[WEST][-1] = data[:-1] + bytes([data[-1] ^ 1])


def update(run: SampleRun, upto: int) -> None:
    said = SubscriptionUpdate("billing", ((WEST, place(WEST, upto)),))
    run.store(EAST, encode_marker(said, 1, (WEST,))[0])


def other_snapshot(run: SampleRun) -> None:
    said = Snapshot("s", place(EAST, 11), ((WEST, place(WEST, 10)), (EU, place(EU, 10))))
    run.logs[EAST][12] = encode_marker(said, 1, (EAST,))[0]


def with_plan(**changed: object) -> Callable[[SampleRun], None]:
    """Change fields of the recorded plan."""

    def damage(run: SampleRun) -> None:
        (fields,) = (event[4] for event in run.events if event[2] == "failover_plan")
        plan = {**fields["plan"], **changed}  # type: ignore[dict-item]
        fields["plan"] = {name: value for name, value in plan.items() if value is not None}

    return damage


def skips(messages: int, stated: int) -> Callable[[SampleRun], None]:
    """Remove the acknowledgements of the last messages, and their deliveries in us-west. The plan states that us-east
    acknowledged all others, and `stated` skipped messages."""
    entries = range(2 * MESSAGES - messages, 2 * MESSAGES)
    of_west = {f"{place(WEST, entry)}:-1" for entry in entries}
    anywhere = of_west | {f"{place(EAST, entry)}:-1" for entry in entries}

    def is_removed(event: tuple[str, float, str, str, dict[str, object]]) -> bool:
        removed = {"acknowledge": anywhere, "receive": of_west}.get(event[2], set())
        return event[4].get("message_id") in removed

    def damage(run: SampleRun) -> None:
        state = {"source_mark_delete": str(place(EAST, entries.start - 1))}
        with_plan(redelivered_messages=4 - messages, skipped_messages=stated, **state)(run)
        run.events = [event for event in run.events if not is_removed(event)]

    return damage


CURSORS = [
    invalid(
        "INV-18",
        "a cursor moved forward",
        "counted as consumed",
        "4 messages counted as consumed by a stored cursor, although no consumer acknowledged them (us-east 4)",
        unacknowledged,
        cursor_at(11),
    ),
    invalid(
        "INV-18",
        "a cursor beyond the end of the log",
        "beyond the end",
        "Stored cursors are beyond the end of the log (us-east 1)",
        on_disk=cursor_at(12),
    ),
    incomplete(
        "a cursor at a position that no log can have",
        "the cursor of billing in us-east cannot be read: 68719476736 is no entry id",
        on_disk=cursor_at(2**36),
    ),
    incomplete(
        "a cursor that cannot be read",
        "the cursor of billing in us-east cannot be read: not a cursor: KeyError('mark_delete')",
        on_disk=lambda path: put_value(path, EAST, CursorKey(TOPIC, "billing").text, b"{}"),
    ),
    incomplete(
        "a cursor of another format version",
        "the cursor of billing in us-east cannot be read: not a cursor: KeyError('mark_delete')",
        on_disk=lambda path: put_value(path, EAST, CursorKey(TOPIC, "billing").text, b'{"format": 9}'),
    ),
    invalid(
        "INV-12",
        "a snapshot with positions that are too high",
        "broken snapshot",
        "1 snapshot with positions that do not correspond in the logs (us-west 1)",
        lambda run: snapshot(run, 6, 8),
    ),
    incomplete(
        "a snapshot with a position that no log can have",
        "in us-west: it has the position 134217728:1, which no log can have",
        lambda run: run.mark(WEST, Snapshot("s", place(WEST, 1), ((EAST, Position(2**27, 1)),)), 20),
    ),
    incomplete(
        "a log in a ledger that no log can have",
        "entries from 134217728:0: a position that no log can have",
        on_disk=in_sequence(
            lambda path: edit(path, EAST, "UPDATE logs SET log_id = ?", 2**27),
            lambda path: edit(path, EAST, "UPDATE entry_groups SET log_id = ?", 2**27),
        ),
    ),
    incomplete(
        "a snapshot with a wrong checksum",
        "orders 603001:12 in us-west: its checksum does not match its bytes",
        damaged_snapshot,
    ),
    invalid(
        "INV-12",
        "an update of messages that were not acknowledged",
        "broken update",
        "2 messages counted as acknowledged by an update, although no consumer acknowledged",
        lambda run: (unacknowledged(run), update(run, 11)),
    ),
]

CONVERGENCE = [
    invalid(
        "INV-12",
        "the snapshot of an update changed",
        "without snapshot",
        "2 positions of updates that no completed snapshot contains (us-east 2)",
        other_snapshot,
        replicated_cursors(),
        run=converged,
    ),
    invalid(
        "INV-12",
        "a message removed from the log of a region whose snapshot covers it",
        "unreceived",
        "2 messages before the position of a snapshot whose region never received it (us-east 2)",
        lambda run: run.logs[EAST].pop(11),
        run=converged,
    ),
    invalid(
        "INV-128",
        "a cursor moved back behind an update",
        "not applied",
        "4 acknowledged messages covered by an update that another region stores and did not apply (us-west 4)",
        on_disk=replicated_cursors(us_west=7),
        run=converged,
    ),
    invalid(
        "INV-128",
        "an update removed from the log of its receiver, whose cursor does not count it",
        "not replicated",
        "4 acknowledged messages covered by an update that another region never received (us-west 4)",
        lambda run: run.logs[WEST].pop(),
        replicated_cursors(us_west=7),
        run=converged,
    ),
    invalid(
        "INV-128",
        "an update removed from all logs",
        "not sent",
        "8 acknowledged messages before a snapshot that the subscription passed without an update",
        lambda run: [run.logs[region].pop() for region in run.regions],
        replicated_cursors(us_west=7, eu_central=7),
        run=converged,
    ),
    unknown(
        "INV-128",
        "a cursor deleted in a region that stores an update",
        "without a cursor",
        "Not compared: a region has no cursor of the subscription (1)",
        on_disk=replicated_cursors(us_west=None),
        run=converged,
    ),
]

PLANS = [
    invalid(
        "INV-125",
        "a plan that states fewer redeliveries than follow",
        "more than planned",
        "billing from us-east to us-west: the plan stated 3, and 4 messages were redelivered",
        with_plan(redelivered_messages=3),
        run=planned,
    ),
    invalid(
        "INV-125",
        "an exact plan that states more redeliveries than follow",
        "fewer than planned",
        "billing from us-east to us-west: the plan stated 5, and 4 messages were redelivered",
        with_plan(redelivered_messages=5),
        finished_in_west,
        run=planned,
    ),
    invalid(
        "INV-125",
        "a plan without a response of its source that states fewer messages than follow",
        "more than planned",
        "billing from us-east to us-west: the plan stated at most 3, and 4 messages were redelivered",
        with_plan(redelivered_messages=3, exact=False, source_mark_delete=None),
        run=planned,
    ),
    invalid(
        "INV-125",
        "a fail-over that skips a message although its plan stated none",
        "more skipped than planned",
        "billing from us-east to us-west: the plan stated 0 skipped messages, and us-west skipped 1",
        skips(1, stated=0),
        finished_in_west,
        run=planned,
    ),
    invalid(
        "INV-125",
        "a plan that states fewer skipped messages than follow",
        "more skipped than planned",
        "billing from us-east to us-west: the plan stated 1 skipped messages, and us-west skipped 3",
        skips(3, stated=1),
        finished_in_west,
        run=planned,
    ),
    incomplete(
        "a plan with a position that no log can have",
        "plan: must have positions that a log can have",
        with_plan(target_last="134217728:1"),
        run=planned,
    ),
    incomplete(
        "a plan with a number that cannot be",
        "plan: must be a fail-over plan",
        on_disk=edited('"redelivered_messages":4', '"redelivered_messages":-4', "scenario"),
        run=planned,
    ),
]

GRANTS = [
    invalid(
        "INV-25",
        "an entry of another producer in an owner's epoch",
        "entry of another producer",
        "1 entry stored by others while one producer had exclusive access (us-east 1)",
        lambda run: run.publish(EAST, MESSAGES, 20, producer="pa"),
        both_granted,
        run=two_owners,
    ),
    unknown(
        "INV-25",
        "a grant deleted",
        "missing grant",
        "1 grant missing between two others (us-east 1)",
        on_disk=in_sequence(
            both_granted,
            lambda path: edit(path, EAST, "DELETE FROM key_values WHERE key = ?", GrantKey.of(TOPIC, 0).text),
        ),
        run=two_owners,
    ),
    unknown(
        "INV-25",
        "a grant that cannot be read",
        "unreadable grant",
        "1 grant that cannot be read (us-east 1)",
        on_disk=in_sequence(both_granted, granted(0, "pa", 0, epoch=None)),
        run=two_owners,
    ),
    invalid(
        "INV-25",
        "an epoch that decreases",
        "epoch decreases",
        "1 grant whose epoch differs from its key (us-east 1)",
        on_disk=in_sequence(both_granted, granted(1, "pb", MESSAGES, epoch=0)),
        run=two_owners,
    ),
    invalid(
        "INV-25",
        "the owner of an epoch changed",
        "entry of another producer",
        "6 entries stored by others while one producer had exclusive access (us-east 6)",
        on_disk=in_sequence(both_granted, granted(1, "pc", MESSAGES)),
        run=two_owners,
    ),
    invalid(
        "INV-25",
        "an epoch returned to another producer",
        "epoch returned without a grant",
        "1 epoch returned to a producer that the region did not grant it to (us-east 1)",
        on_disk=in_sequence(both_granted, granted(1, "pc", 2 * MESSAGES)),
        run=two_owners,
    ),
    invalid(
        "INV-25",
        "the beginning of an epoch moved",
        "entry of another producer",
        "2 entries stored by others while one producer had exclusive access (us-east 2)",
        on_disk=in_sequence(both_granted, granted(1, "pb", MESSAGES - 2)),
        run=two_owners,
    ),
    invalid(
        "INV-25",
        "the end of an epoch moved beyond the beginning of the next one",
        "grants overlap",
        "1 grant that overlaps the next one (us-east 1)",
        on_disk=in_sequence(both_granted, granted(0, "pa", 0, end_entry=MESSAGES + 2)),
        run=two_owners,
    ),
]
