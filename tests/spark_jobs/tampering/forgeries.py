"""Forgeries that leave each file consistent: copies, shifted clocks, shortened histories with a new digest, invented
faults, replaced regions. Only the comparison with other evidence finds them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from emulator.model.stored_keys import GrantKey

from ..sample_run import TOPIC, SampleRun, place
from .histories import without
from .kinds import edit, in_history, in_json, in_sequence, incomplete, invalid, overwritten, unknown
from .runs import EAST, EU, WEST, both_granted, cursor_at, two_owners

HOUR_MS = 3_600_000
TIMES_AGREE = "times-agree"


def copied(name: str, to: str) -> Callable[[Path], object]:
    return lambda path: shutil.copy(path / "history" / f"{name}.jsonl", path / "history" / f"{to}.jsonl")


def shifted(name: str, by_ms: float, outcome: str | None = None) -> Callable[[Path], None]:
    """Add a time to the lines of a history, or to those of one outcome, and write a matching end."""

    def change(text: str) -> str:
        lines = [json.loads(line) for line in text.splitlines()]
        for line in lines:
            if line["op"] != "head" and outcome in (None, line["outcome"]):
                line["at_ms"] += by_ms
        return "".join(json.dumps(line) + "\n" for line in lines)

    return in_history(name, change)


def shortened(name: str, lines: int) -> Callable[[Path], None]:
    """Remove the last lines of a history, and write a matching end."""
    return in_history(name, lambda text: "".join(text.splitlines(keepends=True)[:-lines]))


def named(region: str) -> Callable[[Path], None]:
    """Write the name of a region into its log."""
    return lambda path: edit(path, region, "UPDATE meta SET value = ? WHERE key = 'region'", region)


def region_from(source: str, target: str) -> Callable[[Path], None]:
    """Put a copy of one region's folder at the place of another one's."""

    def change(path: Path) -> None:
        shutil.rmtree(path / "regions" / target, ignore_errors=True)
        shutil.copytree(path / "regions" / source, path / "regions" / target)

    return change


def as_if_trimmed(path: Path) -> None:
    """Remove all entries of us-west, and record that retention trimmed them."""
    with closing(sqlite3.connect(path / "regions" / WEST / "log.sqlite")) as log, log:
        log.execute("DELETE FROM entry_groups")
        log.execute("UPDATE logs SET first_entry_id = next_entry_id")


def invented_kill(run: SampleRun) -> None:
    run.fact(0.9, "kill", region=WEST)
    run.logs[WEST].clear()


def invented_cut(run: SampleRun) -> None:
    run.fact(0.9, "cut", region=EAST, other_region=WEST, detail="both ways")
    run.logs[WEST] = run.logs[WEST][1::2]


def begins_at_the_latest(run: SampleRun) -> None:
    """Record that the subscription began at the latest message, and remove its first delivery."""
    for outcome in ("asked", "ok"):
        run.change("subscribe", outcome, only=0, initial="latest")
    without(op="receive", message_id=f"{place(EAST, 0)}:-1")(run)


def report_says_valid(path: Path) -> None:
    (path / "report").mkdir()
    (path / "report" / "report.json").write_text('{"verdict": "valid", "checks": []}')


def without_grants(*epochs: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        for epoch in epochs:
            edit(path, EAST, "DELETE FROM key_values WHERE key = ?", GrantKey.of(TOPIC, epoch).text)

    return in_sequence(both_granted, change)


def slow_links(topology: dict[str, list[dict[str, dict[str, float]]]]) -> None:
    for link in topology["links"]:
        link["shape"]["latency_ms"] = 1e12


FORGERIES = [
    incomplete(
        "a copy of a consumer's history under another name",
        "history/billing.jsonl has the same lines as history/billing-2.jsonl",
        on_disk=copied("billing", "billing-2"),
    ),
    incomplete(
        "a copy of a producer's history under another name, without its last line",
        "session session of orders-us-east published in the histories of orders-2 and orders-us-east",
        on_disk=in_sequence(copied("orders-us-east", "orders-2"), shortened("orders-2", 1)),
    ),
    unknown(
        TIMES_AGREE,
        "the clock of a consumer's history put back by an hour",
        "",
        "12 messages delivered more than 10 s before the publish was requested: the clock of a program differs, or",
        on_disk=shifted("billing", -HOUR_MS),
    ),
    unknown(
        TIMES_AGREE,
        "the clock of a producer's history put forward by an hour",
        "",
        "6 messages delivered more than 10 s before the publish was requested",
        on_disk=shifted("orders-us-east", HOUR_MS),
    ),
    unknown(
        TIMES_AGREE,
        "receipts put back by a minute",
        "",
        "6 messages acknowledged more than 10 s before the publish was requested",
        on_disk=shifted("orders-us-east", -60_000, "ok"),
    ),
    invalid(
        "INV-18",
        "the last acknowledgement removed from a history, which a cursor counts",
        "counted as consumed",
        "1 message counted as consumed by a stored cursor, although no consumer acknowledged them (us-east 1)",
        on_disk=in_sequence(shortened("billing", 1), cursor_at(11)),
    ),
    unknown(
        "INV-5",
        "the last delivery removed from a history",
        "not reached",
        "1 of 12 messages not received by billing: the consumer had not reached them when the history ended",
        on_disk=shortened("billing", 2),
    ),
    invalid(
        "INV-3",
        "the last publish removed from a history",
        "never published",
        "1 message stored that no client published",
        on_disk=shortened("orders-us-east", 2),
    ),
    invalid(
        "INV-5",
        "a subscription recorded as begun at the latest message, and its first delivery removed",
        "skipped",
        "1 of 12 messages not received by billing, although later ones in the same region's log were received",
        begins_at_the_latest,
    ),
    unknown(
        "INV-2",
        "a kill invented that explains a log without messages",
        "behind",
        "not proven lost, because us-west was down when the history ended",
        invented_kill,
    ),
    unknown(
        "INV-2",
        "a cut link invented that explains missing copies",
        "behind",
        "6 copies of 12 acknowledged messages missing (us-west 6), not proven lost, because the link from us-east to",
        invented_cut,
    ),
    invalid(
        "INV-2",
        "the messages of a region removed, as if retention had trimmed them",
        "behind",
        "12 copies of 12 acknowledged messages missing (us-west 12)",
        on_disk=as_if_trimmed,
    ),
    unknown(
        "INV-2",
        "the latency of all links raised, which explains a missing copy",
        "behind",
        "not proven lost, because replication from eu-central to us-west may still be in progress",
        lambda run: run.logs[WEST].pop(),
        in_json("topology.json", slow_links),
    ),
    incomplete(
        "the folder of a region copied under the name of another one",
        "topology.json has no region us-south, but the folder regions/us-south exists",
        on_disk=in_sequence(region_from(WEST, "us-south"), named("us-south")),
    ),
    invalid(
        "INV-3",
        "the folder of a region replaced by that of another one, under its name",
        "never published",
        "6 messages stored that no client published",
        on_disk=in_sequence(region_from(EU, WEST), named(WEST)),
    ),
    invalid(
        "INV-25",
        "all grants deleted",
        "epoch returned without a grant",
        "2 epochs returned to a producer that the region did not grant it to (us-east 2)",
        on_disk=without_grants(0, 1),
        run=two_owners,
    ),
    invalid(
        "INV-25",
        "the newest grant deleted",
        "entry of another producer",
        "6 entries stored by others while one producer had exclusive access (us-east 6)",
        on_disk=without_grants(1),
        run=two_owners,
    ),
    incomplete(
        "the record of another run",
        "but this is run '2020-01-01T00:00:00Z': the file belongs to another run",
        on_disk=overwritten("run.json", '{"created_at": "2020-01-01T00:00:00Z"}'),
    ),
    invalid(
        "INV-2",
        "an earlier report that says valid, and a copy removed",
        "missing",
        "1 copy of 12 acknowledged messages missing (us-west 1)",
        lambda run: run.logs[WEST].pop(5),
        report_says_valid,
    ),
]
