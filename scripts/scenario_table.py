"""The table of the shipped scenarios: what each proves, its recovery bounds, and where tests compute its verdict.

`scripts/reference.py` writes it to docs/reference/scenarios.md. The tests that run every shipped scenario take their
exceptions from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emulator.config.loading import load_topology
from emulator.scenarios.format.steps import Lose, OnRegion
from emulator.scenarios.scenario import SHIPPED, Scenario, load_scenario, shipped_scenarios

ROOT: Final = Path(__file__).parent.parent

PRODUCTION: Final = {
    "planned-failover": "planned fail-over",
    "region-failover": "unplanned fail-over",
    "region-failback": "fail-back",
    "rolling-restart": "rolling restart",
    "rolling-settings": "rolling change of settings",
    "slow-link": "slow link",
    "flapping-link": "flapping link",
    "partition-minority": "network partition, minority",
    "partition-majority": "network partition, majority",
    "full-disk": "full disk",
    "slow-disk": "slow disk",
    "clock-ahead": "clock error",
    "lost-coordinator": "lost transaction coordinator",
    "region-lost": "region lost for good",
    "slow-client": "slow client",
    "limits-in-replication": "limits reached during replication",
    "partitions-added": "partitions added while regions are down",
    "everything-at-random": "everything at random",
}
"""Scenarios of faults as they happen in production, in the order of the table -> the fault."""

SUBSCRIPTION_SWITCHES: Final = {
    "snapshot_schedule: adaptive": "adaptive-snapshots",
    "`replicate_individual_acks` (policy)": "individual-acks",
    "partial_snapshots_after: 1s": "absent-region",
    "compatibility: {snapshot_cache: upstream}": "upstream-cache",
    "compatibility: {markers_in_backlog: upstream}": "upstream-backlog",
    "compatibility: {snapshot_timeout: upstream}": "upstream-timeout",
    "compatibility: {dead_region: upstream}": "upstream-dead-region",
    "`geoemu region remove`": "region-removed",
    "`geoemu failover-plan`": "failover-plan",
}
"""Setting or command of replicated subscriptions beyond PIP-33 -> the scenario that shows it."""

NOTHING_LOST: Final = "0 messages"


@dataclass(frozen=True, slots=True)
class Coverage:
    """One column of the table: the test that computes the verdict of each scenario on a runtime."""

    title: str
    test: str
    """Test function, as `file::function`; its parameter is the name of the scenario."""
    not_covered: dict[str, str]
    """Scenario -> why it cannot have a verdict on this runtime."""

    @property
    def scenarios(self) -> list[str]:
        """The scenarios that the test runs."""
        return [name for name in shipped_scenarios() if name not in self.not_covered]

    def cell(self, scenario: str) -> str:
        path = self.test.partition("::")[0]
        return self.not_covered.get(scenario) or f"[yes](../../{path})"


PROCESSES: Final = Coverage(
    "processes", "tests/drills/test_scenarios_on_processes.py::test_the_verdict_is_valid", {}
)
COMPOSE: Final = Coverage(
    "compose with Kafka", "tests/drills/test_scenarios_on_compose.py::test_the_verdict_is_valid", {}
)
VIRTUAL: Final = Coverage(
    "virtual time", "tests/simulation/test_shipped_scenarios.py::test_the_verdict_is_valid", {}
)
COVERAGE: Final = (PROCESSES, COMPOSE, VIRTUAL)

_HEAD = """\
`geoemu run NAME` runs a scenario with real clients, `geoemu simulate NAME` in virtual time. The files are in
`emulator/scenarios/`; [SCENARIOS.md](../SCENARIOS.md) describes their format, [LIMITS.md](../LIMITS.md) the measures.

* *RPO*: acknowledged messages that the remaining regions lack when a region is lost for good (`unrecovered`).
  In scenarios without such a loss it is 0: every region returns with its log, and the verdict is invalid if a
  region lacks an acknowledged message (INV-1, INV-2).
* *RTO*: the longest time without service for a consumer (`gap` after its region failed, `stall` at any time) and
  for a producer (`outage`).
* The bounds are limits of the scenario file (`expect`): a run that misses one fails. They include the start of
  processes and clients on a busy machine; reports state the measured values.
* *yes*: a test computes the verdict and the limits of this scenario on this runtime. `.ci/run` includes some of them,
  on compose two; `.ci/long` runs all. The tests are
"""


def lines() -> Iterator[str]:
    """Return the lines of the page below its title."""
    topology = load_topology(ROOT / "topology.yaml")
    scenarios = {name: load_scenario(SHIPPED / f"{name}.yaml", topology) for name in shipped_scenarios()}
    tests = ", ".join(f"`{one.test}` ({one.title})" for one in COVERAGE)
    yield from [f"{_HEAD}  {tests}.", "", "## Faults in production", ""]
    head = ["scenario", "proves", "RPO", "RTO", *(one.title for one in COVERAGE)]
    yield from _table(
        ["fault", *head], ([fault, *_row(scenarios.pop(name))] for name, fault in PRODUCTION.items())
    )
    yield from ["", "## Proposals and load", ""]
    yield from _table(head, (_row(scenario) for scenario in scenarios.values()))
    yield from ["", "## Switches of replicated subscriptions", ""]
    yield "Each is off unless it is set. A test runs these scenarios on processes and computes both engines' verdicts."
    yield ""
    yield from _table(["switch", "scenario"], (_switch_row(*item) for item in SUBSCRIPTION_SWITCHES.items()))


def _table(head: list[str], rows: Iterator[list[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cells)} |"


def _row(scenario: Scenario) -> list[str]:
    return [
        f"`{scenario.name}`",
        " ".join(scenario.proves.split()),
        recovery_point(scenario),
        recovery_time(scenario),
        *(one.cell(scenario.name) for one in COVERAGE),
    ]


def _switch_row(switch: str, scenario: str) -> list[str]:
    link = f"[`{scenario}`](../../emulator/scenarios/{scenario}.yaml)"
    return [switch if switch.startswith("`") else f"`{switch}`", link]


def recovery_point(scenario: Scenario) -> str:
    """Return the bound of acknowledged messages that are lost for good."""
    if not regions_lost_for_good(scenario):
        return NOTHING_LOST
    bounds = [limit.value for limit in scenario.limits if limit.measure == "unrecovered"]
    return (f"at most {bounds[0]:,.0f} messages" if bounds[0] else NOTHING_LOST) if bounds else "no bound"


def recovery_time(scenario: Scenario) -> str:
    """Return the bounds of the time without service."""
    limits = [limit for limit in scenario.limits if limit.measure in ("gap", "stall", "outage")]
    return ", ".join(f"{limit.measure} {limit.value:g} s" for limit in limits) or "no bound"


def regions_lost_for_good(scenario: Scenario) -> bool:
    """Return whether a step loses regions that no later step starts."""
    lost: set[tuple[str, ...]] = set()
    for step in scenario.steps:
        action = step.action
        if isinstance(action, Lose):
            lost.add(_target(action))
        elif step.verb == "start" and isinstance(action, OnRegion):
            lost.discard(_target(action))
    return bool(lost)


def _target(action: OnRegion) -> tuple[str, ...]:
    return (action.cluster,) if action.cluster else action.region or ()
