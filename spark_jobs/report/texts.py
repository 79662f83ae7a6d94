"""Short texts of the report: its head, its key figures, the legend of the timeline, the lines of a journey."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_jobs.evaluation import Evaluation
from spark_jobs.figures.curves import Curve
from spark_jobs.figures.journeys import Journey, JourneyEvent, StoredCopy
from spark_jobs.figures.scenario_run import ScenarioStep, StepOutcome
from spark_jobs.figures.timeline import Series, Timeline
from spark_jobs.wording import count, duration_text

Tile = tuple[str, str, str]
"""A key figure: its value, its name, a remark."""


def head_rows(evaluation: Evaluation) -> list[tuple[str, str, bool]]:
    """Return (name, text, whether the text is a command or path) of each known property of the run."""
    head = evaluation.scenario.head
    topology = ": ".join(filter(None, (head.topology, head.clusters)))
    ran = f"{duration_text(evaluation.timeline.seconds)}, from {head.created_at.replace('T', ' ')}"
    rows = [
        ("scenario", head.scenario, False),
        ("topology", topology + (f"; runtime {head.runtime}" if head.runtime else ""), False),
        ("duration", ran if head.created_at else "", False),
        ("geoemu", head.version, False),
        ("repeat with", head.command, True),
        ("working directory", head.folder, True),
        ("run directory", evaluation.run, True),
    ]
    return [row for row in rows if row[1]]


def steps_in_short(steps: Sequence[ScenarioStep]) -> str:
    """Return `11 steps: all done`, or the number of steps of each outcome. Phases are not counted."""
    outcomes = Counter(step.outcome for step in steps if step.phase is None)
    known: tuple[StepOutcome, ...] = ("done", "failed", "interrupted", "not tried")
    each = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in known if outcomes[outcome])
    n = outcomes.total()
    return f"{n} steps: {'all done' if outcomes['done'] == n else each}"


def tiles(figures: Mapping[str, Any]) -> list[Tile]:
    """Return the key figures. Those without an occurrence are left out, unless a reader would look for them."""
    published, received = figures["published"], figures["received"]
    measures = figures.get("measures", {})
    found: list[Tile | None] = [
        (f"{published['acknowledged']:,}", "messages acknowledged", f"of {published['asked']:,} published"),
        _loss_tile(figures.get("loss")),
        (f"{published['failed']:,}", "publishes rejected", "certainly not stored")
        if published["failed"]
        else None,
        (
            f"{published['unknown']:,}",
            "publishes without a response",
            f"{published['unknown_stored']:,} of them stored"
            if published["unknown"]
            else "every publish got a response",
        ),
        (f"{received['messages']:,}", "messages received", f"in {received['deliveries']:,} deliveries"),
        (f"{received['again']:,}", "received more than once", "allowed: delivery is at least once"),
        _gap_tile(figures["failover_gap_seconds"], figures.get("gaps", {})),
        _wait_tile(measures.get("stall"), "longest stall of a consumer"),
        _wait_tile(measures.get("outage"), "longest outage of a publisher"),
        _latency_tile(measures.get("latency_seconds")),
        _next_failover_tile(figures.get("standings", [])),
        _plans_tile(figures.get("failover_plans")),
    ]
    return [tile for tile in found if tile is not None]


def _loss_tile(loss: Mapping[str, Any] | None) -> Tile | None:
    if loss is None:
        return None
    point = f"RPO {duration_text(loss['recovery_point_seconds'])}"
    remark = point if loss["unrecovered"] else "no acknowledged message"
    return f"{loss['unrecovered']:,}", f"lost with {' and '.join(loss['regions'])}", remark


def _gap_tile(gap: float | None, gaps: Mapping[str, float | None]) -> Tile:
    never = [name for name, seconds in gaps.items() if seconds is None]
    if never:
        return "endless", "fail-over gap", f"{', '.join(never)} received no further message"
    if gap is None:
        return "\u2013", "fail-over gap", "no consumer lost its region"
    return duration_text(gap), "fail-over gap", "from the loss of the region to the next message"


def _wait_tile(waits: Mapping[str, Any] | None, what: str) -> Tile | None:
    if not waits:
        return None
    name, longest = max(waits.items(), key=lambda pair: float(pair[1]["seconds"]))
    return duration_text(longest["seconds"]), what, name


def _latency_tile(latencies: Mapping[str, Any] | None) -> Tile | None:
    if not latencies:
        return None
    name, latency = max(latencies.items(), key=lambda pair: float(pair[1]["p99"]))
    return duration_text(latency["p99"]), "end-to-end latency, p99", name


def _next_failover_tile(replication_states: Sequence[Mapping[str, Any]]) -> Tile | None:
    """Return the largest number of messages that a fail-over of one subscription to one region would redeliver."""
    redelivered = [
        (number, f"{one['subscription']}, to {region}")
        for one in replication_states
        for region, number in one["read_again_after_failover"].items()
    ]
    if not redelivered:
        return None
    number, remark = max(redelivered)
    return f"{number:,}", "redelivered by another fail-over", remark


def _plans_tile(plans: Mapping[str, Any] | None) -> Tile | None:
    """Return the 99th percentile of the over-estimates of fail-over plans; None without a compared plan."""
    if plans is None or not plans["compared"]:
        return None
    over_estimate = plans["over_estimate"]
    remark = f"p50 {over_estimate['p50']:,}, of {count(plans['compared'], 'plan')}"
    return f"{over_estimate['p99']:,}", "over-estimate of fail-over plans, p99", remark


def curves_by_kind(curves: Sequence[Curve]) -> list[tuple[str, list[Curve]]]:
    """Return each heading of the report that has curves, and its curves."""
    found = [(heading, [curve for curve in curves if curve.what == what]) for what, heading in _HEADINGS]
    return [(heading, of_kind) for heading, of_kind in found if of_kind]


_HEADINGS = (
    ("latency", "End-to-end latency: from the publish of a message until the subscription first received it"),
    ("lag", "Replication lag: from the acknowledgement of a publish to the first delivery in another region"),
)


def legend(timeline: Timeline) -> list[tuple[str, str]]:
    """Return (name of a colour in the style sheet, meaning) of the elements in the picture. Two elements may share a
    colour."""

    def is_shown(series: Series) -> bool:
        return any(any(lane.counts[series]) for lane in timeline.lanes)

    entries = [
        (is_shown("published"), "published", "published (above the line)"),
        (is_shown("unanswered"), "unanswered", "published, no response"),
        (is_shown("received"), "received", "received (below the line)"),
        (is_shown("again"), "again", "redelivered"),
        (any(one.what != "pause" for one in timeline.down), "down", "region down"),
        (any(one.what == "pause" for one in timeline.down), "again", "region paused"),
        (bool(timeline.gaps), "gap", "fail-over: from the loss of the region to the next message"),
        (bool(timeline.links), "cut", "fault of a link"),
        (bool(timeline.machines), "cut", "fault of a disk or clock"),
        (bool(timeline.stores), "cut", "configuration store of a cluster unavailable"),
        (
            any(lane.waits for lane in timeline.actors),
            "wait",
            "stall: a message was pending, none was received; outage: publishes were pending, none was acknowledged",
        ),
    ]
    return [(colour, meaning) for occurred, colour, meaning in entries if occurred]


Line = tuple[float | None, str]
"""Time of an event in milliseconds on the history's clock, None if unknown; text of the event."""

_PUBLISH = {
    "asked": "{producer} publishes it to {region}",
    "ok": "{region} acknowledges it{place}",
    "failed": "{region} rejects it{why}",
    "unknown": "its publish ends without a response from {region}{why}",
}
_ACKNOWLEDGE = {
    "asked": "{subscription} acknowledges it to {region}{how}",
    "ok": "{region} confirms that {subscription} acknowledged it{how}",
    "failed": "{region} rejects the acknowledgement of {subscription}{why}",
    "unknown": "the acknowledgement of {subscription} ends without a response from {region}{why}",
}


def title_of_journey(journey: Journey) -> str:
    return f"{journey.producer} {journey.sequence_id} of {journey.origin_region} in {journey.topic}"


def journey_lines(journey: Journey, start_ms: float) -> list[tuple[str, str]]:
    """Return (time, text) of each event, sorted by time; then absent copies and the number of events that are not
    shown. A copy is listed at its `by_ms`."""
    lines: list[Line] = [(copy.by_ms, _stored(copy, start_ms)) for copy in journey.stored]
    lines += zip((event.at_ms for event in journey.stops), _event_lines(journey), strict=True)
    # The sort is stable, and events without a time are last.
    lines.sort(key=lambda line: float("inf") if line[0] is None else line[0])
    found = [("" if at_ms is None else _at(at_ms, start_ms), words) for at_ms, words in lines]
    found += [("", f"{region} does not store it, although it should") for region in journey.absent]
    if not journey.stored:
        found.append(("", "no region stores it"))
    if journey.stops_left_out:
        found.append(("", f"later operations and responses that are not shown: {journey.stops_left_out:,}"))
    return found


def _event_lines(journey: Journey) -> Iterable[str]:
    received_by: set[str] = set()
    for event in journey.stops:
        if event.op == "receive":
            again = " again" if event.subscription in received_by else ""
            received_by.add(event.subscription or "")
            yield f"{event.subscription} receives it{again} in {event.region}, from {event.position}"
        else:
            forms = _PUBLISH if event.op == "publish" else _ACKNOWLEDGE
            yield forms[event.outcome].format(
                producer=journey.producer,
                region=event.region,
                subscription=event.subscription,
                place=f", at {event.position}" if event.position else "",
                how=_how(event),
                why=f": {event.error}" if event.error else "",
            )


def _how(event: JourneyEvent) -> str:
    return f", with everything up to {event.position}" if event.how == "cumulative" else ""


def _stored(copy: StoredCopy, start_ms: float) -> str:
    where = f"stored in {copy.region} at {copy.position}"
    if copy.after_ms is None:
        return where
    after = f"after {_at(copy.after_ms, start_ms)}"
    until = f"by {_at(copy.by_ms, start_ms)}" if copy.by_ms is not None else "until an unknown time"
    return f"{where}: {after}, {until}"


def _at(at_ms: float, start_ms: float) -> str:
    return f"{(at_ms - start_ms) / 1000:.3f} s"
