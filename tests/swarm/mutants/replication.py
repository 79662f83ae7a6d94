"""Careless replicators."""

from __future__ import annotations

from emulator.core.replication.progress import Forwarding, ReplicationProgress, forwarding
from tests.swarm.mutant import Mutant, parts


def _forward_everything(
    remote: str, replicated_from: str | None, replicate_to: tuple[str, ...], marker_type: int | None
) -> Forwarding:
    return forwarding(remote, None, replicate_to, marker_type)


class _GoesOnFromNext(ReplicationProgress):
    def reset(self) -> None:
        next_entry_id = self.next_entry_id
        super().reset()
        self.next_entry_id = next_entry_id


MUTANTS = (
    Mutant(
        "replication-loop",
        "A replicator forwards messages that came from another region.",
        ("INV-3", "INV-2", "INV-6", "INV-4"),
        parts(forwarding=_forward_everything),
    ),
    Mutant(
        "resume-after-sent",
        "After a lost link a replicator continues after the last sent message, not after the last "
        "confirmed one.",
        ("INV-6", "INV-2"),
        parts(replication_progress=_GoesOnFromNext),
    ),
)
