"""The invariants of every simulated run, checked from outside the brokers: docs/INVARIANTS.md."""

from __future__ import annotations

from typing import Final

from emulator.simulation.consumer_checkers import (
    confirmed_durable,
    consumed_only_received,
    consumers_received_everything,
    mark_delete_forward,
    readers_received_everything,
    received_is_stored,
)
from emulator.simulation.invariant_check import InvariantCheck
from emulator.simulation.log_checkers import (
    acknowledged_stored,
    no_entries_of_fenced_owners,
    only_published_stored,
    order_of_each_origin,
    positions_grow,
    regions_converge,
    replicated_everywhere,
    stored_once,
)

ALWAYS: Final = (
    # First, because two owners that write to one log break other invariants too.
    InvariantCheck("no-entries-of-fenced-owners", "INV-11", no_entries_of_fenced_owners),
    InvariantCheck("acknowledged-stored", "INV-1", acknowledged_stored),
    InvariantCheck("stored-once", "INV-2", stored_once),
    InvariantCheck("only-published-stored", "INV-3", only_published_stored),
    InvariantCheck("per-origin-order", "INV-4", order_of_each_origin),
    InvariantCheck(
        "consumed-only-received", "INV-5", consumed_only_received, applies=lambda e: bool(e.cursors)
    ),
    InvariantCheck("readers-received-everything", "INV-5", readers_received_everything),
    InvariantCheck("positions-grow", "INV-7", positions_grow),
    InvariantCheck("mark-delete-forward", "INV-8", mark_delete_forward, applies=lambda e: bool(e.cursors)),
    InvariantCheck("confirmed-durable", "INV-9", confirmed_durable, applies=lambda e: bool(e.cursors)),
    InvariantCheck("received-is-stored", "INV-13", received_is_stored),
)
REPLICATED = InvariantCheck("replicated-everywhere", "INV-2", replicated_everywhere, only_healed=True)
CONVERGED = InvariantCheck("regions-converge", "INV-6", regions_converge, only_healed=True)
CONSUMED = InvariantCheck(
    "consumers-received-everything", "INV-5", consumers_received_everything, only_healed=True
)
CHECKS: Final = (*ALWAYS, REPLICATED, CONVERGED, CONSUMED)
"""The checks of every simulated run."""
