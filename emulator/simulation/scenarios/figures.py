"""The figures of one simulated run, by the definitions of the report (`spark_jobs.checks`, `spark_jobs.figures`).

They are fail-over gaps, repeated receives, messages committed twice, losses of lost regions (RPO), and how hosts took
over topics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from emulator.run.history_events import HistoryEvent
from emulator.simulation.evidence import origin_of
from emulator.simulation.outcome import Figures
from emulator.simulation.stored_messages import LogView

DOWN, UP = ("kill", "lose", "power_loss", "stop", "pause"), ("start", "restart", "resume")
STARTED = ("start", "restart")
"""Facts after which a region is not lost any more."""

Subscription = tuple[str | None, str | None]
"""A subscription: topic and name."""


def subscription_figures(events: Sequence[HistoryEvent]) -> Figures:
    """Return, for each subscription name, the number of repeated receives of all its topics, and its longest fail-over
    gap after a kill, loss, stop or pause of the region in which it was consumed."""
    received: dict[Subscription, list[HistoryEvent]] = defaultdict(list)
    for event in events:
        if event.op == "receive" and event.outcome == "ok":
            received[event.topic, event.subscription].append(event)
    figures: dict[str, float] = {}
    for (_, name), of_subscription in received.items():
        repeated = f"{name}: received again (messages)"
        figures[repeated] = figures.get(repeated, 0) + _repeated(of_subscription)
        for event in events:
            if event.outcome == "fact" and event.op in DOWN:
                gap = _gap_seconds(event, of_subscription, events)
                if gap is not None:
                    longest = f"{name}: fail-over gap after {event.op} of {event.region} (s)"
                    figures[longest] = max(gap, figures.get(longest, 0.0))
    return figures


def processing_figures(events: Sequence[HistoryEvent]) -> Figures:
    """Return, for each subscription that tasks process in transactions, the number of messages that belong to several
    committed transactions of one region. Empty without committed transactions."""
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
        elif event.op in STARTED:
            lost.pop(event.region, None)
    return lost


def loss_figures(events: Sequence[HistoryEvent], logs: Mapping[tuple[str, str], LogView]) -> Figures:
    """Return, for each lost region, the number of its acknowledged messages that no remaining region stores, and how
    long before the loss the oldest of them was acknowledged (RPO; 0 without any). `logs` are by (region, topic)."""
    lost = regions_lost(events)
    if not lost:
        return {}
    stored = {
        (one.origin, one.text)
        for (region, _), view in logs.items()
        if region not in lost
        for one in view.messages
    }
    unrecovered_ms: dict[str, list[float]] = {region: [] for region in lost}
    for event in events:
        is_receipt = event.op == "publish" and event.outcome == "ok"
        if is_receipt and event.origin_region in lost and (origin_of(event), event.detail) not in stored:
            unrecovered_ms[event.origin_region].append(event.at_ms)
    figures: dict[str, float] = {}
    for region, acknowledged_ms in sorted(unrecovered_ms.items()):
        oldest_ms = min(acknowledged_ms, default=lost[region])
        figures[f"{region}: unrecovered (messages)"] = len(acknowledged_ms)
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
    same region after its return. None without such a message, or if its last message before came from elsewhere."""
    before = [event for event in received if event.at_ms <= down.at_ms]
    if not before or before[-1].region != down.region:
        return None
    recoveries = (e.at_ms for e in events if e.outcome == "fact" and e.op in UP and e.region == down.region)
    up_at_ms = next((at_ms for at_ms in recoveries if at_ms > down.at_ms), float("inf"))
    for event in received[len(before) :]:
        if event.region != down.region or event.at_ms > up_at_ms:
            return round(event.at_ms - down.at_ms) / 1000
    return None


_FAULT_TEXT = {"kill": "killed", "stop": "stopped", "pause": "paused"}
_NUMBER_CHARACTERS = "-0123456789"
RegionTopic = tuple[str | None, str | None]
"""A topic of a region: (region, topic)."""


@dataclass(slots=True)
class _HostFault:
    """The kill, stop or pause of a host, and how long the topics that it owned had no owner."""

    text: str
    at_ms: float
    orphans: set[RegionTopic]
    waits_seconds: list[float] = field(default_factory=list)
    topics_of_busiest_host: int = 0
    """Number of topics of the topics_of_busiest_host host when all topics had an owner again."""


def ownership_figures(events: Iterable[HistoryEvent]) -> Figures:
    """Return how topics were taken over after each kill, stop and pause of a host that owned topics, as
    `spark_jobs.figures.ownership` defines it."""
    owners: dict[RegionTopic, str] = {}
    faults: list[_HostFault] = []
    for event in events:
        region_topic = (event.region, event.topic)
        if event.op == "connect" and event.topic_epoch is not None:
            owners[region_topic] = event.actor
            _take_over(faults, region_topic, event.at_ms, owners)
        elif event.op == "note":
            verb, _, host = (event.detail or "").partition(" ")
            orphans = {topic for topic, owner in owners.items() if owner == host}
            if verb in _FAULT_TEXT and orphans:
                faults.append(_HostFault(f"{host} {_FAULT_TEXT[verb]}", event.at_ms, orphans))
                owners = {topic: owner for topic, owner in owners.items() if owner != host}
    return {name: value for fault in faults for name, value in _fault_figures(fault).items()}


def _take_over(
    faults: Iterable[_HostFault], topic: RegionTopic, at_ms: float, owners: dict[RegionTopic, str]
) -> None:
    for fault in faults:
        if topic in fault.orphans:
            fault.orphans.remove(topic)
            fault.waits_seconds.append((at_ms - fault.at_ms) / 1000)
            if not fault.orphans:
                same_base = [owner for other, owner in owners.items() if _base(other) == _base(topic)]
                fault.topics_of_busiest_host = max(Counter(same_base).values())


def _base(region_topic: RegionTopic) -> RegionTopic:
    """Return the region and the topic name without trailing digits and hyphens: hosts share numbered topics."""
    region, topic = region_topic
    return region, (topic or "").rstrip(_NUMBER_CHARACTERS)


def _fault_figures(fault: _HostFault) -> Figures:
    if fault.orphans:
        return {f"{fault.text}: topics without a new owner": float(len(fault.orphans))}
    return {
        f"{fault.text}: most topics of one host afterwards": float(fault.topics_of_busiest_host),
        f"{fault.text}: last topic without an owner for (s)": round(max(fault.waits_seconds), 4),
    }
