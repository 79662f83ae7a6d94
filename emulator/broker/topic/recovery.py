"""Rebuilds the state of a topic from its log: from the entries behind its last checkpoint, or from all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from emulator.broker.compaction.stored import log_name, read_row
from emulator.config.compatibility import Compatibility
from emulator.errors import CheckpointDamaged
from emulator.model.values import TopicName
from emulator.storage.contract import Log
from emulator.wire.message_metadata import scan_entry

if TYPE_CHECKING:
    from emulator.broker.compaction.compaction import Compaction
    from emulator.broker.environment import RegionServices
    from emulator.core.topic.state import TopicState

REPLAY_ENTRIES = 1_000
REPLAY_BYTES = 4_194_304


class Loaded(Protocol):
    """A topic whose state is that of an entry of its log, and that serves no client yet."""

    region: RegionServices
    name: TopicName
    full_name: str
    log: Log
    state: TopicState
    compaction: Compaction


def check_is_whole(log: Log, name: TopicName, damage: CheckpointDamaged) -> None:
    """CheckpointDamaged when entries were trimmed: their effect is stored only in the checkpoint."""
    if log.first_entry_id > 0:
        raise CheckpointDamaged(
            f"{damage}, and the log of {name} begins at entry {log.first_entry_id}: earlier state cannot be rebuilt"
        ) from None


async def replay(topic: Loaded, from_entry_id: int) -> int:
    """Fold the log from an id on, and open the compacted log. Returns the number of entries."""
    region, log, state = topic.region, topic.log, topic.state
    state.begins_at(log.first_entry_id)
    chosen = Compatibility(region.config.compatibility)
    state.deduplication.drops_overlaps = chosen.follows_upstream("overlapping_batches")
    at, count = from_entry_id, 0
    while entries := await log.read(at, REPLAY_ENTRIES, REPLAY_BYTES):
        for entry in entries:
            state.fold(entry.entry_id, scan_entry(entry.data))
        count += len(entries)
        at = entries[-1].entry_id + 1
    state.ends_at(log.next_entry_id)
    await _open_compacted(topic)
    return count


async def _open_compacted(topic: Loaded) -> None:
    row, compacted = read_row(topic.region.store, topic.full_name), None
    if row is not None:
        compacted = await topic.region.store.open_log(log_name(topic.name, row.generation), create=False)
    topic.compaction.load(row, compacted)
