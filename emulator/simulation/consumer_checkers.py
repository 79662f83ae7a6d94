"""Checks of what consumers and readers received, and of the positions of their subscriptions."""

from __future__ import annotations

from collections import defaultdict

from emulator.run.history_events import HistoryEvent
from emulator.simulation.evidence import RunEvidence, full, origin_of, seconds_of
from emulator.simulation.invariant_check import Found, witness_of

# INV-5


def consumed_only_received(evidence: RunEvidence) -> Found:
    """A stored cursor never counts a message as acknowledged before a consumer of the subscription has received it."""
    for subscription, one in evidence.acknowledged_unreceived:
        yield (
            f"{subscription} counted {one.origin} at {one.message_id} in {one.region} as consumed "
            "although none of its consumers received it",
            {**witness_of(one), "subscription": subscription},
        )


def readers_received_everything(evidence: RunEvidence) -> Found:
    """The messages that a reader received are the first ones of the log, in order and without a gap."""
    reads: dict[str, list[HistoryEvent]] = defaultdict(list)
    for event in evidence.events:
        if event.op == "read":
            reads[event.actor].append(event)
    for reader, events in reads.items():
        region, topic = events[0].region or "", full(events[0].topic)
        messages = evidence.log(region, topic).messages
        for event, stored in zip(events, messages, strict=False):
            if event.message_id != stored.message_id:
                yield (
                    f"reader {reader} received {event.message_id} in {region} when {stored.message_id} was next",
                    {
                        "given": event.message_id or "",
                        "next": stored.message_id,
                        "region": region,
                        "topic": topic,
                    },
                )
                break


# INV-8


def mark_delete_forward(evidence: RunEvidence) -> Found:
    for sentence in evidence.mark_delete_regressions:
        yield sentence, {}


# INV-9


def confirmed_durable(evidence: RunEvidence) -> Found:
    """The stored cursor contains each confirmed acknowledgement not in a transaction nor sent before a seek ended."""
    requested_at: dict[tuple[str, str | None], float] = {}
    for event in evidence.events:
        if event.op == "acknowledge" and event.outcome == "asked":
            requested_at[event.actor, event.message_id] = seconds_of(event)
        if event.op != "acknowledge" or event.outcome != "ok" or event.transaction is not None:
            continue  # An acknowledgement in a transaction takes effect when the transaction commits.
        region, topic, subscription = event.region or "", full(event.topic), event.subscription or ""
        seek_end = evidence.windows.last_end(region, topic, subscription)
        if requested_at[event.actor, event.message_id] <= seek_end:
            continue  # A seek may undo acknowledgements that were sent before it ended.
        cursor = evidence.cursors.get((region, topic, subscription))
        _, entry, batch_index = (int(part) for part in (event.message_id or "").split(":"))
        if cursor is None or not cursor.is_done(entry, batch_index):
            yield (
                f"{subscription} received a response that {event.message_id} in {region} is acknowledged; "
                "its stored cursor does not contain it",
                {"subscription": subscription, "region": region, "at": event.message_id or ""},
            )


# INV-13


def received_is_stored(evidence: RunEvidence) -> Found:
    """Every message that a consumer or reader received is stored in that region, at that message id."""
    for event in evidence.events:
        if event.op not in ("receive", "read"):
            continue
        origin = origin_of(event)
        view = evidence.logs.get((event.region or "", origin.topic))
        stored = None if view is None else view.by_message_id.get(event.message_id or "")
        if stored is None or (stored.origin, stored.text) != (origin, event.detail):
            yield (
                f"{event.actor} received {origin} at {event.message_id} in {event.region}, "
                f"where {'nothing' if stored is None else stored.origin} is stored",
                {
                    "message": str(origin),
                    "at": event.message_id or "",
                    "region": event.region or "",
                },
            )


def consumers_received_everything(evidence: RunEvidence) -> Found:
    """After healing, every subscription has received all messages in each region where it has consumers."""
    for (topic, subscription), regions in sorted(evidence.subscribed.items()):
        for region in regions:
            if region in evidence.lost:
                continue
            is_done = evidence.delivered.to(region, topic, subscription)
            for one in evidence.log(region, topic).messages:
                if not is_done(one.origin, one.text):
                    yield (
                        f"{subscription} has a consumer in {region} and never received "
                        f"{one.origin} at {one.message_id}",
                        {**witness_of(one), "subscription": subscription},
                    )
