"""DI1 and DI2 (docs/components/dispatch.md) under random events, against a plain model that scans everything.

At most one read is under way, as in the broker. Meanwhile consumers come, go, acknowledge positively and negatively,
transactions acknowledge and are aborted, other regions and seeks move cursors, and the log grows.
"""

from __future__ import annotations

import random

import pytest

from emulator.core.dispatch.types import ConsumerState, Read, SubscriptionType, Wake
from emulator.core.transactions.pending_acks import ClaimedAck, PendingAcks
from emulator.model.transaction_names import TxnId
from emulator.model.values import MessageChunk
from tests.core.dispatch.playbook import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    Candidate,
    dispatcher,
    found,
)

TXN = TxnId(0, 1)
UNACKED_MAX = 12
HASHES = (1, 12_000, 25_000, 40_000, 52_000, 65_535)
MANY = (SHARED, KEY_SHARED)
"""Types that serve several consumers."""
STEPS = 300


class Model:
    """The dispatcher, and a model of it with plain sets."""

    def __init__(self, type_: SubscriptionType, chance: random.Random) -> None:
        self.type, self.chance = type_, chance
        self.machine = dispatcher(unacked_messages_max=UNACKED_MAX)
        self.log: list[Candidate] = []
        self.now_ms = 0
        self.joined = 0
        self.under_way: Read | None = None
        self.held: dict[int, ConsumerState] = {}
        """Delivered and neither acknowledged nor returned."""
        self.acked: set[int] = set()
        """By consumers, updates and seeks."""
        self.pending_acks = self.machine.cursor.held = PendingAcks()
        self.in_transaction: set[int] = set()
        """Acknowledged by the open transaction."""
        self.grow()

    @property
    def end(self) -> int:
        return self.log[-1].entry_id + 1

    @property
    def ids(self) -> set[int]:
        """Return the ids of entries that consumers may see."""
        return {entry.entry_id for entry in self.log if not entry.hidden}

    # Events.

    def grow(self) -> None:
        at = self.end if self.log else 0
        for _ in range(self.chance.randrange(1, 8)):
            at += self.chance.choice((0, 0, 0, 1, 5))
            slot = self.chance.choice(HASHES)
            due_ms = self.now_ms + self.chance.randrange(400) if self.chance.random() < 0.3 else 0
            messages, hidden = self.chance.choice((1, 1, 3)), self.chance.random() < 0.2
            chunk = None
            if self.type is SHARED and not hidden and self.chance.random() < 0.3:
                chunk = MessageChunk(self.chance.choice("ab"), self.chance.random() < 0.3)
            self.log.append(Candidate(at, messages, hidden, slot, due_ms, chunk))
            at += 1

    def join(self) -> None:
        if len(self.machine.strategy.consumers) >= (1 if self.type is EXCLUSIVE else 3):
            return
        self.joined += 1
        consumer = ConsumerState(str(self.joined), self.chance.randrange(2), self.chance.randrange(6))
        before = self.machine.strategy.active
        self.machine.joined(consumer, self.type, self.now_ms)
        if self.machine.strategy.active is not before:
            self.held.clear()

    def leave(self) -> None:
        if self.machine.strategy.consumers:
            gone = self.chance.choice(self.machine.strategy.consumers)
            before = self.machine.strategy.active
            self.machine.strategy.left(gone, self.now_ms)
            if self.type in MANY:
                self.held = {entry_id: one for entry_id, one in self.held.items() if one is not gone}
            elif self.machine.strategy.active is not before:
                self.held.clear()

    def flow(self) -> None:
        if self.machine.strategy.consumers:
            self.machine.strategy.flow(
                self.chance.choice(self.machine.strategy.consumers), self.chance.randrange(1, 6)
            )

    def block(self) -> None:
        if self.machine.strategy.consumers:
            consumer = self.chance.choice(self.machine.strategy.consumers)
            self.machine.strategy.blocked(consumer, blocked=not consumer.blocked)

    def acknowledge(self) -> None:
        """Mostly for an entry that a consumer holds; sometimes for another consumer's, or one that waits for
        redelivery."""
        if self.machine.strategy.consumers and self.log:
            who = self.chance.choice(self.machine.strategy.consumers)
            entry_id = self.chance.choice(sorted(self.held) or [self.chance.choice(self.log).entry_id])
            self.machine.acknowledge(who, [(entry_id, None)], self.end)
            self._count(entry_id, entry_id)

    def acknowledge_run(self) -> None:
        """For entries that follow each other, some of which no consumer holds, or which are beyond the end."""
        if self.machine.strategy.consumers and self.log:
            who = self.chance.choice(self.machine.strategy.consumers)
            first = self.chance.choice(sorted(self.held) or [self.chance.choice(self.log).entry_id])
            last = first + self.chance.randrange(4)
            self.machine.acknowledge_runs(who, [(first, last)], self.end)
            self._count(first, min(last, self.end - 1))

    def acknowledge_in_transaction(self) -> None:
        if self.type in MANY and self.held:
            entry_id = self.chance.choice(sorted(self.held))
            consumer = self.held.pop(entry_id)
            self.pending_acks.acknowledge(TXN, [ClaimedAck(entry_id)], self.machine.cursor)
            self.in_transaction.add(entry_id)
            self.machine.held(consumer, [entry_id])

    def abort(self) -> None:
        held = self.pending_acks.end(TXN)
        self.in_transaction.clear()
        if held is not None:
            self.machine.strategy.released([*held.entries])

    def acknowledge_cumulative(self) -> None:
        if self.type not in MANY and self.held:
            entry_id = self.chance.choice(sorted(self.held))
            self.machine.acknowledge_cumulative([(entry_id, None)], self.end)
            self._count(0, entry_id)

    def update(self) -> None:
        entry_id = self.chance.randrange(self.end)
        self.machine.cursor.ack_cumulative_except(entry_id, [])
        self.machine.strategy.moved()
        self._count(0, entry_id)

    def _count(self, first: int, last: int) -> None:
        self.acked.update(range(first, last + 1))
        self.held = {entry_id: one for entry_id, one in self.held.items() if not first <= entry_id <= last}

    def refuse(self) -> None:
        if self.type not in MANY and self.machine.strategy.active is not None:
            self.machine.strategy.returned(self.machine.strategy.active, None)
            self.held.clear()
        elif self.held:
            entry_id = self.chance.choice(sorted(self.held))
            self.machine.strategy.returned(self.held.pop(entry_id), [entry_id])

    def seek(self) -> None:
        to = self.chance.randrange(self.end + 1)
        self.machine.cursor.seek(to)
        self.machine.strategy.rewound()
        self.acked = set(range(to))
        self.held.clear()
        self.pending_acks.clear()
        self.in_transaction.clear()

    def wait(self) -> None:
        self.now_ms += self.chance.randrange(60)

    # The shell.

    def ask(self) -> None:
        if self.under_way is None:
            wish = self.machine.strategy.next(self.end, self.now_ms, self.now_ms)
            self.under_way = wish if isinstance(wish, Read) else None

    def answer(self) -> None:
        read, self.under_way = self.under_way, None
        if read is None:
            return
        candidates = found(read, self.log)
        if self.chance.random() < 0.3:
            candidates = candidates[: self.chance.randrange(1, 4)]  # The bytes that one read may return.
        for delivery in self.machine.strategy.offer(read, candidates, self.now_ms):
            entry_id = candidates[delivery.candidate_index].entry_id
            assert entry_id not in self.held, "delivered to two at once"
            assert entry_id not in self.acked | self.in_transaction, "delivered although it was acknowledged"
            if self.type in MANY:
                assert candidates[delivery.candidate_index].due_ms <= self.now_ms, "delivered early"
            if self.type is KEY_SHARED and not candidates[delivery.candidate_index].due_ms:
                self._check_order(candidates[delivery.candidate_index], delivery.consumer)
            self.held[entry_id] = delivery.consumer

    def _check_order(self, entry: Candidate, consumer: ConsumerState) -> None:
        hashes = {one.entry_id: one.key_hash for one in self.log}
        holders = {one for held, one in self.held.items() if hashes[held] == entry.key_hash}
        assert holders <= {consumer}, "a key at two consumers"
        assert entry.entry_id == min(self._ready_ids(entry.key_hash, due_ms=0)), "a key out of order"

    def _ready_ids(self, key_hash: int, due_ms: int) -> list[int]:
        """Neither acknowledged nor held, of one key, due by then."""
        return [
            one.entry_id
            for one in self.log
            if one.key_hash == key_hash
            and one.entry_id in self.ids - self.acked - set(self.held) - self.in_transaction
            and one.due_ms <= due_ms
        ]

    @property
    def due_ids(self) -> set[int]:
        if self.type not in MANY:
            return self.ids
        return {entry.entry_id for entry in self.log if entry.due_ms <= self.now_ms} & self.ids

    # Invariants after every event.

    def check(self) -> None:
        self._check_books()
        wish = self.machine.strategy.next(self.end, self.now_ms, self.now_ms)
        assert wish == self.machine.strategy.next(self.end, self.now_ms, self.now_ms), (
            "asking has no side effect"
        )
        if self._could_go_on():
            assert isinstance(wish, (Read, Wake)), "stalled"
            assert isinstance(wish, Read) or self.type is FAILOVER

    def _check_books(self) -> None:
        cursor, consumers = self.machine.cursor, self.machine.strategy.consumers
        strategy = self.machine.strategy
        replay = {*strategy.replay, *strategy.delayed._waiting} if self.type in MANY and consumers else set()
        if self.type in MANY and consumers:
            assert strategy.delayed.count == len(strategy.delayed._waiting)
            assert not set(strategy.replay) & set(strategy.delayed._waiting), "R1"
        if self.type is SHARED and consumers:
            waiting = list(strategy.chunks.waiting())
            assert strategy.chunks.waiting_count == len(waiting)
            replay |= set(waiting)
        if self.type is KEY_SHARED and consumers:
            places = (strategy._aside_for_consumer, strategy._aside_for_slot)
            aside = [entry_id for place in places for ids in place.values() for entry_id in ids]
            assert len(aside) == len({*aside} - {*strategy.replay}), "R1"
            assert strategy._aside_count == len(aside)
            waited_for = {one: slot for slot, ids in strategy._waiting.items() for one in ids}
            assert strategy._slot_of_waiting == waited_for
            replay |= set(aside)
        for consumer in consumers:
            assert consumer.pending.messages == sum(consumer.pending.by_entry.values())
        for entry_id in range(self.end):
            holders = [one for one in consumers if entry_id in one.pending.by_entry]
            places = len(holders) + (entry_id in replay) + cursor.is_acked_or_held(entry_id)
            if self.type in MANY:
                assert places == (
                    entry_id < self.machine.strategy.read_entry_id or cursor.is_acked_or_held(entry_id)
                ), "R1"
                assert holders == ([self.held[entry_id]] if entry_id in self.held else [])
            if entry_id in self.ids:
                assert cursor.is_acked(entry_id) == (entry_id in self.acked)
                if entry_id < self.machine.strategy.read_entry_id and not places:
                    assert entry_id in self.held, "R1"

    def _some_key_could_go_on(self) -> bool:
        hashes = {one.entry_id: one.key_hash for one in self.log}
        shares = self.machine.strategy.slot_owners
        for key_hash in HASHES:
            owner = shares.owner_of(shares.slot_of(key_hash))
            holders = {one for held, one in self.held.items() if hashes[held] == key_hash}
            if (
                owner is not None
                and owner.can_receive
                and owner.unacked_messages < UNACKED_MAX
                and holders <= {owner}
                and self._ready_ids(key_hash, self.now_ms)
            ):
                return True
        return False

    def _could_go_on(self) -> bool:
        """Return whether a consumer has permits for an entry that is ready for it."""
        if self.type is KEY_SHARED:
            return bool(self.machine.strategy.consumers) and self._some_key_could_go_on()
        if self.type is SHARED:
            able = [
                one
                for one in self.machine.strategy.consumers
                if one.can_receive and one.unacked_messages < UNACKED_MAX
            ]
        else:
            able = [one for one in (self.machine.strategy.active,) if one is not None and one.can_receive]
        waiting = set(self.machine.strategy.chunks.waiting()) if self.type is SHARED and able else set()
        return bool(able and self.due_ids - self.acked - set(self.held) - self.in_transaction - waiting)


@pytest.mark.parametrize("type_", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
@pytest.mark.parametrize("seed", range(20))
def test_every_id_is_in_one_place_and_nothing_stalls(type_, seed):
    chance = random.Random(seed)
    model = Model(type_, chance)
    often = [
        model.join,
        model.flow,
        model.acknowledge,
        model.acknowledge_run,
        model.acknowledge_in_transaction,
        model.refuse,
        model.wait,
        model.ask,
        model.answer,
    ]
    seldom = [
        model.leave,
        model.block,
        model.acknowledge_cumulative,
        model.abort,
        model.update,
        model.seek,
        model.grow,
    ]
    for _ in range(STEPS):
        chance.choice(often if chance.random() < 0.8 else seldom)()
        model.check()
    model.abort()
    while model.machine.strategy.consumers:
        model.leave()
    last = ConsumerState("last", permits=10**6)
    model.machine.joined(last, model.type, model.now_ms)
    model.under_way, model.now_ms = None, 10**9
    while model.ids - model.acked:
        model.ask()
        model.answer()
        while model.held:
            model.acknowledge()
        model.check()
    assert model.machine.cursor.mark_delete >= max(model.ids)
