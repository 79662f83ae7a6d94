"""Faults of regions, links and configuration stores, with start, end and direction.

Faults of regions and links are computed from the facts in the history. A link has two directions, each with its own
state (up, held or cut) and latency. A change of both directions at once is one fault.

Outages of a cluster's configuration store are those that its regions recorded (`regions/<name>/metadata.jsonl`). A
region whose store is unavailable continues with its mirror, so nothing else in a run shows the outage. The region's
next line ends it: a region receives changes only from a store that responds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.model.machine import HEALTHY
from emulator.run.history_events import skew_detail
from emulator.run.history_schema import LINK_VERBS
from spark_jobs.sources.policies import DELIVERIES_FILE

REGION_ENDS = {
    "kill": ("start", "restart"),
    "lose": ("start", "restart"),
    "power_loss": ("start", "restart"),
    "stop": ("start", "restart"),
    "pause": ("resume", "start", "restart", "kill", "lose", "power_loss", "stop"),
}
"""Facts that end each kind of outage of a region."""
MACHINE_CORRECT = {"disk": str(HEALTHY), "skew": skew_detail(0)}
"""Facts about the machine of a region -> their `detail` when it has no fault."""
PROGRAM_ENDS = ("kill", "stop", "restart", "pause")
PROGRAM_VERBS = (*PROGRAM_ENDS, "start", "resume", "finish")
LINK_STATES = ("cut", "hold")
"""Facts about the state of a link: each ends the one before. Every other kind of fault is independent."""
DIRECTIONS = ("one way back", "one way", "both ways")


@dataclass(frozen=True, slots=True)
class Interval:
    """A period of the run, in seconds since the start of the run."""

    from_s: float
    to_s: float
    what: str
    """Kind of period. kill, lose, power_loss, stop, pause: an outage of a region or program; restart: of a program.
    disk, skew: a fault of a region's machine. cut, hold, latency, …: a fault of a link. away: an outage of a
    configuration store. gap: a fail-over. stall, outage: the wait of an actor."""
    region: str
    """Region of the fault, source of the link, or cluster of the configuration store; empty for a wait."""
    other_region: str | None = None
    """The other end of a link; of a gap, the region of the next message; None for other kinds."""
    actor: str | None = None
    """The actor that waited, the subscription of a gap, or the program that was ended or paused."""
    ended: bool = True
    """Whether the period ended before the end of the history."""
    one_way: bool = False
    """Whether the fault affects only the direction from `region` to `other_region`."""
    detail: str | None = None
    """Value of a fault of a link or machine, with its unit, such as `200 ms`."""

    @property
    def seconds(self) -> float:
        return round(self.to_s - self.from_s, 3)


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """A fact of the history, with its time in seconds since the start of the run."""

    at_s: float
    op: str
    region: str
    other_region: str | None = None
    detail: str | None = None

    @property
    def one_way(self) -> bool:
        return (self.detail or "").endswith(("one way", "one way back"))


def regions_lost(facts: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return each region that was lost and did not start again -> time of its loss. `facts`: sorted by time."""
    lost: dict[str, float] = {}
    for fact in facts:
        if fact["op"] == "lose":
            lost.setdefault(fact["region"], fact["at_ms"])
        elif fact["op"] in ("start", "restart"):
            lost.pop(fact["region"], None)
    return lost


def marks_of(facts: Iterable[Mapping[str, Any]], start_ms: float) -> tuple[TimelineMark, ...]:
    """Return all facts except steps of the scenario, which are reported separately, and names of history files
    (`hire`). `facts`: sorted by time."""
    return tuple(
        TimelineMark(
            round((fact["at_ms"] - start_ms) / 1000, 3),
            fact["op"],
            fact["region"] or "",
            fact["other_region"],
            fact["detail"],
        )
        for fact in facts
        if fact["op"] not in ("step", "hire")
    )


def down_times(marks: Sequence[TimelineMark], end_s: float) -> tuple[Interval, ...]:
    """Return the outages of regions, sorted by start."""
    intervals = []
    for index, mark in enumerate(marks):
        ends = REGION_ENDS.get(mark.op)
        if ends is None:
            continue
        later = (one for one in marks[index + 1 :] if one.region == mark.region and one.op in ends)
        end = next(later, None)
        to_s = end.at_s if end else end_s
        intervals.append(Interval(mark.at_s, to_s, mark.op, mark.region, ended=end is not None))
    return tuple(intervals)


def machine_faults(marks: Sequence[TimelineMark], end_s: float) -> tuple[Interval, ...]:
    """Return each period in which the disk or the clock of a region had a fault, sorted by start."""
    intervals = []
    for index, mark in enumerate(marks):
        correct = MACHINE_CORRECT.get(mark.op)
        if correct is None or mark.detail in (None, correct):
            continue
        later = (one for one in marks[index + 1 :] if (one.op, one.region) == (mark.op, mark.region))
        end = next(later, None)
        to_s = end.at_s if end else end_s
        intervals.append(
            Interval(mark.at_s, to_s, mark.op, mark.region, ended=end is not None, detail=mark.detail)
        )
    return tuple(intervals)


def program_times(marks: Sequence[TimelineMark], end_s: float) -> tuple[Interval, ...]:
    """Return each period from a step that ended or paused a program, host or task to its next start, resume or move,
    sorted by start. A restart has no length."""
    intervals = []
    for index, mark in enumerate(marks):
        verb, name = program_change(mark.op, mark.detail)
        if verb not in PROGRAM_ENDS:
            continue
        later = (one for one in marks[index + 1 :] if _ends_downtime(one, name))
        end = mark if verb == "restart" else next(later, None)
        to_s = end.at_s if end else end_s
        intervals.append(Interval(mark.at_s, to_s, verb, mark.region, actor=name, ended=end is not None))
    return tuple(intervals)


def _ends_downtime(mark: TimelineMark, name: str) -> bool:
    return (mark.op == "move" and mark.detail == f"{name} has moved") or program_change(
        mark.op, mark.detail
    ) in (("start", name), ("restart", name), ("resume", name))


def program_change(op: str, detail: str | None) -> tuple[str, str]:
    """Return verb and name of a fact such as `kill billing`; empty strings for any other fact."""
    verb, _, name = (detail or "").partition(" ")
    return (verb, name) if op == "note" and verb in PROGRAM_VERBS and name else ("", "")


def down_on_purpose(facts: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return program, host or task -> times at which steps ended, paused or moved it, in ms on the history's clock."""
    found: dict[str, list[float]] = {}
    for fact in facts:
        verb, name = program_change(fact["op"], fact["detail"])
        if verb in PROGRAM_ENDS or verb == "finish":
            found.setdefault(name, []).append(fact["at_ms"])
    return found


def link_faults(marks: Sequence[TimelineMark], end_s: float) -> tuple[Interval, ...]:
    """Return each period in which a link had a fault, sorted by start; a reset has no length."""
    open_faults: dict[tuple[str, str, str], Interval] = {}
    """Current faults by source, target and kind: `state`, or the verb."""
    done: list[Interval] = []

    def end(direction: tuple[str, str], kind: str, at_s: float) -> None:
        fault = open_faults.pop((*direction, kind), None)
        if fault is not None:
            done.append(dataclasses.replace(fault, to_s=at_s, ended=True))

    for mark in marks:
        if mark.op == "heal":
            for source, target, kind in list(open_faults):
                if (source, target) in _directions(mark) or not mark.region:
                    end((source, target), kind, mark.at_s)
        elif mark.op in LINK_VERBS:
            kind = "state" if mark.op in LINK_STATES else mark.op
            for direction in _directions(mark):
                end(direction, kind, mark.at_s)
                open_faults[*direction, kind] = _open_fault(mark, direction, end_s)
                if mark.op == "reset":
                    end(direction, kind, mark.at_s)
    return _both_ways_once([*done, *open_faults.values()])


def _open_fault(mark: TimelineMark, direction: tuple[str, str], end_s: float) -> Interval:
    source, target = direction
    return Interval(
        mark.at_s,
        end_s,
        mark.op,
        source,
        target,
        ended=False,
        one_way=mark.one_way,
        detail=_value_in(mark.detail or "") or None,
    )


def _value_in(detail: str) -> str:
    """Return the `detail` of a fact about a link without its direction."""
    way = next((way for way in DIRECTIONS if detail.endswith(way)), "")
    return detail.removesuffix(way).strip()


def _directions(mark: TimelineMark) -> list[tuple[str, str]]:
    there = (mark.region, mark.other_region or "")
    if not mark.one_way:
        return [there, there[::-1]]
    return [there[::-1]] if (mark.detail or "").endswith("back") else [there]


def _both_ways_once(faults: Sequence[Interval]) -> tuple[Interval, ...]:
    """Merge faults that began and ended in both directions at once; every other fault is one-way."""
    once: list[Interval] = []
    for fault in sorted(faults, key=lambda one: (one.from_s, one.what, one.region, one.other_region or "")):
        there_and_back = not fault.one_way and _mirrored(fault) in faults
        if not there_and_back:
            once.append(dataclasses.replace(fault, one_way=True))
        elif _mirrored(fault) not in once:
            once.append(fault)
    return tuple(once)


def _mirrored(fault: Interval) -> Interval:
    return dataclasses.replace(fault, region=fault.other_region or "", other_region=fault.region)


def store_outages(
    run: Path, clusters: Mapping[str, str], start_ms: float, end_s: float
) -> tuple[Interval, ...]:
    """Return each outage of a cluster's store that any of its regions recorded, by start; overlapping ones are merged.
    `clusters`: the cluster of each region. Unreadable files are skipped; `sources.policies` reports them."""
    periods: dict[str, list[tuple[float, float | None]]] = {}
    for file in sorted((run / "regions").glob(f"*/{DELIVERIES_FILE}")):
        region = file.parent.name
        periods.setdefault(clusters.get(region, region), []).extend(_recorded_outages(file))
    found = []
    for cluster, of_cluster in periods.items():
        for from_ms, to_ms in _merged(of_cluster):
            from_s = round((from_ms - start_ms) / 1000, 3)
            to_s = end_s if to_ms is None else round((to_ms - start_ms) / 1000, 3)
            if to_s > max(from_s, 0):
                found.append(Interval(max(from_s, 0.0), to_s, "away", cluster, ended=to_ms is not None))
    return tuple(sorted(found, key=lambda one: (one.from_s, one.region)))


def _recorded_outages(file: Path) -> Iterable[tuple[float, float | None]]:
    """Yield start and end of each store outage in a region's file; end None: it lasted until the end of the run."""
    since: float | None = None
    for line in _lines(file):
        if line.get("away"):
            since = line["at_ms"] if since is None else since
        elif since is not None:
            yield since, line["at_ms"]
            since = None
    if since is not None:
        yield since, None


def _lines(file: Path) -> list[dict[str, float]]:
    try:
        text = file.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    except (OSError, ValueError, RecursionError):
        return []


def _merged(periods: Iterable[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Merge overlapping periods."""
    merged: list[tuple[float, float | None]] = []
    for from_ms, to_ms in sorted(periods, key=lambda one: one[0]):
        last = merged[-1] if merged else None
        if last is None or (last[1] is not None and last[1] < from_ms):
            merged.append((from_ms, to_ms))
        elif last[1] is not None and (to_ms is None or to_ms > last[1]):
            merged[-1] = (last[0], to_ms)
    return merged
