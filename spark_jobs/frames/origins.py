"""Identity of messages and positions, and their text form.

A message is its *origin*: (topic, origin region, producer, sequence id). A place is (region, ledger, entry, index in
its batch).
"""

from __future__ import annotations

from spark_jobs.engines.frames import Column, F

ORIGIN = ("topic", "origin_region", "producer", "sequence_id")
"""The columns that identify a message."""


def position_text(place: Column) -> Column:
    """`ledger:entry:batch_index`, as message ids are written in the history."""
    return F.concat_ws(":", place["ledger_id"], place["entry_id"], place["batch_index"])


def entry_text(position: Column) -> Column:
    """`ledger:entry`, null where there is none."""
    return F.when(position.isNotNull(), F.concat_ws(":", position["ledger_id"], position["entry_id"]))
