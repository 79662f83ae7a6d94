"""The state machine of producers' access to a topic (PIP-68), and of their promotion when its owner fails (PIP-440).

One state machine per topic and region. A *claimant* is a client's producer, connected or waiting. Replicators of other
regions are not claimants: they need no access (docs/components/access.md, X5).

               ┌── last producer left ── SHARED (no owner; exclusive claims wait or are refused)
               ▼                      ▲
             FREE ─── shared claim ───┘
              │ exclusive claim
              ▼
           granting ── durable ──▶ OWNED ── owner left ──▶ granting to the first in the queue; empty: ending ──▶ FREE
              ▲                      ▲
              └ grace period is over ─ RESERVED, after a restart ── the owner reconnects

A *grant* stores that one producer owns the topic: its epoch, the producer's name, and the end of the log when the grant
began and when it ended. A grant is durable before its owner is notified (X1). Claims that arrive while a grant is being
written are decided after the write, in order of arrival. Each input returns decisions; the caller carries them out in
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from emulator.core.access.types import (
    AS_PROPOSED,
    NO_OWNER,
    AccessGrant,
    AccessRules,
    Admit,
    Claimant,
    Decision,
    Enqueue,
    Evict,
    GrantChange,
    Grants,
    GrantStep,
    QueueEntry,
    Refuse,
)
from emulator.core.access.wait_queue import WaitQueue
from emulator.errors import ServerError
from emulator.model.values import AccessMode

FENCED_MAX: Final = 1_000
"""Maximum number of remembered names of fenced shared producers."""


class Access:
    """The access state of one loaded topic."""

    def __init__(
        self,
        newest: AccessGrant | None = None,
        *,
        reserved: bool = False,
        queued_before: Mapping[str, int] | None = None,
        rules: AccessRules = AS_PROPOSED,
    ) -> None:
        """`newest`: the newest stored grant. `reserved`: its owner may take the topic back until `grace_period_over`.
        `queued_before`: producers that waited when the topic was unloaded: name -> time of arrival (us)."""
        self.rules = rules
        self.owner: Claimant | None = None
        """The producer that owns the topic, or whose grant is being written."""
        self.shared: dict[Claimant, None] = {}
        self.queue = WaitQueue()
        self.reserved_for = newest.owner if reserved and newest and newest.end_entry is None else None
        """Name of the former owner, while the topic is reserved for it."""
        self.exclusive_region = ""
        """Name of the other region in which alone clients may publish; empty: clients may publish here."""
        self._grants = Grants(newest)
        self._must_fence = False
        """Clients may have published in another region since the newest grant: an epoch without an owner must be stored
        before any producer is admitted, so that the former owner is fenced."""
        self._queued_before = dict(queued_before or {})
        self._fenced_names: dict[str, None] = {}
        self._was_shared = not self._grants.has_owner
        """Other producers may have published since the newest grant ended."""
        self._serial = 0

    @property
    def change(self) -> GrantChange | None:
        """The write of a grant that is in progress."""
        return self._grants.change

    @property
    def epoch(self) -> int | None:
        return None if self._grants.newest is None else self._grants.newest.epoch

    @property
    def is_in_use(self) -> bool:
        return bool(self.owner or self.shared or not self.queue.is_empty or self.change)

    def waiting(self) -> list[Claimant]:
        """Return the waiting producers in the order in which they are promoted."""
        return [entry.claimant for entry in self.queue.entries]

    def named(self, name: str) -> Claimant | None:
        """Return the owner or the waiting producer with this name, also while a write of the grant is in progress."""
        owner = self.owner
        return owner if owner is not None and owner.producer_name == name else self.queue.named(name)

    # Inputs.

    def enter(self, claimant: Claimant, arrived_us: int = 0, tie_breaker: int = 0) -> list[Decision]:
        """Decide a client's request for a producer. `arrived_us`: time of the request, unless its name waited
        before the topic was unloaded. `tie_breaker`: random number; orders requests of the same time."""
        arrived_us = self._queued_before.pop(claimant.producer_name, arrived_us)
        priority = 0 if self.rules.first_come_first_served else claimant.queue_priority
        self._serial += 1
        entry = QueueEntry(-priority, arrived_us, tie_breaker, self._serial, claimant)
        if self.change is not None:
            self.queue.postpone(entry)
            return []
        return self._decide(entry)

    def left(self, claimant: Claimant) -> list[Decision]:
        """Remove a producer that closed or disconnected, and promote the next one if it was the last. No effect if the
        producer never entered or was evicted."""
        if claimant is self.owner:
            self.owner = None
        elif claimant in self.shared:
            del self.shared[claimant]
        else:
            self.queue.remove(claimant)
            return []
        return self._next()

    def hand_over(self, old: Claimant, new: Claimant) -> bool:
        """Let the owner keep the topic when it reconnects while its old connection still seems open; return whether
        `new` is that owner. After True the caller passes `new` to `enter` or `left`."""
        if old is not self.owner or self.change is not None or not self._grants.is_newest_owner(new):
            return False
        self.owner = new
        return True

    def written(self, grant: AccessGrant) -> list[Decision]:
        """Handle the success of the write that `WriteGrant` requested: `grant` is durable."""
        step = self._grants.written(grant)
        if step is GrantStep.FENCE:
            self._must_fence = False
        if step is not GrantStep.END:
            self._was_shared = False
        decisions: list[Decision] = []
        if self.owner is not None:
            decisions.append(Admit(self.owner, grant.epoch))
        postponed = self.queue.take_postponed()
        while self.change is None and (entry := next(postponed, None)) is not None:
            decisions += self._decide(entry)
        return decisions + self._next()

    def not_written(self, why: str) -> list[Decision]:
        """Handle a write of a grant that failed or has an unknown outcome. Refuse its claimant and the claims that
        arrived since, and promote the next waiting producer (PIP-440) unless `promotes_once`. The same key is written
        again before any producer publishes, so a grant that this write stored nevertheless has no effect (X7)."""
        step = self._grants.not_written()
        decisions: list[Decision] = [
            _refuse_not_stored(entry.claimant, why) for entry in self.queue.take_postponed()
        ]
        if self.owner is not None and step is not GrantStep.END:
            decisions.append(_refuse_not_stored(self.owner, why))
            self.owner = None
        elif step is GrantStep.FENCE and self.queue and not self.exclusive_region:
            decisions.append(
                _refuse_not_stored(self.queue.pop_first(), why)
            )  # the producer to be promoted next
        if self.queue and not self.exclusive_region and not self.rules.promotes_once:
            decisions += self._next()
        return decisions

    def grace_period_over(self) -> list[Decision]:
        """End the precedence of the producers that owned the topic or waited before it was loaded."""
        self.reserved_for = None
        self._queued_before = {}
        return self._next()

    def set_exclusive_region(self, region: str) -> list[Decision]:
        """Restrict publishing to the other region `region`; empty: lift the restriction. Producers here are evicted;
        waiting producers wait until clients may publish here (X6)."""
        self.exclusive_region = region
        if not region:
            return self._next()
        self._must_fence = self._grants.newest is not None or self.change is not None
        decisions: list[Decision] = [Evict(one) for one in self.shared]
        if self.owner is not None and self.change is None:
            decisions.append(Evict(self.owner))
        elif self.owner is not None:
            decisions.append(_refuse_outside_home(self.owner, region))
        self.owner, self.shared, self.reserved_for = None, {}, None
        return decisions + self._next()

    # Deciding.

    def _decide(self, entry: QueueEntry) -> list[Decision]:
        claimant = entry.claimant
        mode = claimant.access_mode
        if claimant is self.owner:
            return [Admit(claimant, self.epoch)]
        if self.exclusive_region and mode is not AccessMode.WAIT_FOR_EXCLUSIVE:
            return [_refuse_outside_home(claimant, self.exclusive_region)]
        is_new = not self._may_continue(claimant) and not self.is_stale(claimant)
        if is_new and claimant.producer_name == self.reserved_for:
            self.reserved_for = None  # a new instance of the program: the former one will not reconnect
            return self._decide(entry) + self._next()
        if mode is not AccessMode.SHARED and self.is_stale(claimant) and not self._may_wait_again(claimant):
            return [_refuse_fenced(claimant)]
        if self.exclusive_region:
            return [self._enqueue(entry)]
        if self._must_fence:
            return self._decide_after_fencing(entry)
        if mode is AccessMode.SHARED:
            return self._share(entry)
        if self._may_continue(claimant):
            return self._readmit(claimant)
        if mode is AccessMode.EXCLUSIVE_WITH_FENCING:
            return self._fence(claimant)
        if self.owner is None and not self.shared and not self.queue and self.reserved_for is None:
            return self._grant(claimant)
        if mode is AccessMode.WAIT_FOR_EXCLUSIVE:
            return [self._enqueue(entry)]
        return [Refuse(claimant, ServerError.ProducerFenced, f"the topic {self._unavailable_reason()}")]

    def _decide_after_fencing(self, entry: QueueEntry) -> list[Decision]:
        """Decide a claim while the former owner must be fenced. The topic has no producers then, so `_next` begins to
        write an epoch without an owner, or finds that none is needed."""
        decisions = self._next()
        if self.change is not None:
            self.queue.postpone(entry)
            return decisions
        assert not self._must_fence
        return decisions + self._decide(entry)

    def _share(self, entry: QueueEntry) -> list[Decision]:
        claimant = entry.claimant
        name = claimant.producer_name
        if name in self._fenced_names:
            if claimant.was_opened_before:
                return [_refuse_fenced(claimant)]
            del self._fenced_names[name]
        if self.owner is not None or self.queue or self.reserved_for is not None:
            return [Refuse(claimant, ServerError.ProducerBusy, f"the topic {self._unavailable_reason()}")]
        if not self._grants.is_certain or self._grants.has_owner:
            self.queue.postpone(entry)
            return [self._grants.write_no_owner()]
        self.shared[claimant] = None
        self._was_shared = True
        return [Admit(claimant, None)]

    def _fence(self, claimant: Claimant) -> list[Decision]:
        """Evict the topic's producers, refuse its waiting producers, and grant the topic to the claimant."""
        holders = list(self.shared) if self.owner is None else [self.owner]
        decisions: list[Decision] = [Evict(holder) for holder in holders]
        if not self.rules.forgets_fenced:
            for holder in self.shared:
                self._fenced_names[holder.producer_name] = None
                if len(self._fenced_names) > FENCED_MAX:
                    del self._fenced_names[next(iter(self._fenced_names))]
        decisions += [_refuse_fenced(self.queue.pop_first()) for _ in range(len(self.queue))]
        self.shared, self.reserved_for, self._queued_before = {}, None, {}
        return decisions + self._grant(claimant)

    def _readmit(self, claimant: Claimant) -> list[Decision]:
        """Readmit the former owner, whose epoch is still the newest and is kept (PIP-68)."""
        grant = self._grants.newest
        assert grant is not None
        self.owner, self.reserved_for = claimant, None
        if grant.end_entry is None and self._grants.is_certain:
            return [Admit(claimant, grant.epoch)]
        return [self._grants.write(GrantStep.RESUME, claimant.producer_name)]

    def _grant(self, claimant: Claimant) -> list[Decision]:
        self.owner = claimant
        return [self._grants.write(GrantStep.GRANT, claimant.producer_name)]

    def _next(self) -> list[Decision]:
        """If the topic has no producer and is not reserved: fence the former owner if required, else promote the next
        waiting producer that is not fenced (X4), else end the newest grant."""
        if self.change is not None or self.owner is not None or self.shared or self.reserved_for is not None:
            return []
        grant = self._grants.newest
        if self._must_fence and grant is not None and grant.owner != NO_OWNER:
            return [self._grants.write(GrantStep.FENCE, NO_OWNER)]
        self._must_fence = False
        decisions: list[Decision] = []
        while self.queue and not self.exclusive_region:
            claimant = self.queue.pop_first()
            if not self.is_stale(claimant) or self._may_wait_again(claimant):
                return decisions + self._grant(claimant)
            decisions.append(_refuse_fenced(claimant))
        if self._grants.has_owner:
            decisions.append(self._grants.write_no_owner())
        return decisions

    def _enqueue(self, entry: QueueEntry) -> Enqueue:
        self.queue.add(entry)
        return Enqueue(entry.claimant)

    # Validity of a claim.

    def is_stale(self, claimant: Claimant) -> bool:
        """Whether the claimant's epoch is older than the newest grant: it is fenced (PIP-68)."""
        return self._grants.is_stale(claimant)

    def _may_continue(self, claimant: Claimant) -> bool:
        """Whether the claimant is the owner of the newest grant and may continue in its epoch: the topic has no
        producer, and none may have published since."""
        if self.owner is not None or self.shared or not self._grants.is_newest_owner(claimant):
            return False
        if self._grants.may_have_stored_newer_epoch:
            return False
        return self._grants.has_owner or not (self._was_shared or self.queue)

    def _may_wait_again(self, claimant: Claimant) -> bool:
        return self.rules.forgets_fenced and claimant.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE

    def _unavailable_reason(self) -> str:
        if self.owner is not None:
            return f"has an exclusive producer, {self.owner.producer_name!r}"
        if self.reserved_for is not None:
            return f"is reserved for its exclusive producer {self.reserved_for!r}, which may reconnect"
        if self.queue:
            return "has producers that wait for exclusive access"
        return "has producers already"


def _refuse_fenced(claimant: Claimant) -> Refuse:
    sentence = f"producer {claimant.producer_name!r} was fenced by a newer exclusive producer"
    return Refuse(claimant, ServerError.ProducerFenced, sentence)


def _refuse_outside_home(claimant: Claimant, region: str) -> Refuse:
    sentence = f"clients may publish to this topic in region {region} only (exclusive_home)"
    return Refuse(claimant, ServerError.NotAllowedError, sentence)


def _refuse_not_stored(claimant: Claimant, why: str) -> Refuse:
    return Refuse(claimant, ServerError.PersistenceError, f"exclusive access could not be stored: {why}")
