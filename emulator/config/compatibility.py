"""Named switches to upstream's behaviour, where a proposal that this project implements differs from it.

A user sets one in the topology, every region receives it, and the code that behaves differently queries it by name:

    compatibility:
      overlapping_batches: upstream

Each switch is a row of the table in docs/PROTOCOL.md, which a test compares with this one. The check of the topology
rejects an unknown switch or choice and suggests the nearest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PROPOSAL, UPSTREAM = "proposal", "upstream"
CHOICES = (PROPOSAL, UPSTREAM)
"""Values of every switch; the first is the default."""


@dataclass(frozen=True, slots=True)
class Switch:
    """One difference between upstream and the proposals, for the table of docs/PROTOCOL.md."""

    what: str
    upstream: str
    here: str
    why: str
    """Why the proposal's behaviour is the default."""


SWITCHES: Mapping[str, Switch] = {
    "overlapping_batches": Switch(
        what="a batch that overlaps what its producer sent before",
        upstream="acknowledged and dropped, its new messages too",
        here="stored",
        why="no acknowledged publish may be lost",
    ),
    "queue_priority": Switch(
        what="which producer is promoted when an exclusive producer leaves",
        upstream="the longest waiter; priorities are ignored",
        here="the highest `queue_priority`, then the longest waiter (PIP-440)",
        why="the load of a lost host is spread over the others",
    ),
    "failed_promotion": Switch(
        what="the new epoch of a promoted producer cannot be stored",
        upstream="no other producer is tried: the topic silently stays without an owner",
        here="every waiting producer is tried until one succeeds (PIP-440)",
        why="a topic must not be left without an owner while producers wait",
    ),
    "unloaded_owner": Switch(
        what="a topic with an exclusive producer is unloaded, or its region starts again",
        upstream=(
            "the first producer that returns gets it; usually that is a waiter, and the owner is fenced"
        ),
        here="the owner gets it back within `exclusive_grace_period_ms`, and waiters keep their order",
        why="an owner that did not fail is not retired by the broker (PIP-440)",
    ),
    "fenced_producers": Switch(
        what="the error for producers fenced by `ExclusiveWithFencing`",
        upstream="`ProducerBusy` repeatedly for a shared one; a waiter silently waits again",
        here="`ProducerFenced`, with the next publish (PIP-68)",
        why="the proposal guarantees it to the fenced producer",
    ),
    "replicated_subscription_status": Switch(
        what="a subscription that is not replicated in one region, and is in another",
        upstream="an update of the other region moves it. A SUBSCRIBE with `replicate_subscription_state` turns "
        "replication on, also after an administrator turned it off",
        here="an update neither moves it nor turns replication on; it is counted, and `geoemu explain` and "
        "`geoemu status` name the two regions. After an administrator turned it off only an administrator turns it "
        "on again",
        why="the users of a region decide which of its positions other regions may move; clients repeat SUBSCRIBE "
        "each time they connect",
    ),
    "snapshot_cache": Switch(
        what="the snapshot that a full cache of a replicated subscription drops",
        upstream="the oldest, before version 4.2: a subscription far behind finds no snapshot that it reaches",
        here="the one whose neighbours are closest together, never the first or the last",
        why="the position of a slow consumer must be replicated, too",
    ),
    "markers_in_backlog": Switch(
        what="markers of replicated subscriptions in the backlog of a subscription",
        upstream="count as messages; in a region without consumers they remain for ever",
        here="are not counted, and mark-delete passes them",
        why="users read `msgBacklog` as messages",
    ),
    "snapshot_timeout": Switch(
        what="the timeout of a snapshot after others timed out",
        upstream="always `snapshot_timeout_ms`",
        here="grows up to `snapshot_timeout_growth_max` times while links are up",
        why="where a marker is queued for longer than the timeout, no snapshot would ever complete",
    ),
    "dead_region": Switch(
        what="snapshots while a region is dead, and after its return",
        upstream=(
            "none while it is dead, for however long (`partial_snapshots_after` has no effect); after its return, and "
            "after any lost connection, only new messages cause the next one"
        ),
        here="none, or partial ones after `partial_snapshots_after`; a snapshot follows its return",
        why="a region that died may have lost the last update, and a quiet topic would never send another",
    ),
    "metadata_conflicts": Switch(
        what="which of two changes wins that different clusters made to one path",
        upstream=(
            "the event's time is compared with the time at which this cluster applied the present value; on a "
            "tie the cluster whose name sorts last wins; deletions are not remembered"
        ),
        here=(
            "the later change wins; for equal times that of the cluster whose name sorts first; between two "
            "changes of one cluster that with the higher sequence number; deletions are remembered (PIP-136)"
        ),
        why="clusters that receive changes in different orders must converge",
    ),
    "metadata_order": Switch(
        what="the order of publishing and applying a metadata change",
        upstream=(
            "PIP-136's: published first, then applied. A change that the store refuses has been "
            "published and takes effect; without the event topic nothing can be changed"
        ),
        here="stored first, in one transaction with the event, then published",
        why="refused changes are not published, and acknowledged ones always are",
    ),
}


class Compatibility:
    """The switches of one run."""

    def __init__(self, chosen: Mapping[str, str]) -> None:
        """Raises ValueError for an unknown switch or choice."""
        for name, choice in chosen.items():
            if name not in SWITCHES or choice not in CHOICES:
                raise ValueError(
                    f"compatibility: {name}: {choice!r} is no switch of this version, or no choice"
                )
        self._chosen = dict(chosen)

    def follows_upstream(self, name: str) -> bool:
        """Return whether a switch is set to upstream's behaviour."""
        assert name in SWITCHES, name
        return self._chosen.get(name) == UPSTREAM


def table() -> str:
    """Return all switches as the table of docs/PROTOCOL.md."""
    head = "| switch | what | `upstream` | `proposal`, the default | why |\n|---|---|---|---|---|"
    rows = [
        f"| `{name}` | {switch.what} | {switch.upstream} | {switch.here} | {switch.why} |"
        for name, switch in SWITCHES.items()
    ]
    return "\n".join([head, *rows])
