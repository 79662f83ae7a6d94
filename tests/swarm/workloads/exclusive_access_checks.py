"""Checks of exclusive access: compare the grants on the disks with the responses that claimants received, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf

from emulator.errors import ServerError
from emulator.simulation.invariant_check import Found, InvariantCheck, witness_of
from emulator.simulation.stored_messages import StoredMessage
from spark_jobs.evidence.grants import StoredGrant
from tests.swarm.checkers.claims import Attempt, Place, Sent
from tests.swarm.evidence import Evidence

# INV-25


def epochs_grow(evidence: Evidence) -> Found:
    """Epochs have no gaps, and their ranges of entries do not overlap."""
    for (region, topic), grants in sorted(evidence.grants.items()):
        for number, grant in enumerate(grants):
            if grant.problem or grant.epoch != number:
                why = grant.problem or f"epoch {number} is missing in front of it"
                yield f"epoch {grant.epoch} of {topic} in {region} is impossible: {why}", _of(grant)
                return
        for before, after in pairwise(grants):
            end = before.first_entry if before.end_entry is None else before.end_entry
            if after.first_entry < end or end < before.first_entry:
                yield (
                    f"epoch {after.epoch} of {topic} in {region} begins at entry {after.first_entry}, "
                    f"and epoch {before.epoch} lasts to {end}",
                    _of(after),
                )


def one_owner(evidence: Evidence) -> Found:
    """Only the owner of a grant stores messages within it, and an exclusive producer stores none outside a grant."""
    for place, grants in sorted(evidence.grants.items()):
        exclusive = _always_exclusive(evidence, place)
        for one in _own_messages(evidence, place):
            grant = _grant_at(grants, one.entry)
            name = one.origin.producer
            if grant is not None and grant.owner != name:
                sentence = (
                    f"{one.origin} is stored at {one.message_id}, in epoch {grant.epoch} of {grant.owner}"
                )
                yield sentence, {**witness_of(one), **_of(grant)}
            elif grant is None and name in exclusive:
                yield f"{one.origin} is stored at {one.message_id}, without a grant", witness_of(one)


def _own_messages(evidence: Evidence, place: Place) -> Iterator[StoredMessage]:
    region, topic = place
    return (one for one in evidence.log(region, topic).messages if one.origin.region == region)


def _grant_at(grants: Sequence[StoredGrant], entry: int) -> StoredGrant | None:
    found = None
    for grant in grants:
        if grant.first_entry <= entry:
            found = grant
    if found is None or (found.end_entry is not None and entry >= found.end_entry):
        return None
    return found


def _always_exclusive(evidence: Evidence, place: Place) -> set[str]:
    attempts = [one for one in evidence.claims.attempts if one.place == place]
    return {one.name for one in attempts} - {one.name for one in attempts if not one.is_exclusive}


# INV-26


def epoch_durable_before_notified(evidence: Evidence) -> Found:
    """When an owner receives its epoch, the grant is durable, and stays stored."""
    for place, opened in sorted(evidence.claims.opened().items()):
        grants = {grant.epoch: grant for grant in evidence.grants.get(place, ())}
        for one in opened:
            now = grants.get(one.epoch or 0)
            if one.stored_owner != one.name or now is None or now.owner != one.name:
                then = "nothing" if one.stored_owner is None else one.stored_owner
                later = "nothing" if now is None else now.owner
                yield (
                    f"{one.name} was notified of epoch {one.epoch} in {place[0]}, for which {then} was stored then "
                    f"and {later} is now",
                    _about(one),
                )


def notified_epochs_increase(evidence: Evidence) -> Found:
    """Only one producer name receives an epoch, and a request sent after its response never receives an older epoch."""
    for opened in evidence.claims.opened().values():
        names: dict[int, str] = {}
        for one in opened:
            assert one.epoch is not None
            if names.setdefault(one.epoch, one.name) != one.name:
                other = names[one.epoch]
                sentence = (
                    f"{one.name} was notified of epoch {one.epoch} in {one.place[0]}, and so was {other}"
                )
                yield sentence, _about(one)
            for before in opened:
                if _reported(before) < one.requested_at and (before.epoch or 0) > one.epoch:
                    yield (
                        f"{one.name} was notified of epoch {one.epoch} in {one.place[0]} for a request sent after "
                        f"{before.name} was notified of {before.epoch}",
                        _about(one),
                    )


# INV-27


def fenced_for_good(evidence: Evidence) -> Found:
    """A producer that lost exclusive access to another one is never granted it again; only a new producer may be."""
    for place, opened in sorted(evidence.claims.opened().items()):
        owners = {grant.epoch: grant.owner for grant in evidence.grants.get(place, ())}
        by_instance: dict[tuple[str, int], list[Attempt]] = defaultdict(list)
        for one in opened:
            by_instance[one.name, one.instance].append(one)
        for (name, _), reported in sorted(by_instance.items()):
            for before, after in pairwise(reported):
                assert before.epoch is not None
                assert after.epoch is not None
                between = [owners.get(epoch) for epoch in range(before.epoch + 1, after.epoch)]
                other = next((owner for owner in between if owner not in (None, name)), None)
                if other is not None:
                    yield (
                        f"{name} had epoch {before.epoch} in {place[0]}, lost it to {other}, and was granted it again "
                        f"with epoch {after.epoch}",
                        _about(after),
                    )


def losers_are_refused(evidence: Evidence) -> Found:
    """A publish that a producer sends after another producer received a newer epoch gets no receipt. The producer fails
    with ProducerFenced."""
    opened = evidence.claims.opened()
    for sent in evidence.claims.sent:
        newer = _newer(opened.get(sent.by.place, ()), sent)
        if sent.acknowledged and newer is not None:
            yield (
                f"{sent.by.name} sent {sent.text} in {sent.by.place[0]} after {newer.name} was notified of epoch "
                f"{newer.epoch}, and it was acknowledged",
                {**_about(sent.by), "text": sent.text},
            )
    for ending in evidence.claims.endings:
        code = ending.code
        if ending.attempt.epoch is not None and code not in (None, ServerError.ProducerFenced):
            yield f"{ending.attempt.name} lost the topic and received {code}", _about(ending.attempt)


def _newer(opened: Sequence[Attempt], sent: Sent) -> Attempt | None:
    """Return a request that received a newer epoch before the publish was sent."""
    if sent.by.epoch is None:
        return None  # A shared producer may reconnect after the owner has closed.
    for one in opened:
        if (
            one.name != sent.by.name
            and (one.epoch or 0) > sent.by.epoch
            and _reported(one) < sent.requested_at
        ):
            return one
    return None


# INV-28


def promoted_in_order(evidence: Evidence) -> Found:
    """Of two producers that certainly waited at the same time, the one with the higher priority is promoted first; with
    equal priorities, the one that was queued first."""
    for place, opened in sorted(evidence.claims.opened().items()):
        promoted = [one for one in opened if one.waits is not None]
        for early in promoted:
            for late in promoted:
                if early is late or (early.epoch or 0) >= (late.epoch or 0) or early.name == late.name:
                    continue
                if _must_be_behind(evidence, early, late):
                    yield (
                        f"{early.name} (priority {early.priority}) got {place[1]} in {place[0]} before {late.name} "
                        f"(priority {late.priority}), which waited at the same time",
                        {**_about(early), "before": late.name},
                    )


def _must_be_behind(evidence: Evidence, early: Attempt, late: Attempt) -> bool:
    """Whether `early` had to wait behind `late`, which was queued from its response `waits` to its promotion."""
    assert late.waits is not None
    if early.priority > late.priority or early.line is None or early.line is not late.line:
        return False
    if early.requested_at > late.waits:
        came_back = any(
            one.name == early.name
            and one.place == early.place
            and one.waits is not None
            and one.requested_at < early.requested_at
            for one in evidence.claims.attempts
        )
        # For a grace period the region keeps the queue position of a producer that reconnects with its name.
        return early.priority < late.priority or not came_back
    return early.priority < late.priority and _was_held_after(evidence, early, late.waits)


def _was_held_after(evidence: Evidence, early: Attempt, moment: float) -> bool:
    """Whether the owner before `early` still published after `moment`: then `early` was promoted later."""
    return any(
        sent.acknowledged
        and sent.requested_at > moment
        and sent.by.place == early.place
        and sent.by.epoch == (early.epoch or 0) - 1
        for sent in evidence.claims.sent
    )


def no_starved_waiter(evidence: Evidence) -> Found:
    """After healing every claimant is granted exclusive access."""
    for name, last in sorted(evidence.claims.wanting.items()):
        if last is None:
            yield f"{name} never requested it", {"name": name}
        elif last.place[0] not in evidence.lost:
            how = "owns it and cannot publish" if last.opened is not None else "waits without being promoted"
            if last.opened is None and last.waits is None:
                how = "requests it without success"
            yield f"{name} {how} for {last.place[1]} in {last.place[0]}", _about(last)


def _reported(one: Attempt) -> float:
    return inf if one.opened is None else one.opened


def _of(grant: StoredGrant) -> dict[str, str]:
    return {
        "region": grant.region,
        "topic": grant.topic,
        "epoch": str(grant.epoch),
        "owner": grant.owner,
    }


def _about(one: Attempt) -> dict[str, str]:
    region, topic = one.place
    return {"producer": one.name, "region": region, "topic": topic, "epoch": str(one.epoch)}


def _is_claimed(evidence: Evidence) -> bool:
    return bool(evidence.claims.attempts)


CHECKS = (
    InvariantCheck(
        "epoch-durable-before-notified", "INV-26", epoch_durable_before_notified, applies=_is_claimed
    ),
    InvariantCheck("notified-epochs-increase", "INV-26", notified_epochs_increase, applies=_is_claimed),
    InvariantCheck("epochs-increase", "INV-25", epochs_grow, applies=_is_claimed),
    InvariantCheck("one-owner", "INV-25", one_owner, applies=_is_claimed),
    InvariantCheck("fenced-for-good", "INV-27", fenced_for_good, applies=_is_claimed),
    InvariantCheck("former-owners-rejected", "INV-27", losers_are_refused, applies=_is_claimed),
    InvariantCheck("promoted-in-order", "INV-28", promoted_in_order, applies=_is_claimed),
    InvariantCheck("no-starved-waiter", "INV-28", no_starved_waiter, only_healed=True, applies=_is_claimed),
)
