"""Changes of a run by its operator: each is performed, then recorded as a fact in the operator's history, which the
verdict takes into account. The command line and the dashboard share these functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

from emulator.errors import Refused, RuntimeFailure
from emulator.runtimes.contract import RegionState, RunStatus, Runtime
from emulator.runtimes.faults import Fault, FaultFact
from emulator.runtimes.opening import operator_history

if TYPE_CHECKING:
    from emulator.run.history import HistoryWriter

_UNCHANGED_STATES: dict[str, frozenset[RegionState]] = {
    "kill": frozenset({"killed", "lost", "stopped"}),
    "lose": frozenset({"lost"}),
    "power_loss": frozenset({"killed", "lost", "stopped"}),
    "stop": frozenset({"stopped"}),
    "start": frozenset({"running"}),
    "pause": frozenset({"paused"}),
    "resume": frozenset({"running"}),
}
"""Verb -> the states of a region that it does not change."""
LOST: Final = "lost; other regions wait for it while replication_clusters name it"
"""Description of a region that `lose` killed, in the output of verbs."""
_ENDED_BY_FAULT: frozenset[RegionState] = frozenset({"killed", "lost"})


def refuse_ended(status: RunStatus) -> None:
    if status.ended:
        raise Refused(f"the run in {status.run_dir} has ended: start a new one with `geoemu up`")


def reason_unchanged(verb: str, region: str, state: RegionState) -> str | None:
    """Return why `verb` would not change a region in `state`; None: it would. Raises Refused for a stop of a killed or
    lost region.

    Runtimes accept verbs that change nothing, but the user must see that, and the history must not contain a fault that
    did not happen.
    """
    if verb == "stop" and state in _ENDED_BY_FAULT:
        raise Refused(f"{region} is {state} and cannot be stopped; `geoemu start {region}` starts it again")
    return (
        f"{region} is already {state}: nothing was done" if state in _UNCHANGED_STATES.get(verb, ()) else None
    )


async def change_regions(
    run: Runtime,
    verb: str,
    regions: Sequence[str],
    *,
    on_changed: Callable[[str], None] = lambda _: None,
    on_unchanged: Callable[[str], None] = lambda _: None,
) -> None:
    """Change known regions concurrently and record each change. Regions that the verb does not change are only
    reported: a recorded kill would undo a loss.

    `on_changed` receives the name of each changed region, `on_unchanged` the reason for each other one. Raises Refused
    if the run has ended, RuntimeFailure if a change fails; the other changes are completed before.
    """

    async def change_one(region: str) -> None:
        await getattr(run, verb)(region)
        await _record(run, [(verb, {"region": region})])
        on_changed(region)

    status = await run.status()
    refuse_ended(status)
    states = {region.name: region.state for region in status.regions}
    reasons = {region: reason_unchanged(verb, region, states[region]) for region in regions}
    for reason in filter(None, reasons.values()):
        on_unchanged(reason)
    changes = (change_one(region) for region, reason in reasons.items() if not reason)
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    failures = [failure for failure in outcomes if isinstance(failure, BaseException)]
    for failure in failures:
        if not isinstance(failure, RuntimeFailure):
            raise failure
    if failures:
        raise failures[0] if len(failures) == 1 else RuntimeFailure("\n".join(map(str, failures)))


async def begin_fault(run: Runtime, fault: Fault) -> None:
    """Begin a fault and record it. Raises Refused if the run has ended, RuntimeFailure if the fault fails."""
    refuse_ended(await run.status())
    await fault.begin(run)
    await _record(run, _rows(fault.facts()))


async def heal_everything(run: Runtime) -> None:
    """Heal all links and record it. Raises Refused if the run has ended, RuntimeFailure if links stay down."""
    refuse_ended(await run.status())
    await run.heal()
    await _record(run, [("heal", {"detail": "everything"})])


def _rows(facts: Iterable[FaultFact]) -> list[tuple[str, dict[str, str]]]:
    return [(fact.op, fact.fields()) for fact in facts]


async def _record(run: Runtime, rows: Sequence[tuple[str, dict[str, str]]]) -> None:
    """Record facts: (operation, fields)."""

    def write(history: HistoryWriter) -> None:
        for op, fields in rows:
            history.write(op, "fact", **fields)

    await record_by(run, write)


async def record_by(run: Runtime, write: Callable[[HistoryWriter], None]) -> None:
    """Let `write` record facts in the operator's history; waits while another process writes it."""

    def open_and_write() -> None:
        with closing(operator_history(run)) as history:
            write(history)

    await asyncio.to_thread(open_and_write)
