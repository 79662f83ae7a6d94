"""Mutants of replicators."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.core.replication.progress import Forwarding, ReplicationProgress, forwarding
from emulator.wire.codec_hot.publishing import NO_PREVIOUS_ENTRY
from tests.swarm.mutant import Mutants, part

MUTANTS = Mutants()


@MUTANTS.mutant("replication-loop", "INV-3", "INV-2", "INV-6", "INV-4", patch=part("forwarding"))
def _replication_loop(
    remote: str, replicated_from: str | None, replicate_to: tuple[str, ...], marker_type: int | None
) -> Forwarding:
    """A replicator forwards messages that came from another region."""
    return forwarding(remote, None, replicate_to, marker_type)


@MUTANTS.mutant("resume-after-sent", "INV-6", "INV-2", patch=part("replication_progress"))
class _ResumeAfterSent(ReplicationProgress):
    """After a lost link a replicator continues after the last sent message, not after the last confirmed one."""

    def reset(self) -> None:
        next_entry_id = self.next_entry_id
        super().reset()
        self.next_entry_id = next_entry_id


FRAME_FAULT_MUTANTS = Mutants("frame-faults")


@FRAME_FAULT_MUTANTS.mutant("stream-without-predecessors", "INV-2", patch=part("replication_progress"))
class _StreamWithoutPredecessors(ReplicationProgress):
    """Each entry that is sent to another region claims to be the first of its stream, so a lost one before it is not
    noticed."""

    def fitting(self, sizes: Sequence[int]) -> int:
        return min(1, super().fitting(sizes))

    def sent(self, entry_id: int, sizes: Sequence[int]) -> int:
        size_bytes = super().sent(entry_id, sizes)
        self.last_sent = NO_PREVIOUS_ENTRY
        return size_bytes
