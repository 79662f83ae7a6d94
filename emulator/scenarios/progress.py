"""Show the progress of a run: a live table on a terminal, plain lines for other output."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from emulator.scenarios.actors.specs import (
    ActorSpec,
    Counts,
    HostSpec,
    ProducerSpec,
    ProgramSpec,
    TaskSpec,
)
from emulator.scenarios.format.steps import Phase
from emulator.scenarios.rehearsal import Step
from emulator.scenarios.run_context import AFTER_LAST_STEP, ProgressSnapshot, ScenarioObserver, ScenarioResult
from emulator.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

PLAIN_SECONDS = 2.0
"""Interval at which plain output prints the counts during a step."""
LIVE_REFRESHES_PER_SECOND = 8
STEPS_SHOWN = 6
"""Number of the latest steps that the live table shows."""


class PlainProgress(ScenarioObserver):
    """Prints one line per step and, during a long step, a line of counts every PLAIN_SECONDS."""

    def __init__(self, output: IO[str]) -> None:
        self._output = output
        self._latest: ProgressSnapshot | None = None
        self._printed_at = 0.0

    def run_began(self, scenario: Scenario) -> None:
        self._print(f"{scenario.name}: {len(scenario.steps)} steps")

    def step_ended(self, step: Step, seconds: float, failure: str | None) -> None:
        self._print(failure or describe_done(step, seconds))

    def snapshot_taken(self, snapshot: ProgressSnapshot) -> None:
        self._latest = snapshot
        if snapshot.seconds - self._printed_at >= PLAIN_SECONDS:
            self._print_counts(snapshot)

    def run_ended(self, result: ScenarioResult) -> None:
        if self._latest is not None:
            self._print_counts(self._latest)
        self._print(describe_end(result))

    def _print_counts(self, snapshot: ProgressSnapshot) -> None:
        self._printed_at = snapshot.seconds
        counts = ", ".join(f"{part.name} {describe_counts(part, counts)}" for part, counts in snapshot.actors)
        not_running = [
            f"{region.name} {region.state}" for region in snapshot.regions if region.state != "running"
        ]
        self._print(f"  {snapshot.seconds:5.1f} s  {'; '.join(filter(None, [counts, *not_running]))}")

    def _print(self, line: str) -> None:
        print(line, file=self._output, flush=True)


class LiveProgress(ScenarioObserver):
    """Shows a table of regions, actors and the latest steps, which is updated in place and stays after the run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._scenario: Scenario | None = None
        self._steps: list[str] = []
        self._current = ""
        self._snapshot = ProgressSnapshot(0.0, (), ())

    def run_began(self, scenario: Scenario) -> None:
        from rich.live import Live

        self._scenario = scenario
        self._live = Live(self._table(), console=self._console, refresh_per_second=LIVE_REFRESHES_PER_SECOND)
        self._live.start()

    def step_began(self, step: Step) -> None:
        self._current = "" if isinstance(step.action, Phase) else f"… {step.text}"
        self._refresh()

    def step_ended(self, step: Step, seconds: float, failure: str | None) -> None:
        self._current = ""
        self._steps.append(failure or describe_done(step, seconds))
        self._refresh()

    def snapshot_taken(self, snapshot: ProgressSnapshot) -> None:
        self._snapshot = snapshot
        self._refresh()

    def run_ended(self, result: ScenarioResult) -> None:
        self._steps.append(describe_end(result))
        self._refresh()
        self.close()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        regions = Text("  ")
        for region in self._snapshot.regions:
            regions.append(f"● {region.name} {region.state}   ", _REGION_STYLES.get(region.state, "yellow"))
        actors = Table(box=None, padding=(0, 2), header_style="bold")
        for heading in ("actor", "region", "so far"):
            actors.add_column(heading)
        for part, counts in self._snapshot.actors:
            style = "" if counts.connected else "yellow"
            actors.add_row(part.name, counts.region, describe_counts(part, counts), style=style)
        steps = "\n".join([*self._steps[-STEPS_SHOWN:], self._current])
        title = self._scenario.name if self._scenario else ""
        heading_line = Text(f"{title}  {self._snapshot.seconds:.1f} s", "bold")
        return Group(heading_line, regions, actors, Text(steps))


_REGION_STYLES = {
    "running": "green",
    "killed": "bold red",
    "lost": "bold red",
    "stopped": "red",
    "paused": "magenta",
}


def progress_for(console: Console) -> ScenarioObserver:
    """Return the observer for this console. The caller must call its `close` when the run ends or is interrupted."""
    return LiveProgress(console) if console.is_terminal else PlainProgress(console.file)


def describe_done(step: Step, seconds: float) -> str:
    if isinstance(step.action, Phase):
        return f"— {step.action.text}"
    return f"  {step.number:2}  {step.text}  ({seconds:.1f} s)"


def describe_counts(part: ActorSpec, counts: Counts) -> str:
    """Return the counts of an actor as text, without counts that are 0 except the main one of its kind."""
    if isinstance(part, ProgramSpec):
        named = {"published": counts.ok, "received": counts.received, "redelivered": counts.repeated}
        always = "received"
    elif isinstance(part, TaskSpec):
        named = {
            "processed": counts.processed,
            "received": counts.received,
            "redelivered": counts.repeated,
            "fenced": int(counts.fenced),
        }
        always = "processed"
    elif isinstance(part, HostSpec):
        named = {"owned": len(counts.holds), "waiting for": counts.waits, "unknown": counts.unknown}
        always = "owned"
    elif isinstance(part, ProducerSpec):
        named = {
            "in wait queue": counts.waits,
            "published": counts.ok,
            "pending": counts.pending,
            "failed": counts.failed,
            "unknown": counts.unknown,
        }
        always = "published"
    else:
        named = {"received": counts.received, "redelivered": counts.repeated}
        always = "received"
    return ", ".join(f"{number} {name}" for name, number in named.items() if number or name == always)


def describe_end(result: ScenarioResult) -> str:
    if result.completed:
        return f"completed in {result.seconds:.1f} s"
    total = len(result.scenario.steps)
    if result.failure and result.failure.startswith(AFTER_LAST_STEP):
        return f"failed after {result.seconds:.1f} s, {result.failure}"
    return f"ended after {result.seconds:.1f} s with {result.steps_done} of {total} steps done"
