"""Who may publish to a topic (PIP-68), and who is next when its owner fails (PIP-440).

One machine a topic and region. A *claimant* is a client's producer: one that is connected, or waits. Replicators of
other regions are none: they never ask (docs/components/access.md, X5).

               ┌── last one left ── SHARED (no owner; exclusive claims wait or are refused)
               ▼                      ▲
             FREE ─── shared claim ───┘
              │ exclusive claim
              ▼
           granting ── durable ──▶ OWNED ── owner left ──▶ granting, to whom waits first; nobody: ending ──▶ FREE
              ▲                      ▲
              └─ patience is over ─ AWAITED, after a restart ── the owner is back

A *grant* says that one producer owns the topic: its epoch, its name, the log's end when it began and when it ended. It
is durable before its owner hears of it (X1), and nothing else is decided while one is being written: claims that come
meanwhile are decided afterwards, in their order. What is returned from each input are decisions, to be carried out in
their order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from typing import Final

from emulator.core.access.types import (
    AS_PROPOSED,
    NOBODY,
    Admit,
    Change,
    Claimant,
    Decision,
    Evict,
    Grant,
    Habits,
    Place,
    Refuse,
    Step,
    Wait,
    Write,
)
from emulator.errors import ServerError
from emulator.model.values import AccessMode

LOSERS_MAX: Final = 1_000
"""So many names of shared producers that were fenced off are remembered."""
_SHARED: Final = AccessMode.SHARED


class Access:
    """Of one topic, for as long as it is in memory."""

    def __init__(
        self,
        newest: Grant | None = None,
        *,
        patient: bool = False,
        line_before: Mapping[str, int] | None = None,
        habits: Habits = AS_PROPOSED,
    ) -> None:
        """`newest`: the newest grant that is stored. `patient`: whoever held it when the topic left memory may take it
        back, until `patience_over`. `line_before`: who waited then, name -> when it came (us)."""
        self.grant = newest
        self.habits = habits
        self.owner: Claimant | None = None
        """Holds the topic, or is being given it."""
        self.shared: dict[Claimant, None] = {}
        self.line: list[Place] = []
        holds = newest is not None and newest.end_entry is None
        self.awaited = newest.owner if patient and holds and newest is not None else None
        """Whoever held the topic before it was loaded, for as long as its place is kept."""
        self.change: Change | None = None
        """Being written."""
        self.home = ""
        """The only region in which clients may publish, when that is another one."""
        self._owes_bar = False
        """Clients published elsewhere since: the newest grant has to be barred before anybody is admitted here."""
        self._doubt: Step | None = None
        """Failed, and may be stored all the same: it must be undone before anybody acts on what was before."""
        self._later: deque[Place] = deque()
        """Came while something was being written. Some may have left since."""
        self._places: dict[Claimant, Place] = {}
        """Of all that are in `line` or `_later`."""
        self._by_name: dict[str, Claimant] = {}
        """The run directory, as an option."""
        self.line_changes = 0
        """How often somebody joined the line or left it."""
        self._line_before = dict(line_before or {})
        self._losers: dict[str, None] = {}
        self._was_shared = not holds
        """Others published since the newest grant ended, or may have."""
        self._serial = 0

    @property
    def epoch(self) -> int | None:
        return None if self.grant is None else self.grant.epoch

    @property
    def is_in_use(self) -> bool:
        return bool(self.owner or self.shared or self._places or self.change)

    def waiting(self) -> list[Claimant]:
        """In the order in which they are promoted."""
        return [place.claimant for place in self.line]

    def named(self, name: str) -> Claimant | None:
        """Whoever waits, or is being admitted, under a name."""
        owner = self.owner
        return owner if owner is not None and owner.producer_name == name else self._by_name.get(name)

    # What comes in.

    def enter(self, claimant: Claimant, arrived_us: int = 0, draw: int = 0) -> list[Decision]:
        """A client asks for a producer. `arrived_us`: when; `draw`: what decides between two that came at once."""
        arrived_us = self._line_before.pop(claimant.producer_name, arrived_us)
        priority = 0 if self.habits.first_come_first_served else claimant.queue_priority
        self._serial += 1
        place = Place(-priority, arrived_us, draw, self._serial, claimant)
        if self.change is not None:
            self._come_later(place)
            return []
        return self._decide(place)

    def left(self, claimant: Claimant) -> list[Decision]:
        """It closed, or its connection is gone. Harmless for one that was never in, or was evicted."""
        if claimant is self.owner:
            self.owner = None
        elif claimant in self.shared:
            del self.shared[claimant]
        else:
            self._forget(claimant)
            return []
        return self._next()

    def hand_over(self, old: Claimant, new: Claimant) -> bool:
        """The owner is back on a new connection while the old one still seems to be there: it keeps what it has. The
        new one enters next, or leaves."""
        if old is not self.owner or self.change is not None or not self._was_granted_to(new):
            return False
        self.owner = new
        return True

    def written(self, grant: Grant) -> list[Decision]:
        """What `Write` asked for is durable."""
        assert self.change is not None
        step, self.change = self.change.step, None
        self.grant, self._doubt = grant, None
        if step is Step.BAR:
            self._owes_bar = False
        if step is not Step.END:
            self._was_shared = False
        decisions: list[Decision] = []
        if self.owner is not None:
            decisions.append(Admit(self.owner, grant.epoch))
        while self._later and self.change is None:
            place = self._later.popleft()
            if self._forget(place.claimant):
                decisions += self._decide(place)
        return decisions + self._next()

    def not_written(self, why: str) -> list[Decision]:
        """It is not, or nobody knows. Whoever it was for is told, and the next one is tried (PIP-440): the same row is
        written again before anybody publishes, so what may have been stored is never anybody's."""
        assert self.change is not None
        step, self.change = self.change.step, None
        if not self._may_have_newer_epoch():
            self._doubt = step
        waited = [place.claimant for place in self._later if self._forget(place.claimant)]
        decisions: list[Decision] = [self._not_stored(claimant, why) for claimant in waited]
        self._later.clear()
        if self.owner is not None and step is not Step.END:
            decisions.append(self._not_stored(self.owner, why))
            self.owner = None
        elif step is Step.BAR and self.line and not self.home:
            decisions.append(self._not_stored(self._pop_first(), why))  # it was to be promoted next
        if self.line and not self.home and not self.habits.promotes_once:
            decisions += self._next()
        return decisions

    def patience_over(self) -> list[Decision]:
        """Places of before the restart are kept no longer."""
        self.awaited = None
        self._line_before = {}
        return self._next()

    def move_home(self, home: str) -> list[Decision]:
        """From now on clients publish in region `home` only; empty: here. Whoever publishes here is thrown out; those
        who wait go on waiting, for the day on which it is this region (X6)."""
        self.home = home
        if not home:
            return self._next()
        self._owes_bar = self.grant is not None or self.change is not None
        decisions: list[Decision] = [Evict(one) for one in self.shared]
        if self.owner is not None and self.change is None:
            decisions.append(Evict(self.owner))
        elif self.owner is not None:
            decisions.append(self._elsewhere(self.owner))
        self.owner, self.shared, self.awaited = None, {}, None
        return decisions + self._next()

    # Deciding.

    def _decide(self, place: Place) -> list[Decision]:
        claimant = place.claimant
        mode = claimant.access_mode
        if claimant is self.owner:
            return [Admit(claimant, self.epoch)]
        if self.home and mode is not AccessMode.WAIT_FOR_EXCLUSIVE:
            return [self._elsewhere(claimant)]
        is_new = not self._returns(claimant) and not self.is_stale(claimant)
        if is_new and claimant.producer_name == self.awaited:
            self.awaited = None  # a new instance: the one that is awaited will not come
            return self._decide(place) + self._next()
        if mode is not _SHARED and self.is_stale(claimant) and not self._may_wait_again(claimant):
            return [self._fenced(claimant)]
        if self.home:
            return [self._stand_in_line(place)]
        if self._owes_bar:
            return self._decide_behind_bar(place)
        if mode is _SHARED:
            return self._share(place)
        if self._returns(claimant):
            return self._take_back(claimant)
        if mode is AccessMode.EXCLUSIVE_WITH_FENCING:
            return self._fence(claimant)
        if self.owner is None and not self.shared and not self.line and self.awaited is None:
            return self._give(claimant)
        if mode is AccessMode.WAIT_FOR_EXCLUSIVE:
            return [self._stand_in_line(place)]
        return [Refuse(claimant, ServerError.ProducerFenced, f"the topic {self._held()}")]

    def _decide_behind_bar(self, place: Place) -> list[Decision]:
        """Nobody has the topic while a bar is owed, so the next step writes it, or finds that none is needed."""
        decisions = self._next()
        if self.change is not None:
            self._come_later(place)
            return decisions
        assert not self._owes_bar
        return decisions + self._decide(place)

    def _share(self, place: Place) -> list[Decision]:
        claimant = place.claimant
        name = claimant.producer_name
        if name in self._losers:
            if claimant.was_opened_before:
                return [self._fenced(claimant)]
            del self._losers[name]
        if self.owner is not None or self.line or self.awaited is not None:
            return [Refuse(claimant, ServerError.ProducerBusy, f"the topic {self._held()}")]
        if self._doubt is not None or (self.grant is not None and self.grant.end_entry is None):
            self._come_later(place)
            return [self._write_nobody()]
        self.shared[claimant] = None
        self._was_shared = True
        return [Admit(claimant, None)]

    def _fence(self, claimant: Claimant) -> list[Decision]:
        """Throw out whoever holds the topic or waits for it."""
        holders = list(self.shared) if self.owner is None else [self.owner]
        decisions: list[Decision] = [Evict(holder) for holder in holders]
        if not self.habits.forgets_losers:
            for holder in self.shared:
                self._remember_loser(holder.producer_name)
        decisions += [self._fenced(self._pop_first()) for _ in range(len(self.line))]
        self.shared, self.awaited, self._line_before = {}, None, {}
        return decisions + self._give(claimant)

    def _take_back(self, claimant: Claimant) -> list[Decision]:
        """The former owner is the first to come back: its epoch is still the newest, and stays (PIP-68)."""
        assert self.grant is not None
        self.owner, self.awaited = claimant, None
        if self.grant.end_entry is None and self._doubt is None:
            return [Admit(claimant, self.grant.epoch)]
        return [self._write(Step.RESUME, claimant.producer_name)]

    def _give(self, claimant: Claimant) -> list[Decision]:
        self.owner = claimant
        return [self._write(Step.GRANT, claimant.producer_name)]

    def _next(self) -> list[Decision]:
        """Nobody may be left waiting for a topic that nobody has (X4)."""
        if self.change is not None or self.owner is not None or self.shared or self.awaited is not None:
            return []
        if self._owes_bar and self.grant is not None and self.grant.owner != NOBODY:
            return [self._write(Step.BAR, NOBODY)]
        self._owes_bar = False
        decisions: list[Decision] = []
        while self.line and not self.home:
            claimant = self._pop_first()
            if not self.is_stale(claimant) or self._may_wait_again(claimant):
                return decisions + self._give(claimant)
            decisions.append(self._fenced(claimant))
        if self.grant is not None and self.grant.end_entry is None:
            decisions.append(self._write_nobody())
        return decisions

    def _write_nobody(self) -> Write:
        """Make it true, and durable, that nobody owns the topic."""
        if self.grant is None or self._may_have_newer_epoch():
            return self._write(Step.BAR, NOBODY)
        return self._write(Step.END, self.grant.owner)

    def _may_have_newer_epoch(self) -> bool:
        """Somebody's grant may be stored who was told that it is not."""
        return self._doubt in (Step.GRANT, Step.BAR)

    def _write(self, step: Step, owner: str) -> Write:
        assert self.change is None
        self.change = Change(step, self.grant, owner)
        return Write(self.change)

    # Who waits.

    def _stand_in_line(self, place: Place) -> Wait:
        insort(self.line, place)
        self.line_changes += 1
        self._remember(place)
        return Wait(place.claimant)

    def _come_later(self, place: Place) -> None:
        """In the order in which they came: one that came back to wait for a write was the first of them."""
        if self._later and place.serial < self._later[0].serial:
            self._later.appendleft(place)
        else:
            self._later.append(place)
        self._remember(place)

    def _remember(self, place: Place) -> None:
        self._places[place.claimant] = place
        self._by_name[place.claimant.producer_name] = place.claimant

    def _pop_first(self) -> Claimant:
        claimant = self.line[0].claimant
        self._forget(claimant)
        return claimant

    def _forget(self, claimant: Claimant) -> bool:
        """Whether it was there. Ten thousand that wait may leave at once: none of them is searched for."""
        place = self._places.pop(claimant, None)
        if place is None:
            return False
        if self._by_name.get(claimant.producer_name) is claimant:
            del self._by_name[claimant.producer_name]
        at = bisect_left(self.line, place)
        if at < len(self.line) and self.line[at] is place:
            del self.line[at]
            self.line_changes += 1
        return True

    # What a claim is worth.

    def is_stale(self, claimant: Claimant) -> bool:
        """It had the topic, and somebody else had it since: fenced for good (PIP-68)."""
        said = claimant.topic_epoch
        return said is not None and self.grant is not None and said < self.grant.epoch

    def _was_granted_to(self, claimant: Claimant) -> bool:
        """An epoch above the newest was never granted, and one of another owner is not this one's: who says so comes as
        if for the first time."""
        grant = self.grant
        return (
            grant is not None
            and claimant.access_mode is not _SHARED
            and claimant.topic_epoch == grant.epoch
            and claimant.producer_name == grant.owner
        )

    def _returns(self, claimant: Claimant) -> bool:
        if self.owner is not None or self.shared or not self._was_granted_to(claimant):
            return False
        if self._may_have_newer_epoch():
            return False
        assert self.grant is not None
        return self.grant.end_entry is None or not (self._was_shared or self.line)

    def _may_wait_again(self, claimant: Claimant) -> bool:
        return self.habits.forgets_losers and claimant.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE

    def _remember_loser(self, name: str) -> None:
        self._losers[name] = None
        if len(self._losers) > LOSERS_MAX:
            del self._losers[next(iter(self._losers))]

    # Sentences.

    def _held(self) -> str:
        if self.owner is not None:
            return f"has an exclusive producer, {self.owner.producer_name!r}"
        if self.awaited is not None:
            return f"is reserved for its exclusive producer {self.awaited!r}, which may reconnect"
        if self.line:
            return "has producers that wait for exclusive access"
        return "has producers already"

    def _fenced(self, claimant: Claimant) -> Refuse:
        sentence = f"producer {claimant.producer_name!r} was fenced by a newer exclusive producer"
        return Refuse(claimant, ServerError.ProducerFenced, sentence)

    def _elsewhere(self, claimant: Claimant) -> Refuse:
        sentence = f"clients may publish to this topic in region {self.home} only (exclusive_home)"
        return Refuse(claimant, ServerError.NotAllowedError, sentence)

    def _not_stored(self, claimant: Claimant, why: str) -> Refuse:
        return Refuse(claimant, ServerError.PersistenceError, f"exclusive access could not be stored: {why}")
