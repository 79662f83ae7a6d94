"""Checks of what regions stored: every acknowledged message, once, in order, the same in all regions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from emulator.simulation.evidence import RunEvidence
from emulator.simulation.invariant_check import Found, witness_of
from emulator.simulation.stored_messages import MessageOrigin, StoredMessage

# INV-1


def acknowledged_stored(evidence: RunEvidence) -> Found:
    """Every acknowledged message is stored in its region at the message id that its client received."""
    stored = {region: _copies(evidence, region) for region in {one.region for one in evidence.published}}
    for origin, attempts in evidence.published.items():
        copies = stored[origin.region].get(origin, ())
        for attempt in attempts.values():
            if attempt.acknowledged and attempt.text not in [one.text for one in copies]:
                witness = {"message": str(origin), "text": attempt.text, "region": origin.region}
                yield f"{origin} was acknowledged in {origin.region} and is not stored there", witness
    yield from _wrong_message_ids(evidence)


def _wrong_message_ids(evidence: RunEvidence) -> Found:
    for origin, attempts in evidence.published.items():
        view = evidence.logs.get((origin.region, origin.topic))
        for attempt in attempts.values():
            for message_id in attempt.message_ids:
                stored = None if view is None else view.by_message_id.get(message_id)
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
    for (region, topic), view in sorted(evidence.logs.items()):
        if region in evidence.lost:
            continue
        required = _required_copies(evidence, region, topic, view.messages)
        for one in view.messages:
            if one.origin.region != region:
                continue
            for other, copies in required[one.replicate_to]:
                if one.origin not in copies:
                    yield (
                        f"{one.origin} is stored in {region} at {one.message_id} and never arrived in {other}",
                        {**witness_of(one), "missing in": other},
                    )


def _required_copies(
    evidence: RunEvidence, origin: str, topic: str, messages: Sequence[StoredMessage]
) -> dict[tuple[str, ...], list[tuple[str, dict[MessageOrigin, list[StoredMessage]]]]]:
    """Return for each `replicate_to` of these messages the regions that must store a message of the region `origin`,
    without lost ones, each with its copies."""
    return {
        chosen: [
            (region, _copies(evidence, region))
            for region in evidence.replication_rules.required_regions(topic, origin, chosen)
            if region not in evidence.lost
        ]
        for chosen in {one.replicate_to for one in messages}
    }


# INV-3


def only_published_stored(evidence: RunEvidence) -> Found:
    """Every stored message was sent by a client, with the same content, and to this region."""
    for (region, topic), view in sorted(evidence.logs.items()):
        for entry in view.garbled:
            yield (
                f"{region} stores at {view.ledger}:{entry} what no client sent",
                {"topic": topic, "region": region},
            )
        belongs: dict[tuple[str, tuple[str, ...]], bool] = {}
        for one in view.messages:
            if one.text not in evidence.published.get(one.origin, ()):
                yield f"{one.origin} ({one.text!r}) is stored in {region}; no client sent it", witness_of(one)
                continue
            destination = (one.origin.region, one.replicate_to)
            if destination not in belongs:
                required = evidence.replication_rules.required_regions(topic, *destination)
                belongs[destination] = region in required
            if not belongs[destination]:
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
    own = [one for one in evidence.log(origin, topic).messages if one.origin.region == origin]
    chosen = {
        replicate_to
        for replicate_to in {one.replicate_to for one in own}
        if region in evidence.replication_rules.required_regions(topic, origin, replicate_to)
    }
    required = [one for one in own if one.replicate_to in chosen]
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


# INV-11


def no_entries_of_fenced_owners(evidence: RunEvidence) -> Found:
    """No write of an older owner of a log is stored after a newer owner took the log over."""
    for sentence in evidence.fencing_violations:
        yield sentence, {}
