"""What one simulated play measured, by the definitions of the report (`spark_jobs.checks`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from emulator.history import Event
from emulator.simulation.outcome import Figures

DOWN, UP = ("kill", "stop", "pause"), ("start", "resume")

Subscription = tuple[str | None, str | None]
"""Topic and name."""


def figures_of(events: Sequence[Event]) -> Figures:
    """Gaps of every subscription that lost its region, and what was received again."""
    received: dict[Subscription, list[Event]] = defaultdict(list)
    for event in events:
        if event.op == "receive" and event.outcome == "ok":
            received[event.topic, event.subscription].append(event)
    figures: dict[str, float] = {}
    for (_, name), of_subscription in received.items():
        figures[f"{name}: received again (messages)"] = _repeated(of_subscription)
        for event in events:
            if event.outcome == "fact" and event.op in DOWN:
                gap = _gap_seconds(event, of_subscription, events)
                if gap is not None:
                    figures[f"{name}: fail-over gap after {event.op} of {event.region} (s)"] = gap
    return figures


def _repeated(received: Iterable[Event]) -> int:
    seen: set[tuple[str | None, str | None, int | None]] = set()
    repeated = 0
    for event in received:
        identity = (event.origin_region, event.producer, event.sequence_id)
        repeated += identity in seen
        seen.add(identity)
    return repeated


def _gap_seconds(down: Event, received: Sequence[Event], events: Sequence[Event]) -> float | None:
    """From the fact to the next message in another region, or in the same one after it came back. None: the
    subscription was elsewhere, or never received again."""
    before = [event for event in received if event.at_ms <= down.at_ms]
    if not before or before[-1].region != down.region:
        return None
    ups = (e.at_ms for e in events if e.outcome == "fact" and e.op in UP and e.region == down.region)
    up_ms = next((at_ms for at_ms in ups if at_ms > down.at_ms), float("inf"))
    for event in received[len(before) :]:
        if event.region != down.region or event.at_ms > up_ms:
            return round(event.at_ms - down.at_ms) / 1000
    return None
