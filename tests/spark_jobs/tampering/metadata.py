"""Changes of configuration stores, metadata events and policies."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from emulator.model.stored_keys import NamespacePath
from emulator.storage.group import decode_group, encode_group
from emulator.wire.entry import build_entry
from emulator.wire.message_metadata import read_metadata, scan_entry

from ..sample_run import place
from .histories import without
from .kinds import in_json, in_sequence, incomplete, invalid, overwritten, removed, unknown
from .runs import EAST, EVENT_TOPIC, WEST, SharedMetadata

NAMESPACE = NamespacePath("public/default").text
EUROPE = "configuration/europe/configuration.sqlite"


def in_store(cluster: str, statement: str, *values: object) -> Callable[[Path], None]:
    """Execute a statement on the configuration store of a cluster."""

    def change(path: Path) -> None:
        file = path / "configuration" / cluster / "configuration.sqlite"
        with closing(sqlite3.connect(file)) as store, store:
            assert store.execute(statement, values).rowcount > 0, statement

    return change


def without_events(path: Path) -> None:
    """Remove the metadata events from all logs."""
    for log in (path / "regions").glob("*/log.sqlite"):
        with closing(sqlite3.connect(log)) as database, database:
            database.execute(
                "DELETE FROM entry_groups WHERE log_id IN (SELECT log_id FROM logs WHERE name = ?)",
                (EVENT_TOPIC,),
            )


def with_other_event(path: Path) -> None:
    """Change the value of deduplication in all stored metadata events."""
    change_events(path, _with_other_value)


def with_damaged_events(path: Path) -> None:
    """Change the last byte of the stored metadata events, but not their checksums."""
    change_events(path, lambda entry: entry[:-1] + bytes([entry[-1] ^ 1]))


def change_events(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the entries of the event topic in all logs."""
    for log in (path / "regions").glob("*/log.sqlite"):
        with closing(sqlite3.connect(log)) as database, database:
            rows = database.execute(
                "SELECT entry_groups.rowid, data FROM entry_groups JOIN logs USING (log_id) WHERE name = ?",
                (EVENT_TOPIC,),
            ).fetchall()
            for rowid, data in rows:
                entries = encode_group([change(bytes(one)) for one in decode_group(data)])
                database.execute("UPDATE entry_groups SET data = ? WHERE rowid = ?", (entries, rowid))


def _with_other_value(entry: bytes) -> bytes:
    info = scan_entry(entry)
    if info.marker_type is not None:
        return entry
    pack = json.loads(entry[info.payload_offset :])
    for event in pack.get("events", ()):
        if event["path"].endswith("/policies/deduplication"):
            event["value"] = not event["value"]
    return build_entry(read_metadata(entry), json.dumps(pack).encode())


def policy_change(**policies: object) -> str:
    """Return a line of metadata.jsonl with policies of the namespace."""
    value = json.dumps({"policies": policies})
    return json.dumps({"at_ms": 1, "region": WEST, "revision": 1, "path": NAMESPACE, "value": value}) + "\n"


def declared_in(cluster: str, region: str) -> Callable[[Path], None]:
    """Name the store of the cluster in region.json, as runs of processes do."""

    def change(path: Path) -> None:
        def name(config: dict[str, dict[str, str]]) -> None:
            config["configuration"]["path"] = str(path / "configuration" / cluster / "configuration.sqlite")

        in_json(f"regions/{region}/region.json", name)(path)

    return change


METADATA = [
    invalid(
        "INV-53",
        "a policy changed in the store of one cluster",
        "differs",
        "namespace/public/default/policies/deduplication of europe is None, not True",
        on_disk=in_store(
            "europe",
            "UPDATE kv SET value = ? WHERE path = ?",
            b'{"policies": {"replication_clusters": ["eu"]}}',
            NAMESPACE,
        ),
        run=SharedMetadata,
    ),
    invalid(
        "INV-53",
        "a document removed from the store of one cluster",
        "differs",
        "namespace/public/default of europe is None, not True",
        on_disk=in_store("europe", "DELETE FROM kv WHERE path = ?", NAMESPACE),
        run=SharedMetadata,
    ),
    invalid(
        "INV-53",
        "a document in the store of one cluster that no event created",
        "differs",
        "tenant/forged of europe is True, not None",
        on_disk=in_store("europe", "INSERT INTO kv VALUES ('tenant/forged', ?, 0, 0)", b"{}"),
        run=SharedMetadata,
    ),
    invalid(
        "INV-53",
        "a document that cannot be decoded in the store of one cluster",
        "differs",
        "1 document is not the result of applying all events",
        on_disk=in_store("europe", "UPDATE kv SET value = ? WHERE path = ?", b"none", NAMESPACE),
        run=SharedMetadata,
    ),
    invalid(
        "INV-53",
        "a metadata event changed in all logs",
        "differs",
        "deduplication of americas is True, not False",
        on_disk=with_other_event,
        run=SharedMetadata,
    ),
    unknown(
        "INV-53",
        "metadata events with wrong checksums",
        "",
        "of the event topic in us is damaged: the entry's checksum is",
        on_disk=with_damaged_events,
        run=SharedMetadata,
    ),
    unknown(
        "INV-53",
        "the metadata events removed from all logs",
        "not published",
        "6 documents are older than the published events",
        on_disk=without_events,
        run=SharedMetadata,
    ),
    unknown(
        "INV-53",
        "the store of another cluster",
        "",
        "the store of europe belongs to americas",
        on_disk=in_store("europe", "UPDATE meta SET value = 'americas' WHERE key = 'cluster'"),
        run=SharedMetadata,
    ),
    unknown(
        "INV-53",
        "a store that is no database",
        "",
        "configuration/europe/configuration.sqlite cannot be read",
        on_disk=overwritten(EUROPE, "none" * 2000),
        run=SharedMetadata,
    ),
    unknown(
        "INV-53",
        "a store removed",
        "",
        "configuration/europe/configuration.sqlite is missing",
        on_disk=in_sequence(declared_in("europe", "eu"), removed(EUROPE)),
        run=SharedMetadata,
    ),
]

_DIFFERENTLY = (
    "topology.json and region.json of us-east and us-west and eu-central declare namespace public/default"
    " differently"
)

POLICIES = [
    incomplete(
        "received policy changes that cannot be parsed",
        "regions/us-west/metadata.jsonl cannot be read: line 1: Expecting value",
        on_disk=overwritten(f"regions/{WEST}/metadata.jsonl", "none\n"),
    ),
    incomplete(
        "a received policy change without its revision",
        "regions/us-west/metadata.jsonl cannot be read: line 1 has no revision",
        on_disk=overwritten(
            f"regions/{WEST}/metadata.jsonl", '{"at_ms": 1, "path": "tenant/a", "value": "{}"}\n'
        ),
    ),
    incomplete(
        "received replication clusters that are no list",
        "regions/us-west/metadata.jsonl cannot be read: line 1: replication_clusters must be a list of names, not 5",
        on_disk=overwritten(f"regions/{WEST}/metadata.jsonl", policy_change(replication_clusters=5)),
    ),
    incomplete(
        "a received retention without its time",
        "regions/us-west/metadata.jsonl cannot be read: line 1 has no retentionTimeInMinutes",
        on_disk=overwritten(f"regions/{WEST}/metadata.jsonl", policy_change(retention={})),
    ),
    incomplete(
        "a namespace removed from the topology",
        _DIFFERENTLY,
        on_disk=in_json("topology.json", lambda topology: topology["namespaces"].clear()),
    ),
    incomplete(
        "a region that does not exist added to a namespace",
        "topology.json names region atlantis, of which the run has no folder and no entry in a cluster",
        on_disk=in_json(
            "topology.json", lambda topology: topology["namespaces"][0]["regions"].append("atlantis")
        ),
    ),
    incomplete(
        "a region removed from a namespace of the topology, and a copy removed there",
        _DIFFERENTLY,
        lambda run: run.logs[WEST].pop(5),
        in_json("topology.json", lambda topology: topology["namespaces"][0]["regions"].remove(WEST)),
    ),
    incomplete(
        "deduplication removed from a namespace of the topology, and an entry stored twice",
        _DIFFERENTLY,
        lambda run: run.logs[WEST].append(run.logs[WEST][4]),
        in_json("topology.json", lambda topology: topology["namespaces"][0].update(deduplication=False)),
    ),
    incomplete(
        "a time to live added to a namespace of the topology, and a delivery removed",
        _DIFFERENTLY,
        without(op="receive", region=EAST, message_id=f"{place(EAST, 4)}:-1"),
        in_json("topology.json", lambda topology: topology["namespaces"][0].update(message_ttl_seconds=1)),
    ),
]
