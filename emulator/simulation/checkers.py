"""The invariants of every simulated run, checked from outside the brokers: docs/INVARIANTS.md.

A check is a generator of violations and an `InvariantCheck` in CHECKS. Its result is a verdict with the first violation
and its witness. `unknown`: the check does not apply to the evidence. While faults are active, only safety is checked.
Checks with `only_healed` (liveness) run after the repair, when the regions have had time to converge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from emulator.run.history_events import HistoryEvent
from emulator.simulation.evidence import (
    MessageOrigin,
    RunEvidence,
    StoredMessage,
    full,
    origin_of,
    seconds_of,
)

E = TypeVar("E", bound=RunEvidence, contravariant=True)


class Violation(NamedTuple):
    """One violation of an invariant."""

    invariant: str
    check: str
    sentence: str
    witness: dict[str, str]


class InvariantResult(NamedTuple):
    check: str
    invariant: str
    verdict: Literal["valid", "invalid", "unknown"]
    violation: Violation | None = None


Found = Iterator[tuple[str, dict[str, str]]]
"""Iterator over (sentence, witness) of the violations that a check found; only the first one is reported."""


class InvariantCheck(NamedTuple, Generic[E]):
    name: str
    invariant: str
    find: Callable[[E], Found]
    only_healed: bool = False
    applies: Callable[[E], bool] = lambda evidence: bool(evidence.published)


def witness_of(stored: StoredMessage) -> dict[str, str]:
    return {
        "message": str(stored.origin),
        "text": stored.text,
        "region": stored.region,
        "at": stored.message_id,
    }


# INV-1


def acknowledged_stored(evidence: RunEvidence) -> Found:
    """Every acknowledged message is stored in its region at the message id that its client received."""
    for origin, attempts in evidence.published.items():
        acknowledged = [attempt for attempt in attempts.values() if attempt.acknowledged]
        if not acknowledged:
            continue
        copies = {one.text for one in _copies(evidence, origin.region).get(origin, ())}
        for attempt in acknowledged:
            if attempt.text not in copies:
                witness = {"message": str(origin), "text": attempt.text, "region": origin.region}
                yield f"{origin} was acknowledged in {origin.region} and is not stored there", witness
    yield from _wrong_message_ids(evidence)


def _wrong_message_ids(evidence: RunEvidence) -> Found:
    for origin, attempts in evidence.published.items():
        by_message_id = evidence.log(origin.region, origin.topic).by_message_id
        for attempt in attempts.values():
            for message_id in attempt.message_ids:
                stored = by_message_id.get(message_id)
                if stored is None or (stored.origin, stored.text) != (origin, attempt.text):
                    found = "nothing" if stored is None else str(stored.origin)
                    yield (
                        f"{origin} was acknowledged at {message_id} in {origin.region}, where {found} is stored",
                        {"message": str(origin), "told": message_id, "stored there": found},
                    )


def _copies(evidence: RunEvidence, region: str) -> dict[MessageOrigin, list[StoredMessage]]:
    """Return all copies in a region by origin, in log order, including those of open and aborted transactions."""
    found = evidence.copies.get(region)
    if found is None:
        found = evidence.copies[region] = defaultdict(list)
        for (where, _), view in evidence.logs.items():
            if where == region:
                for one in view.by_message_id.values():
                    found[one.origin].append(one)
    return found


# INV-2


def stored_once(evidence: RunEvidence) -> Found:
    """No region stores a message twice, or without deduplication more often than its origin region does."""
    for region in sorted({region for region, _ in evidence.logs}):
        for origin, copies in _copies(evidence, region).items():
            if len(copies) < 2:
                continue
            deduplicates = evidence.replication_rules.deduplicates(origin.topic)
            at_origin = len(_copies(evidence, origin.region).get(origin, ()))
            if region == origin.region and not deduplicates:
                continue  # the client sent the message again because it had no receipt: a legitimate duplicate
            if region != origin.region and len(copies) <= at_origin and not deduplicates:
                continue
            message_ids = " and ".join(one.message_id for one in copies)
            yield (
                f"{origin} is stored {len(copies)} times in {region}, at {message_ids}",
                {"message": str(origin), "text": copies[-1].text, "region": region, "at": message_ids},
            )


def replicated_everywhere(evidence: RunEvidence) -> Found:
    """After healing, each message of an origin region is stored in all its replication regions that are not lost."""
    for (region, _), view in sorted(evidence.logs.items()):
        for one in view.messages:
            if one.origin.region != region or region in evidence.lost:
                continue
            for other in evidence.replication_rules.required_regions(one.origin, one.replicate_to):
                if other not in evidence.lost and one.origin not in _copies(evidence, other):
                    yield (
                        f"{one.origin} is stored in {region} at {one.message_id} and never arrived in {other}",
                        {**witness_of(one), "missing in": other},
                    )


# INV-3


def only_published_stored(evidence: RunEvidence) -> Found:
    """Every stored message was sent by a client, with the same content, and to this region."""
    for (region, topic), view in sorted(evidence.logs.items()):
        for entry in view.garbled:
            yield (
                f"{region} stores at {view.ledger}:{entry} what no client sent",
                {"topic": topic, "region": region},
            )
        for one in view.messages:
            if one.text not in evidence.published.get(one.origin, {}):
                yield f"{one.origin} ({one.text!r}) is stored in {region}; no client sent it", witness_of(one)
            elif region not in evidence.replication_rules.required_regions(one.origin, one.replicate_to):
                named = ", ".join(one.replicate_to)
                yield f"{one.origin} was restricted to {named} and is stored in {region}", witness_of(one)


# INV-4


def order_of_each_origin(evidence: RunEvidence) -> Found:
    """Each log holds the messages of one producer in the order of their sequence ids; duplicates do not count."""
    for (region, topic), view in sorted(evidence.logs.items()):
        highest: dict[tuple[str, str], StoredMessage] = {}
        seen: set[MessageOrigin] = set()
        for one in view.messages:
            if one.origin in seen:
                continue
            seen.add(one.origin)
            producer = (one.origin.region, one.origin.producer)
            before = highest.get(producer)
            if before is not None and one.origin.number < before.origin.number:
                yield (
                    f"in {region}, {one.origin} is stored at {one.message_id}, "
                    f"after {before.origin} at {before.message_id}",
                    {**witness_of(one), "behind": before.message_id, "topic": topic},
                )
            else:
                highest[producer] = one


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


# INV-6


def regions_converge(evidence: RunEvidence) -> Found:
    """After healing, each region stores an origin's messages in its order; of a lost region a prefix suffices."""
    for topic in evidence.topics:
        regions = evidence.replication_rules.regions(topic)
        for origin in regions:
            for region in regions:
                if region != origin:
                    yield from _difference(evidence, topic, origin, region)


def _difference(evidence: RunEvidence, topic: str, origin: str, region: str) -> Found:
    own = evidence.log(origin, topic)
    required = [
        one
        for one in own.messages
        if one.origin.region == origin
        and region in evidence.replication_rules.required_regions(one.origin, one.replicate_to)
    ]
    stored = [one for one in evidence.log(region, topic).messages if one.origin.region == origin]
    for expected, found in zip(required, stored, strict=False):
        if (expected.origin, expected.text) != (found.origin, found.text):
            yield (
                f"of the messages of {origin} {region} holds {found.origin} at {found.message_id} "
                f"where {origin} has {expected.origin}",
                {"topic": topic, **witness_of(found), "expected": str(expected.origin)},
            )
            return
    may_lack = origin in evidence.lost or region in evidence.lost
    if len(stored) > len(required) or (len(stored) < len(required) and not may_lack):
        longer, name = (required, origin) if len(required) > len(stored) else (stored, region)
        one = longer[min(len(required), len(stored))]
        yield (
            f"{origin} holds {len(required)} messages of its own for {region}, which holds {len(stored)}: "
            f"{one.origin} is only in {name}",
            {"topic": topic, **witness_of(one)},
        )


# INV-7


def positions_grow(evidence: RunEvidence) -> Found:
    """Entry ids increase within each log, and no message id is returned for two messages."""
    for (region, topic), view in sorted(evidence.logs.items()):
        for before, after in zip(view.ids, view.ids[1:], strict=False):
            if after <= before:
                yield (
                    f"entry {after} follows entry {before} in {region}",
                    {"topic": topic, "region": region},
                )
    returned_for: dict[tuple[str, str, str], MessageOrigin] = {}
    for origin, attempts in evidence.published.items():
        for attempt in attempts.values():
            for message_id in attempt.message_ids:
                other = returned_for.setdefault((origin.region, origin.topic, message_id), origin)
                if other != origin:
                    yield (
                        f"{message_id} in {origin.region} was returned for {other} and for {origin}",
                        {"at": message_id, "region": origin.region},
                    )


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


# INV-11


def no_entries_of_fenced_owners(evidence: RunEvidence) -> Found:
    """No write of an older owner of a log is stored after a newer owner took the log over."""
    for sentence in evidence.fencing_violations:
        yield sentence, {}


# INV-13


def received_is_stored(evidence: RunEvidence) -> Found:
    """Every message that a consumer or reader received is stored in that region, at that message id."""
    for event in evidence.events:
        if event.op not in ("receive", "read"):
            continue
        stored = evidence.log(event.region or "", full(event.topic)).by_message_id.get(event.message_id or "")
        if stored is None or (stored.origin, stored.text) != (origin_of(event), event.detail):
            yield (
                f"{event.actor} received {origin_of(event)} at {event.message_id} in {event.region}, "
                f"where {'nothing' if stored is None else stored.origin} is stored",
                {
                    "message": str(origin_of(event)),
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


ALWAYS: Final = (
    # First, because two owners that write to one log break other invariants too.
    InvariantCheck("no-entries-of-fenced-owners", "INV-11", no_entries_of_fenced_owners),
    InvariantCheck("acknowledged-stored", "INV-1", acknowledged_stored),
    InvariantCheck("stored-once", "INV-2", stored_once),
    InvariantCheck("only-published-stored", "INV-3", only_published_stored),
    InvariantCheck("per-origin-order", "INV-4", order_of_each_origin),
    InvariantCheck(
        "consumed-only-received", "INV-5", consumed_only_received, applies=lambda e: bool(e.cursors)
    ),
    InvariantCheck("readers-received-everything", "INV-5", readers_received_everything),
    InvariantCheck("positions-grow", "INV-7", positions_grow),
    InvariantCheck("mark-delete-forward", "INV-8", mark_delete_forward, applies=lambda e: bool(e.cursors)),
    InvariantCheck("confirmed-durable", "INV-9", confirmed_durable, applies=lambda e: bool(e.cursors)),
    InvariantCheck("received-is-stored", "INV-13", received_is_stored),
)
REPLICATED = InvariantCheck("replicated-everywhere", "INV-2", replicated_everywhere, only_healed=True)
CONVERGED = InvariantCheck("regions-converge", "INV-6", regions_converge, only_healed=True)
CONSUMED = InvariantCheck(
    "consumers-received-everything", "INV-5", consumers_received_everything, only_healed=True
)
CHECKS: Final = (*ALWAYS, REPLICATED, CONVERGED, CONSUMED)
"""The checks of every simulated run."""


def run_checks(evidence: E, checks: Sequence[InvariantCheck[E]]) -> list[InvariantResult]:
    """Run the checks on the evidence and return their results; before healing, without checks of liveness."""
    return [_run_check(check, evidence) for check in checks if evidence.healed or not check.only_healed]


def _run_check(check: InvariantCheck[E], evidence: E) -> InvariantResult:
    if not check.applies(evidence):
        return InvariantResult(check.name, check.invariant, "unknown")
    for sentence, witness in check.find(evidence):
        violation = Violation(check.invariant, check.name, sentence, witness)
        return InvariantResult(check.name, check.invariant, "invalid", violation)
    return InvariantResult(check.name, check.invariant, "valid")


def first_violation(check_results: list[InvariantResult]) -> Violation | None:
    """Return the first violation of these results, or None."""
    return next((one.violation for one in check_results if one.violation is not None), None)
