"""Changes of the histories: what clients did, and the recorded faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ..sample_run import SampleRun, place
from .kinds import edited, in_history, in_json, incomplete, invalid, removed
from .runs import EAST, EU, MESSAGES, WEST, killed_in_west, small_run


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


def cut(name: str, lines: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        file = path / "history" / name
        kept = file.read_text().splitlines(keepends=True)[:lines]
        file.write_text("".join(kept))

    return damage


def torn(path: Path) -> None:
    file = path / "history/scenario.jsonl"
    file.write_bytes(file.read_bytes()[:-30])


def line_changed(path: Path) -> None:
    """Change a line of a producer's history, and leave its end."""
    file = path / "history/orders-us-east.jsonl"
    text = file.read_text()
    file.write_text(text.replace('"sequence_id":3', '"sequence_id":4'))


def end_moved(path: Path) -> None:
    """Add a line after the end of a history."""
    file = path / "history/billing.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines, lines[1]]))


def blind_in_west(run: SampleRun) -> None:
    """Add a subscription of the same name in us-west that does not receive two messages."""
    run.subscribe(WEST, 0.1, replicated=False)
    for entry in range(2 * MESSAGES):
        if entry not in (3, 4):
            run.receive(WEST, EAST if entry % 2 == 0 else EU, entry // 2, 30 + entry, entry)


def acknowledged_instead_of_failed(run: SampleRun) -> None:
    """A publish that failed and is not stored gets a receipt."""
    message = run.ask(EAST, MESSAGES, 8.0)
    run.tell(f"orders-{EAST}", 8.1, "publish", "ok", message_id=f"{place(EAST, 40)}:-1", **message)


def invented_loss(run: SampleRun) -> None:
    """Record the loss of us-west, which stores and acknowledges messages until the end, and remove a copy there."""
    run.fact(0.5, "lose", region=WEST)
    run.logs[WEST].pop()


def west_publishes() -> SampleRun:
    run = small_run()
    run.publish(WEST, 0, 40)
    return run


HISTORIES = [
    incomplete(
        "no scenario's history",
        "history/scenario.jsonl is missing",
        on_disk=removed("history/scenario.jsonl"),
    ),
    incomplete(
        "a consumer's history removed",
        "history/scenario.jsonl:3: file: history/billing.jsonl is missing",
        on_disk=removed("history/billing.jsonl"),
    ),
    incomplete(
        "a scenario's history truncated",
        "history/scenario.jsonl has no end: its program still runs, or was killed and the file was not sealed",
        on_disk=cut("scenario.jsonl", 2),
    ),
    incomplete(
        "a scenario's history truncated within a line",
        "history/scenario.jsonl has no end: its program still runs, or was killed and the file was not sealed",
        on_disk=torn,
    ),
    incomplete(
        "a producer's history truncated",
        "history/orders-us-east.jsonl has no end: its program still runs, or was killed",
        on_disk=cut("orders-us-east.jsonl", 6),
    ),
    incomplete(
        "a consumer's history truncated",
        "history/billing.jsonl has no end: its program still runs, or was killed",
        on_disk=cut("billing.jsonl", 6),
    ),
    incomplete(
        "a line changed",
        "history/orders-us-east.jsonl:15: digest: differs from that of the lines before it",
        on_disk=line_changed,
    ),
    incomplete(
        "a line added after the end", "history/billing.jsonl:29: continues after its end", on_disk=end_moved
    ),
    incomplete(
        "the history of another run",
        "history/billing.jsonl:1: run: is '', but this is run '2026-01-01T00:00:00Z': the file belongs to another run",
        on_disk=in_json("run.json", lambda record: record.update(created_at="2026-01-01T00:00:00Z")),
    ),
    incomplete(
        "an unknown region",
        'region: must be a region of this run (eu-central, us-east, us-west), not "atlantis"',
        on_disk=edited(EAST, "atlantis"),
    ),
    incomplete(
        "an unknown operation",
        "history/orders-us-east.jsonl:10: op: must be one of ",
        on_disk=edited("publish", "publsh"),
    ),
    incomplete(
        "a line that is no JSON",
        "history/billing.jsonl:2: cannot be parsed",
        on_disk=in_history(
            "billing", lambda text: text.replace('{"at_ms"', "{at_ms", 3).replace("{at_ms", '{"at_ms"', 1)
        ),
    ),
    incomplete(
        "a line without a required field",
        "history/orders-us-east.jsonl:10: session: is required of publish ok",
        on_disk=edited('"session":', '"detail":'),
    ),
    incomplete(
        "an omission recorded",
        "history/billing.jsonl:28: the program did not record what followed: the disk was full",
        lambda run: run.tell("billing", 30, "omission", "fact", detail="the disk was full"),
    ),
    incomplete(
        "a response to a publish that was never invoked",
        "(session session of orders-us-east), which it never published",
        without(op="publish", outcome="asked", region=EAST, sequence_id=3),
    ),
    incomplete(
        "a session that was never opened",
        "orders-us-east published in session session of orders-us-east, which has no line that opens it",
        without(op="connect"),
    ),
    incomplete(
        "deliveries without a subscribe",
        "persistent://public/default/orders in us-east, where no line says that it subscribed",
        without(op="subscribe", region=EAST),
    ),
    invalid(
        "INV-3",
        "a publish removed, with its response",
        "never published",
        "1 message stored that no client published",
        without(op="publish", region=EU, sequence_id=3),
    ),
    invalid(
        "INV-3",
        "the digest of a published payload changed",
        "other payload",
        "1 message stored with another payload than the client published",
        lambda run: run.change("publish", "asked", only=4, payload_digest="0" * 16),
    ),
    invalid(
        "INV-1",
        "a receipt invented for a publish that failed",
        "missing",
        "1 of 13 acknowledged messages is missing from the log of the region that acknowledged it",
        acknowledged_instead_of_failed,
    ),
    invalid(
        "INV-5",
        "a delivery removed",
        "skipped",
        "1 of 12 messages not received by billing, although later ones in the same region's log were received",
        without(op="receive", region=EAST, message_id=f"{place(EAST, 4)}:-1"),
    ),
    invalid(
        "INV-5",
        "a subscription of one region skips messages",
        "skipped",
        "2 of 24 messages not received by billing, although later ones in the same region's log were received",
        blind_in_west,
        run=lambda: small_run(replicated=False),
    ),
    invalid(
        "INV-13",
        "receipts with other message ids",
        "acknowledged with a wrong message id",
        "1 message acknowledged with an id under which the region stores no such message",
        lambda run: run.change("publish", "ok", message_id=f"{place(EAST, 77)}:-1", only=2),
    ),
    invalid(
        "INV-13",
        "deliveries with other message ids",
        "delivered with a wrong message id",
        "1 message delivered with an id under which the region stores no such message",
        lambda run: run.change("receive", "ok", message_id=f"{place(EAST, 77)}:-1", only=2),
    ),
    invalid(
        "INV-13",
        "deliveries with another payload",
        "delivered with another payload",
        "1 message delivered with another payload than the regions store",
        lambda run: run.change("receive", "ok", payload_digest="0" * 16, only=2),
    ),
]

FAULTS = [
    invalid(
        "INV-2",
        "the record of a kill removed, which explains missing copies",
        "behind",
        "4 copies of 12 acknowledged messages missing (us-west 4)",
        without(op="kill"),
        run=killed_in_west,
    ),
    incomplete(
        "the loss of a region invented, which responds to clients long after it",
        "us-west is recorded as down until the end, but clients received 2 responses of it up to 39.5 s later",
        invented_loss,
        run=west_publishes,
    ),
    incomplete(
        "a fault of an unknown region",
        'history/scenario.jsonl:6: region: must be a region of this run (eu-central, us-east, us-west), not "atlantis"',
        on_disk=edited(f'"region":"{WEST}"', '"region":"atlantis"', "scenario"),
        run=killed_in_west,
    ),
    incomplete(
        "a fault without its region",
        "history/scenario.jsonl:6: region: is required of kill fact",
        on_disk=edited(f'"region":"{WEST}"', '"detail":"none"', "scenario"),
        run=killed_in_west,
    ),
]
