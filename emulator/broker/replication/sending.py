"""What a replicator sends in one write: parts of runs of SENDs, as far as its window and the remote region allow."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.broker.topic.stored_entry import PlainReplica, StoredEntry
from emulator.core.replication.progress import ReplicationProgress
from emulator.wire.codec_hot.send_runs import Run


class RunsToSend:
    """The frames of one write. Each part of a run is in flight from `add` on."""

    def __init__(self, producer_id: int, progress: ReplicationProgress, entry_bytes_max: int) -> None:
        self._producer_id = producer_id
        self._progress = progress
        self._entry_bytes_max = entry_bytes_max
        self.parts: list[bytes] = []
        """The frames, in parts."""
        self.messages = 0
        self.size_bytes = 0
        """Size of the entries in their replicated form."""
        self.too_large = 0
        """Size of the next entry, if it exceeds the limit of the remote region; 0: it does not."""

    def add(self, run: Run, entry_id: int, entries_max: int) -> int:
        """Add up to `entries_max` entries of a run, from this id on. Return their number; 0: the window is full, or the
        next entry is too large."""
        progress = self._progress
        begin = entry_id - run.first_entry_id
        sizes = run.sizes[begin : begin + entries_max]
        if max(sizes) > self._entry_bytes_max:
            fitting = next(index for index, size in enumerate(sizes) if size > self._entry_bytes_max)
            if not fitting:
                self.too_large = sizes[0]
                return 0
            sizes = sizes[:fitting]
        count = progress.fitting(sizes)
        previous = progress.last_sent
        named = None if previous == entry_id - 1 else previous
        self.parts += run.frames(self._producer_id, begin, begin + count, named, self._entry_bytes_max)
        self.messages += run.messages * count
        self.size_bytes += progress.sent(entry_id, sizes[:count])
        return count


def replicas_from(entries: Sequence[StoredEntry], at: int, origin: str) -> int:
    """Return the number of plain messages of another region, from this index on, that follow each other."""
    end = at + 1
    while (
        end < len(entries)
        and isinstance(entry := entries[end], PlainReplica)
        and entry.replicated_from == origin
    ):
        end += 1
    return end - at
