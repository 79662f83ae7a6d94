"""Short texts of the report's page: its head, its key figures, what the colours of the timeline mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_jobs.evaluation import Judgement
from spark_jobs.figures.curves import Curve
from spark_jobs.figures.timeline import Series, Timeline
from spark_jobs.report.durations import duration_text
from spark_jobs.report.story import Step

Tile = tuple[str, str, str]
"""(figure, what it counts, a remark)"""


def head_rows(judgement: Judgement) -> list[tuple[str, str, bool]]:
    """(name, text, whether it is typed), of what is known."""
    head = judgement.story.head
    topology = f"{head.topology}: {head.clusters}" if head.clusters else head.topology
    ran = f"{duration_text(judgement.timeline.seconds)}, from {head.created_at.replace('T', ' ')}"
    rows = [
        ("scenario", head.scenario, False),
        ("topology", topology + (f"; runtime {head.runtime}" if head.runtime else ""), False),
        ("duration", ran if head.created_at else "", False),
        ("geoemu", head.version, False),
        ("repeat with", head.command, True),
        ("working directory", head.folder, True),
        ("run directory", judgement.run, True),
    ]
    return [row for row in rows if row[1]]


def steps_in_short(steps: Sequence[Step]) -> str:
    """`11 steps: each came true`, or what became of them."""
    told = [step for step in steps if step.phase is None]
    outcomes = {outcome: sum(step.outcome == outcome for step in told) for outcome in _OUTCOME_WORDS}
    if outcomes["done"] == len(told):
        return f"{len(told)} steps: all done"
    parts = [f"{n} {_OUTCOME_WORDS[outcome]}" for outcome, n in outcomes.items() if n]
    return f"{len(told)} steps: {', '.join(parts)}"


_OUTCOME_WORDS = {
    "done": "done",
    "failed": "failed",
    "interrupted": "interrupted",
    "not tried": "not tried",
}


def tiles(figures: Mapping[str, Any]) -> list[Tile]:
    """The key figures; of what did not occur only what one would look for."""
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
        _standing_tile(figures.get("standings", [])),
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


def _standing_tile(standings: Sequence[Mapping[str, Any]]) -> Tile | None:
    """The worst that another fail-over could do."""
    again = [
        (number, f"{one['subscription']}, to {region}")
        for one in standings
        for region, number in one["read_again_after_failover"].items()
    ]
    if not again:
        return None
    number, whose = max(again)
    return f"{number:,}", "redelivered by another fail-over", whose


def curves_by_kind(curves: Sequence[Curve]) -> list[tuple[str, list[Curve]]]:
    """Under what they are drawn; nothing of what there is none."""
    found = [(heading, [curve for curve in curves if curve.what == what]) for what, heading in _HEADINGS]
    return [(heading, of_kind) for heading, of_kind in found if of_kind]


_HEADINGS = (
    (
        "latency",
        "End-to-end latency: from the publish of a message until the subscription first received it",
    ),
    (
        "lag",
        "Replication lag: from the acknowledgement of a publish to the first delivery in another region",
    ),
)


def legend(timeline: Timeline) -> list[tuple[str, str]]:
    """(colour, meaning) of what is in the picture."""

    def drawn(series: Series) -> bool:
        return any(any(lane.counts[series]) for lane in timeline.lanes)

    entries = [
        (drawn("published"), "published", "published (above the line)"),
        (drawn("unanswered"), "unanswered", "published, no response"),
        (drawn("received"), "received", "received (below the line)"),
        (drawn("again"), "again", "redelivered"),
        (any(one.what != "pause" for one in timeline.down), "down", "region down"),
        (any(one.what == "pause" for one in timeline.down), "again", "region paused"),
        (bool(timeline.gaps), "gap", "fail-over: from the loss of the region to the next message"),
        (bool(timeline.links), "cut", "link cut, held or slow"),
        (bool(timeline.stores), "cut", "configuration store of a cluster unavailable"),
        (
            any(lane.waits for lane in timeline.actors),
            "wait",
            "stall: a message was pending, none was received; outage: publishes were pending, none was acknowledged",
        ),
    ]
    return [(colour, meaning) for occurred, colour, meaning in entries if occurred]
