"""What a verb makes of a run or a region that is as it finds it: something, nothing, or no sense.

Runtimes are content when what a verb says is so already. A person wants to know that the region had been dead before,
and the verdict must not read of a fault that never was.
"""

from __future__ import annotations

from typing import Final

from emulator.errors import Refused
from emulator.runtimes.contract import RegionState, RunStatus

_IS_SO: dict[str, frozenset[RegionState]] = {
    "kill": frozenset({"killed", "lost", "stopped"}),
    "lose": frozenset({"lost"}),
    "stop": frozenset({"stopped"}),
    "start": frozenset({"running"}),
    "pause": frozenset({"paused"}),
    "resume": frozenset({"running"}),
}
"""Verb -> the states in which nothing is left to do."""
LOST: Final = "lost; other regions wait for it while replication_clusters name it"
"""What a region is that `lose` killed."""
_DEAD: frozenset[RegionState] = frozenset({"killed", "lost"})


def refuse_ended(status: RunStatus) -> None:
    """Nothing happens any more to a run that has ended."""
    if status.ended:
        raise Refused(f"the run in {status.run_dir} has ended: start a new one with `geoemu up`")


def nothing_to_do(verb: str, region: str, state: RegionState) -> str | None:
    """Why `verb` would change nothing, as a sentence; None: it has something to do.

    :raises Refused: if the region is in a state in which what the verb says cannot happen
    """
    if verb == "stop" and state in _DEAD:
        raise Refused(f"{region} is {state} and cannot be stopped; `geoemu start {region}` starts it again")
    return f"{region} is already {state}: nothing was done" if state in _IS_SO.get(verb, ()) else None
