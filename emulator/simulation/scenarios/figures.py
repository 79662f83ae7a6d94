"""The figures of one simulated run, by the definitions of the report (`spark_jobs.checks`, `spark_jobs.figures`).

They are fail-over gaps, messages received again or lost, the load of hosts, and the time without an owner of topics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from emulator.run.history_events import HistoryEvent
from emulator.simulation.evidence import LogView, origin_of
from emulator.simulation.outcome import Figures

DOWN, UP = ("kill", "lose", "stop", "pause"), ("start", "restart", "resume")
BACK = ("start", "restart")
"""Facts after which a region no longer counts as lost."""

Subscription = tuple[str | None, str | None]
"""A subscription: topic and name."""


def figures_of(events: Sequence[HistoryEvent]) -> Figures:
    """Return, for each subscription, the number of messages received again and its fail-over gap after each fault of
    its region."""
    received: dict[Subscription, list[HistoryEvent]] = defaultdict(list)
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


def processing_figures(events: Sequence[HistoryEvent]) -> Figures:
    """Return, for each subscription that tasks process in transactions, the number of messages that belong to several
    committed transactions of one region. Empty without tasks."""
    ends = [event for event in events if event.op == "end_transaction" and event.outcome == "ok"]
    committed = {(end.region, end.transaction) for end in ends if end.action == "commit"}
    processed: dict[str, dict[object, set[str]]] = defaultdict(lambda: defaultdict(set))
    for event in events:
        if event.op == "receive" and event.transaction and (event.region, event.transaction) in committed:
            of_region = processed[event.subscription or ""][event.region, origin_of(event)]
            of_region.add(event.transaction)
    return {
        f"{name}: processed more than once (messages)": sum(len(each) > 1 for each in messages.values())
        for name, messages in processed.items()
    }


def regions_lost(events: Iterable[HistoryEvent]) -> dict[str, float]:
    """Return the time in milliseconds at which each region was lost, of regions that did not come back. `events` are in
    order of time."""
    lost: dict[str, float] = {}
    for event in events:
        if event.outcome != "fact" or event.region is None:
            continue
        if event.op == "lose":
            lost.setdefault(event.region, event.at_ms)
        elif event.op in BACK:
            lost.pop(event.region, None)
    return lost


def loss_figures(events: Sequence[HistoryEvent], logs: Mapping[tuple[str, str], LogView]) -> Figures:
    """Return, for each lost region, the number of its acknowledged messages that no remaining region stores, and how
    long before the loss the oldest of them was acknowledged (RPO). `logs` are by (region, topic). Empty if no region is
    lost."""
    lost = regions_lost(events)
    if not lost:
        return {}
    left = {
        (one.origin, one.text)
        for (region, _), view in logs.items()
        if region not in lost
        for one in view.messages
    }
    gone: dict[str, list[float]] = {region: [] for region in lost}
    for event in events:
        is_receipt = event.op == "publish" and event.outcome == "ok"
        if is_receipt and event.origin_region in lost and (origin_of(event), event.detail) not in left:
            gone[event.origin_region].append(event.at_ms)
    figures: dict[str, float] = {}
    for region, told_ms in sorted(gone.items()):
        oldest_ms = min(told_ms, default=lost[region])
        figures[f"{region}: unrecovered (messages)"] = len(told_ms)
        figures[f"{region}: rpo (s)"] = max(0.0, round(lost[region] - oldest_ms) / 1000)
    return figures


def _repeated(received: Iterable[HistoryEvent]) -> int:
    seen: set[tuple[str | None, str | None, int | None]] = set()
    repeated = 0
    for event in received:
        identity = (event.origin_region, event.producer, event.sequence_id)
        repeated += identity in seen
        seen.add(identity)
    return repeated


def _gap_seconds(
    down: HistoryEvent, received: Sequence[HistoryEvent], events: Sequence[HistoryEvent]
) -> float | None:
    """Return the seconds from the fault to the next message that the subscription received in another region, or in the
    same region after its return. None if the subscription was in another region, or received no further message."""
    before = [event for event in received if event.at_ms <= down.at_ms]
    if not before or before[-1].region != down.region:
        return None
    ups = (e.at_ms for e in events if e.outcome == "fact" and e.op in UP and e.region == down.region)
    up_ms = next((at_ms for at_ms in ups if at_ms > down.at_ms), float("inf"))
    for event in received[len(before) :]:
        if event.region != down.region or event.at_ms > up_ms:
            return round(event.at_ms - down.at_ms) / 1000
    return None


_ENDS = {"kill": "killed", "stop": "stopped", "pause": "paused"}
_NUMBERS = "-0123456789"
Place = tuple[str | None, str | None]
"""A topic of a region: (region, topic)."""


@dataclass(slots=True)
class _Death:
    """The end or pause of a host, and how long the topics that it owned had no owner."""

    words: str
    at_ms: float
    orphans: set[Place]
    waits_seconds: list[float] = field(default_factory=list)
    most: int = 0
    """Number of topics of the busiest host when all topics had an owner again."""


def ownership_figures(events: Iterable[HistoryEvent]) -> Figures:
    """Return how topics were distributed after each end of a host, as `spark_jobs.figures.ownership` defines it."""
    owners: dict[Place, str] = {}
    deaths: list[_Death] = []
    for event in events:
        place = (event.region, event.topic)
        if event.op == "connect" and event.topic_epoch is not None:
            owners[place] = event.actor
            _take_over(deaths, place, event.at_ms, owners)
        elif event.op == "note":
            verb, _, host = (event.detail or "").partition(" ")
            orphans = {place for place, owner in owners.items() if owner == host}
            if verb in _ENDS and orphans:
                deaths.append(_Death(f"{host} {_ENDS[verb]}", event.at_ms, orphans))
                owners = {place: owner for place, owner in owners.items() if owner != host}
    return {name: value for death in deaths for name, value in _figures_of(death).items()}


def _take_over(deaths: Iterable[_Death], place: Place, at_ms: float, owners: dict[Place, str]) -> None:
    for death in deaths:
        if place in death.orphans:
            death.orphans.remove(place)
            death.waits_seconds.append((at_ms - death.at_ms) / 1000)
            if not death.orphans:
                alike = [owner for other, owner in owners.items() if _base(other) == _base(place)]
                death.most = max(Counter(alike).values())


def _base(place: Place) -> Place:
    """Return the region and the topic name without its number: hosts share topics that are numbered."""
    region, topic = place
    return region, (topic or "").rstrip(_NUMBERS)


def _figures_of(death: _Death) -> Figures:
    if death.orphans:
        return {f"{death.words}: topics without a new owner": float(len(death.orphans))}
    return {
        f"{death.words}: most topics of one host afterwards": float(death.most),
        f"{death.words}: last topic without an owner for (s)": round(max(death.waits_seconds), 4),
    }
