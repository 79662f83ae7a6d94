"""The public tables of a run, with the name, type and meaning of each column. `make docs` writes them to
docs/reference/tables.md. `export_folder.SCHEMA_VERSION` is the version of this schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.engines.frames import schema as parsed_schema


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a table."""

    name: str
    type: str
    """Type in Spark's notation."""
    meaning: str
    """Meaning, with the unit of a number."""


@dataclass(frozen=True, slots=True)
class Table:
    """One public table."""

    name: str
    rows: str
    """What a row is."""
    partitioned_by: str
    """Column by which parts and exported files are divided."""
    columns: tuple[TableColumn, ...]

    @property
    def schema(self) -> pa.Schema:
        return parsed_schema(", ".join(f"{one.name} {one.type}" for one in self.columns))


def _columns(text: str) -> tuple[TableColumn, ...]:
    """Parse lines of `name | type | meaning`."""
    rows = (line.split(" | ") for line in text.splitlines() if line.strip())
    return tuple(TableColumn(*(part.strip() for part in row)) for row in rows)


_PLACE = """
region | string | Region that stores the entry.
topic | string | Topic as the region stores it: a partition has its own name.
ledger_id | bigint | Ledger of the position in the region's log.
entry_id | bigint | Entry of the position in the region's log.
"""
_SOURCE = """
replicated_from | string | Region from which the entry was replicated; null: it was published in `region`.
origin_region | string | Region in which the entry was published first.
replicate_to | array<string> | Regions to which the producer limits the replication; null: all.
source_ledger | bigint | Ledger of the position in the log of `replicated_from`, as the entry states it.
source_entry | bigint | Entry of that position.
transaction | string | `most,least` of the transaction that the entry belongs to, or that the marker ends; null: none.
"""
_SOUND = "is_sound | boolean | Whether the entry matches its checksum, or has none."
_DAMAGE = "damage | string | Null, or why a part of the evidence cannot be read; other columns are null then."
_STORED = f"""
{_PLACE.strip()}
batch_index | int | Index of the message in its batch; -1 outside of batches.
producer | string | Name of the producer.
sequence_id | bigint | Sequence id of the message.
publish_time_ms | bigint | Publish time that the client set, in milliseconds since 1970.
{_SOURCE.strip()}
payload_bytes | int | Size of the payload, in bytes.
payload_digest | bigint | Digest of the payload as the application published it; null: it is encrypted or unreadable.
attributes_digest | bigint | Digest of key, ordering key, event time and properties; 0: none of them.
bytes_digest | bigint | Digest of everything that is equal in every region.
{_SOUND}
"""

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(
            "entries",
            "one stored entry of a topic: a message, a batch, a chunk or a marker",
            "region",
            _columns(f"""
{_PLACE.strip()}
producer | string | Name of the producer.
sequence_id | bigint | Sequence id of the entry; of a batch, of its first message.
publish_time_ms | bigint | Publish time that the client set, in milliseconds since 1970.
{_SOURCE.strip()}
marker_type | int | Type of the marker, as in Pulsar's protocol; null: the entry is no marker.
messages | int | Number of messages in the entry; 0: a marker, or a chunk that is not the last one.
chunk_id | int | Number of the chunk from 0; null: the entry is no chunk.
chunks | int | Number of chunks of the message; null: the entry is no chunk.
entry_bytes | bigint | Size of the entry with its metadata, in bytes.
{_SOUND}
{_DAMAGE}"""),
        ),
        Table(
            "messages",
            "one stored copy of a message; batches are split, a chunked message is the row of its last chunk",
            "region",
            _columns(f"{_STORED}{_DAMAGE}"),
        ),
        Table(
            "markers",
            "one stored marker: of replicated subscriptions, or the end of a transaction",
            "region",
            _columns(f"""{_STORED}
marker_type | int | Type of the marker, as in Pulsar's protocol.
marker | string | Content of a snapshot or an update as JSON, or why it cannot be read; null: another marker.
{_DAMAGE}"""),
        ),
        Table(
            "cursors",
            "the stored position of one subscription in one region",
            "region",
            _columns(f"""
region | string | Region that stores the position.
topic | string | Topic as the region stores it.
subscription | string | Name of the subscription.
mark_delete | bigint | Entry up to which every message is acknowledged; -1: no entry.
acknowledged | map<bigint, bigint> | Acknowledged entries after `mark_delete`: first entry of each range, last entry.
{_DAMAGE}"""),
        ),
        Table(
            "history",
            "one line of a history file: a request of a client, a response, or a fact",
            "history_file",
            _columns(f"""
history_file | string | File of the line in `history/`, without suffix; null: the line cannot be read.
at_ms | double | Time of the event, in milliseconds since 1970.
actor | string | Program that wrote the line.
op | string | Operation.
outcome | string | `asked`, `ok`, `failed`, `unknown` or `fact`.
region | string | Region of the operation.
other_region | string | Other end of a link; of a move, the region that the actor leaves.
topic | string | Topic, with its full name.
subscription | string | Name of the subscription.
origin_region | string | Region in which the message was published first.
producer | string | Name of the producer.
session | string | Opening of the producer.
sequence_id | bigint | Sequence id of the message.
last_sequence_id | bigint | Last sequence id that the region returned when the producer was opened.
topic_epoch | bigint | Epoch returned to a producer with exclusive access.
ledger_id | bigint | Ledger of the message id in the log of `region`.
entry_id | bigint | Entry of the message id.
batch_index | int | Batch index of the message id; -1 outside of batches.
payload_digest | bigint | Digest of the payload, as in `messages`.
attributes_digest | bigint | Digest of the attributes, as in `messages`; 0: none.
key | string | Key of the message.
replicate_to | array<string> | Regions to which the producer limits the replication.
replicated | boolean | Whether the subscription is replicated.
initial | string | Initial position of the subscription.
compacted | boolean | Whether the subscription reads the compacted topic.
how | string | How a message is acknowledged: `individual` or `cumulative`.
error | string | Error of a request that failed.
detail | string | Further text.
transaction | string | `most,least` of the transaction.
action | string | End of a transaction: `commit` or `abort`.
transaction_key | string | Key of the transaction.
key_epoch | bigint | Epoch of the transaction key.
plan | string | A fail-over plan, as JSON.
{_DAMAGE}"""),
        ),
        Table(
            "metadata_events",
            "one metadata event (PIP-136) in one region's log of the event topic",
            "region",
            _columns(f"""
region | string | Region that stores the event.
ledger_id | bigint | Ledger of the position in the region's log.
entry_id | bigint | Entry of the position in the region's log.
published_ms | bigint | Publish time of the entry, in milliseconds since 1970.
path | string | Path of the document, without escapes.
element | string | Element of the document; empty: the whole document.
is_deletion | boolean | Whether the event deletes the element.
value | string | New value of the element, as JSON; null: a deletion, or the existence of the document.
time_ms | bigint | Time of the change at its source, in milliseconds since 1970.
counter | bigint | Counter that orders changes of one millisecond.
source_cluster | string | Cluster in which the change was made.
sequence | bigint | Sequence of the event among those of its source.
incarnation | string | Incarnation of the source's configuration store.
{_DAMAGE}"""),
        ),
        Table(
            "faults",
            "one fault of a region or a link, or its end, as the history records it",
            "history_file",
            _columns("""
history_file | string | File of the line in `history/`, without suffix.
at_ms | double | Time of the fault, in milliseconds since 1970.
op | string | Operation, such as `kill`, `start`, `cut` or `heal`.
region | string | Region; of a link, the region at its start; null: `heal` of all links.
other_region | string | Other end of the link; null: the fault is one of a region.
detail | string | Further text, such as the latency of a link and its direction."""),
        ),
    )
}
"""The tables by name."""
