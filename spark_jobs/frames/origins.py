"""What tells messages and places from one another, and how they are written.

A message is its *origin*: (topic, origin region, producer, sequence id). A place is (region, ledger, entry, index in
its batch).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from spark_jobs.engines.frames import Column, F

ORIGIN = ("topic", "origin_region", "producer", "sequence_id")
"""The columns that tell one message from another."""

LEDGER = 1 << 40
"""Room for entry ids where a place is one number, `ledger * LEDGER + entry`."""

_SYSTEM_TOPIC = re.compile(r"[a-z-]+://(pulsar/system/|[^/]+/[^/]+/__)")

_PARTITION = re.compile(r"-partition-\d+$")


def history_topic(log_topic: str, history_topics: Collection[str]) -> str | None:
    """What the history calls a topic that is stored as `log_topic`. It speaks of a partitioned topic as a whole,
    unless it names partitions itself. None for topics of the system, which are nobody's business."""
    if _SYSTEM_TOPIC.match(log_topic):
        return None
    whole = _PARTITION.sub("", log_topic)
    return whole if whole in history_topics else log_topic


def position_text(place: Column) -> Column:
    """`ledger:entry:batch_index`, as message ids are written in the history."""
    return F.concat_ws(":", place["ledger_id"], place["entry_id"], place["batch_index"])


def entry_text(position: Column) -> Column:
    """`ledger:entry`, null where there is none."""
    return F.when(position.isNotNull(), F.concat_ws(":", position["ledger_id"], position["entry_id"]))
