"""Exclusive access of producers to topics (PIP-68, PIP-440). Its contract: docs/components/access.md.

types.py        claimants, grants, decisions
machine.py      the state machine, one per topic and region
grants.py       the newest grant and its change
wait_queue.py   producers that wait
"""

from emulator.core.access.machine import Access
from emulator.core.access.types import (
    AS_PROPOSED,
    NO_OWNER,
    AccessGrant,
    AccessRules,
    Admit,
    Claimant,
    Decision,
    Enqueue,
    Evict,
    GrantChange,
    GrantStep,
    QueueEntry,
    Refuse,
    WriteGrant,
    next_epoch,
)

__all__ = [
    "AS_PROPOSED",
    "NO_OWNER",
    "Access",
    "AccessGrant",
    "AccessRules",
    "Admit",
    "Claimant",
    "Decision",
    "Enqueue",
    "Evict",
    "GrantChange",
    "GrantStep",
    "QueueEntry",
    "Refuse",
    "WriteGrant",
    "next_epoch",
]
