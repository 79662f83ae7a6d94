"""Who may publish to a topic (PIP-68), and who is next (PIP-440). The contract of this room: docs/components/access.md.

types.py        who asks, what is granted, what is decided
machine.py    the machine, one a topic and region
"""

from emulator.core.access.machine import Access
from emulator.core.access.types import (
    AS_PROPOSED,
    NOBODY,
    Admit,
    Change,
    Claimant,
    Decision,
    Evict,
    Grant,
    Habits,
    Place,
    Refuse,
    Step,
    Wait,
    Write,
    next_epoch,
)

__all__ = [
    "AS_PROPOSED",
    "NOBODY",
    "Access",
    "Admit",
    "Change",
    "Claimant",
    "Decision",
    "Evict",
    "Grant",
    "Habits",
    "Place",
    "Refuse",
    "Step",
    "Wait",
    "Write",
    "next_epoch",
]
