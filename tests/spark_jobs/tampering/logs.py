"""Changes of the logs of regions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from emulator.storage.group import decode_group, encode_group
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry, with_replication
from emulator.wire.message_metadata import read_metadata, scan_entry

from ..sample_run import TOPIC, SampleRun, payload_of, place, store_entries
from .kinds import EVIDENCE_COMPLETE, edit, incomplete, invalid, unknown
from .runs import EAST, EU, MESSAGES, WEST, small_run, two_producers


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


def exchanged(run: SampleRun) -> None:
    """Exchange two messages of one producer in us-west."""
    log = run.logs[WEST]
    log[4], log[6] = log[6], log[4]


def restricted(run: SampleRun) -> None:
    """Remove an entry from two regions, and restrict the remaining copy to its own region."""
    entry_with(run, EAST, 10, replicate_to=[EAST])
    for region in (WEST, EU):
        run.logs[region].pop(10)


def asked_for_two_regions() -> SampleRun:
    """The client restricted its message 2 to us-east and eu-central, and its copies name the restriction."""
    run = small_run()
    run.change("publish", "asked", only=4, replicate_to=[EAST, EU])
    for region in run.regions:
        entry_with(run, region, 4, replicate_to=[EAST, EU])
    return run


def forged(run: SampleRun) -> None:
    """Store a message in all regions under the name of a producer of the run."""
    metadata = pb.MessageMetadata(producer_name=f"orders-{EAST}", sequence_id=MESSAGES, publish_time=1)
    entry = build_entry(metadata, payload_of(EAST, MESSAGES))
    position = run.store(EAST, entry)
    for region in (WEST, EU):
        run.logs[region].append(with_replication(entry, EAST, position))


def refused(run: SampleRun) -> None:
    """Record an error for the client instead of the receipt of message 2."""
    (event,) = (
        event
        for event in run.events
        if event[2:4] == ("publish", "ok") and event[4]["sequence_id"] == 2 and event[4]["region"] == EAST
    )
    fields = {name: value for name, value in event[4].items() if name != "message_id"}
    run.events[run.events.index(event)] = (*event[:3], "failed", {**fields, "error": "refused"})


def foreign_topic(path: Path) -> None:
    metadata = pb.MessageMetadata(producer_name="forger", sequence_id=0, publish_time=1)
    log = path / "regions" / WEST / "log.sqlite"
    asyncio.run(store_entries(log, WEST, [build_entry(metadata, b"x")], topic=f"{TOPIC}-2"))


def damaged_marker(path: Path) -> None:
    metadata = pb.MessageMetadata(
        producer_name="pulsar.marker", sequence_id=0, publish_time=1, marker_type=12
    )
    log = path / "regions" / WEST / "log.sqlite"
    asyncio.run(store_entries(log, WEST, [build_entry(metadata, b"\xff\xff")]))


def in_first_group(change: Callable[[bytearray], object]) -> Callable[[Path], None]:
    """Change the bytes of the first group of entries of us-west."""

    def damage(path: Path) -> None:
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(path / "regions" / WEST / "log.sqlite")) as log, log:
            ((rowid, data),) = log.execute("SELECT rowid, data FROM entry_groups LIMIT 1").fetchall()
            changed = bytearray(data)
            change(changed)
            log.execute("UPDATE entry_groups SET data = ? WHERE rowid = ?", (bytes(changed), rowid))

    return damage


def flip_last_bit(data: bytearray) -> None:
    data[-6] ^= 1


def shorten_entry(data: bytearray) -> None:
    """Cut the last entry of the group to three bytes; the checksum of the group matches."""
    entries = decode_group(bytes(data))
    data[:] = encode_group([*entries[:-1], entries[-1][:3]])


LOGS = [
    invalid(
        "INV-3",
        "a checksum that is wrong",
        "corrupt",
        "1 message stored that do not match their checksum",
        wrong_checksum,
    ),
    invalid(
        "INV-3",
        "another payload everywhere",
        "other payload",
        "1 message stored with another payload than the client published",
        other_payload_everywhere,
    ),
    invalid(
        "INV-6",
        "another key in one region",
        "differs",
        "1 message stored with different bytes in different regions",
        lambda run: entry_with(run, WEST, 4, partition_key="k"),
    ),
    invalid(
        "INV-3",
        "another key everywhere",
        "other attributes",
        "1 message stored with another key, event time or other properties than the client set",
        lambda run: [entry_with(run, region, 4, partition_key="k") for region in run.regions],
    ),
    invalid(
        "INV-6",
        "another publish time in one region",
        "differs",
        "1 message stored with different bytes in different regions",
        lambda run: entry_with(run, WEST, 4, publish_time=7),
    ),
    invalid(
        "INV-4",
        "invented source positions",
        "wrong source",
        "11 messages stored with a source position at which their origin's log stores another message (us-west 11)",
        no_sources,
    ),
    invalid(
        "INV-4",
        "the messages of one producer stored after those of the other, in one region",
        "out of the origin's order",
        "5 messages stored after one that follows it in the origin's log (us-west 5)",
        regrouped,
        run=two_producers,
    ),
    invalid(
        "INV-4",
        "two messages of a producer exchanged, in one region",
        "out of order",
        "1 message stored after a later one of the same producer (us-west 1)",
        exchanged,
    ),
    invalid(
        "INV-3",
        "a restriction to regions that the client did not set, added to an entry; its other copies removed",
        "restricted",
        "1 message restricted to regions although the client did not request it",
        restricted,
    ),
    invalid(
        "INV-2",
        "the same change, found by the missing copies",
        "behind",
        "2 copies of 12 acknowledged messages missing (eu-central 1, us-west 1)",
        restricted,
    ),
    invalid(
        "INV-3",
        "a message stored in a region from which its client excluded it",
        "excluded",
        "1 message stored in a region from which the client excluded it",
        run=asked_for_two_regions,
    ),
    invalid(
        "INV-2",
        "the beginning of a log removed",
        "missing",
        "6 copies of 12 acknowledged messages missing (us-west 6)",
        on_disk=lambda path: edit(path, WEST, "UPDATE logs SET first_entry_id = 6"),
    ),
    invalid(
        "INV-2",
        "one entry of a log removed",
        "missing",
        "1 copy of 12 acknowledged messages missing (us-west 1)",
        lambda run: run.logs[WEST].pop(5),
    ),
    invalid(
        "INV-2",
        "the end of a log removed",
        "behind",
        "1 copy of 12 acknowledged messages missing (us-west 1)",
        lambda run: run.logs[WEST].pop(),
    ),
    invalid(
        "INV-2",
        "an entry stored twice in one region",
        "duplicated by replication",
        "1 message stored more than once (us-west 1)",
        lambda run: run.logs[WEST].append(run.logs[WEST][4]),
    ),
    invalid(
        "INV-1",
        "an acknowledged message removed from the log of its region",
        "missing",
        "1 of 12 acknowledged messages is missing from the log of the region that acknowledged it (us-east 1)",
        lambda run: run.logs[EAST].pop(4),
    ),
    invalid(
        "INV-1",
        "an acknowledged message removed from all logs",
        "missing",
        "1 of 12 acknowledged messages is missing from the log of the region that acknowledged it (us-east 1)",
        lambda run: [run.logs[region].pop(4) for region in run.regions],
    ),
    invalid(
        "INV-3",
        "a message that no client published, in all regions",
        "never published",
        "1 message stored that no client published",
        forged,
    ),
    invalid(
        "INV-3",
        "a message stored although its client received an error",
        "refused",
        "1 message stored although the client received an error that excludes it",
        refused,
    ),
    invalid(
        "INV-3",
        "another sequence id in one region",
        "never published",
        "1 message stored that no client published",
        lambda run: entry_with(run, WEST, 4, sequence_id=77),
    ),
    invalid(
        "INV-3",
        "another origin region in one region",
        "never published",
        "1 message stored that no client published",
        lambda run: entry_with(run, WEST, 4, replicated_from=EU),
    ),
    unknown(
        "INV-3",
        "an entry on a topic that no client used",
        "unknown producer",
        "1 message of producers or topics that are not in the history",
        on_disk=foreign_topic,
    ),
    unknown(
        EVIDENCE_COMPLETE,
        "an entry of a region that does not exist",
        "",
        "the log of us-west names region atlantis, of which the run has no folder and no entry in a cluster",
        lambda run: entry_with(run, WEST, 4, replicated_from="atlantis"),
    ),
    incomplete(
        "a group of entries with a wrong checksum",
        "entries from 603001:0 is damaged: its checksum does not match its bytes",
        on_disk=in_first_group(flip_last_bit),
    ),
    incomplete(
        "an entry without its end",
        "entries from 603001:11: unreadable message metadata: entry of 3 bytes",
        on_disk=in_first_group(shorten_entry),
    ),
    incomplete(
        "a marker that cannot be decoded",
        "orders 603001:12 in us-west: unreadable marker",
        on_disk=damaged_marker,
    ),
    incomplete(
        "the log of another region",
        "regions/us-west/log.sqlite belongs to region us-east",
        on_disk=lambda path: edit(path, WEST, "UPDATE meta SET value = 'us-east' WHERE key = 'region'"),
    ),
    incomplete(
        "a log of another format version",
        "regions/us-west/log.sqlite has format version 9, not 1",
        on_disk=lambda path: edit(path, WEST, "UPDATE meta SET value = '9' WHERE key = 'format_version'"),
    ),
    incomplete(
        "a log that is no database",
        "regions/us-west/log.sqlite cannot be read: file is not a database",
        on_disk=lambda path: (path / "regions" / WEST / "log.sqlite").write_bytes(b"none" * 2000),
    ),
    incomplete(
        "a log removed",
        "regions/us-west/log.sqlite is missing",
        on_disk=lambda path: (path / "regions" / WEST / "log.sqlite").unlink(),
    ),
    incomplete(
        "the newest commits of a log removed",
        "regions/us-west/log.sqlite cannot be read: log.sqlite-wal is missing, and with it the newest commits",
        on_disk=lambda path: (path / "regions" / WEST / "log.sqlite-shm").touch(),
    ),
]
