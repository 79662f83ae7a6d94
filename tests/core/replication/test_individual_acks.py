"""Claims of acknowledged entries, rule by rule: what a region sends, and what another one applies."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.replication.ack_claims import AckClaim, StoredClaim
from emulator.core.replication.individual_acks import (
    IndividualAcks,
    ReplicatedOrigins,
    SenderLog,
    apply_claims,
    apply_stored_claims,
    claim_beyond,
    joined,
)
from emulator.core.replication.origins import Origin, OriginLedger, OriginSet
from emulator.model.markers import SUBSCRIPTION_UPDATE, AckedEntries
from emulator.model.values import Position

A, B, C = OriginLedger("a", 5), OriginLedger("b", 7), OriginLedger("c", 9)


@dataclass
class Facts:
    replicated_from: str | None = None
    source_position: Position | None = None
    replicate_to: tuple[str, ...] = ()
    marker_type: int | None = None


@dataclass
class Entry:
    entry_id: int
    origin: Origin | None = None
    """None: published in the region itself."""
    messages: int = 1
    hidden: bool = False
    replicate_to: tuple[str, ...] = ()
    info: Facts = field(init=False)

    def __post_init__(self) -> None:
        region = None if self.origin is None else self.origin.region
        position = None if self.origin is None else self.origin.position
        self.info = Facts(region, position, self.replicate_to)


class Log:
    """The log of one region: messages by origin, and markers."""

    def __init__(self, own: OriginLedger) -> None:
        self.own = own
        self.entries: list[Entry] = []
        self.replicated = ReplicatedOrigins(0)
        self.hidden = IdSet()

    def publish(self, messages: int = 1) -> Origin:
        self.entries.append(Entry(len(self.entries), messages=messages))
        return Origin(*self.own, len(self.entries) - 1)

    def receive(self, origin: Origin, messages: int = 1, replicate_to: tuple[str, ...] = ()) -> None:
        entry = Entry(len(self.entries), origin, messages, replicate_to=replicate_to)
        self.entries.append(entry)
        self.replicated.stored(entry.entry_id, entry.info)

    def mark(self) -> None:
        self.hidden.add(len(self.entries))
        self.entries.append(Entry(len(self.entries), hidden=True))

    def origin(self, entry_id: int) -> Origin | None:
        entry = self.entries[entry_id]
        return None if entry.hidden else entry.origin or Origin(*self.own, entry_id)

    @property
    def sender(self) -> SenderLog:
        return SenderLog(self.own, 0, self.hidden, self.replicated)

    def newest(self, region: str, ledger: int) -> int:
        ids = [
            origin.entry
            for entry_id in range(len(self.entries))
            if (origin := self.origin(entry_id)) is not None and origin[:2] == (region, ledger)
        ]
        return max(ids, default=-1)


def log_of(own: OriginLedger, text: str) -> Log:
    """A log, one letter per entry: `a`, `b`, `c` is a message of that region, `m` a marker."""
    log, others = Log(own), {"a": A, "b": B, "c": C}
    for at, letter in enumerate(text):
        if letter == "m":
            log.mark()
        elif letter == own.region:
            log.publish()
        else:
            log.receive(Origin(*others[letter], at))
    return log


def acked(cursor: Cursor, *entry_ids: int) -> Cursor:
    for entry_id in entry_ids:
        cursor.ack(entry_id)
    return cursor


def claim_of(*origins: Origin) -> AckClaim:
    return AckClaim(OriginSet.of(origins))


# Sending.


def test_a_claim_has_what_is_acknowledged_beyond_the_base():
    cursor = acked(Cursor(-1), 0, 1, 2, 4, 5)
    claim = claim_beyond(1, cursor, log_of(A, "aaaaaaa").sender)
    assert claim.entries.as_json() == {"a:5": [[2, 2], [4, 5]]}


def test_markers_and_replicated_entries_do_not_split_ranges_of_own_entries():
    cursor = acked(Cursor(-1), 0, 2, 4)
    log = log_of(A, "amabam").sender
    claim = claim_beyond(-1, cursor, log)
    assert claim.entries.as_json() == {"a:5": [[0, 0], [2, 2], [4, 4]]}
    assert joined(claim, log).entries.as_json() == {"a:5": [[0, 5]]}, "3 is an unacknowledged message of b"


def test_gaps_between_messages_of_another_region_are_not_claimed():
    """A message of b between two that came here may have gone to c only."""
    cursor = acked(Cursor(-1), 0, 1, 2)
    log = Log(A)
    for entry in (3, 4, 9):
        log.receive(Origin(*B, entry))
    assert claim_beyond(-1, cursor, log.sender).entries.as_json() == {"b:7": [[3, 4], [9, 9]]}


def test_an_entry_without_a_known_origin_is_not_claimed():
    """Entries of a real Pulsar region may lack their source position."""
    log = Log(A)
    log.entries.append(Entry(0))
    log.replicated.stored(0, Facts("pulsar"))
    assert not claim_beyond(-1, acked(Cursor(-1), 0), log.sender)


def test_a_marker_of_another_region_is_not_claimed():
    """Otherwise each claim would be a reason for the next one."""
    log = Log(A)
    log.mark()
    log.replicated.stored(0, Facts("b", Position(7, 3), marker_type=SUBSCRIPTION_UPDATE))
    assert not claim_beyond(-1, acked(Cursor(-1), 0), log.sender)


def test_a_partly_acknowledged_batch_is_claimed_with_its_open_messages():
    cursor, log = Cursor(-1), Log(A)
    log.publish(4)
    log.receive(Origin(*B, 3), 4)
    cursor.keep_open(0, 0b0110, 4)
    cursor.keep_open(1, 0b1000, 4)
    claim = claim_beyond(-1, cursor, log.sender)
    assert claim.batches == {Origin(*A, 0): 0b0110, Origin(*B, 3): 0b1000}
    assert AckClaim.from_marker(claim.to_marker(), lambda region, ledger: 9, 10) == claim


def test_too_large_claims_lose_batches_first_and_then_the_smallest_ranges():
    entries = OriginSet()
    for first, last in ((0, 9), (20, 20), (30, 34)):
        entries.add_range("a", 5, first, last)
    claim = AckClaim(entries, {Origin(*A, 50): 1, Origin(*A, 60): 1})
    assert claim.size == 5
    assert claim.limited(4).batches == {Origin(*A, 50): 1}
    assert claim.limited(2).entries.as_json() == {"a:5": [[0, 9], [30, 34]]}
    assert not claim.limited(0)


def test_only_new_acknowledgements_are_sent_and_evictions_are_counted():
    log, cursor, acks = log_of(A, "aaaaaaaa"), Cursor(-1), IndividualAcks("s")
    acked(cursor, 1, 3, 5)
    update = acks.next_update(cursor, log.sender, 2)
    assert update is not None
    assert update.individual == (AckedEntries("a", 5, ((1, 1), (3, 3))),)
    assert acks.evicted == 1
    assert acks.next_update(cursor, log.sender, 2) is None
    acks.repeat()
    assert acks.next_update(cursor, log.sender, 2) is not None
    acks.heard("b", claim_of(Origin(*A, 6)))
    assert acks.next_update(acked(cursor, 6), log.sender, 9) is None
    assert acks.next_update(acked(cursor, 7), log.sender, 9) is not None


def test_what_another_region_claims_is_not_sent_back():
    log, cursor, acks = log_of(A, "aaab"), acked(Cursor(-1), 1), IndividualAcks("s")
    assert acks.next_update(cursor, log.sender, 9) is not None
    claim = claim_of(Origin(*A, 2), Origin(*B, 3))
    acks.heard("b", claim)
    assert apply_claims(cursor, log.entries, {"b": claim}, A)
    assert acks.next_update(cursor, log.sender, 9) is None


def test_a_cursor_that_only_follows_other_regions_sends_nothing():
    log, cursor = log_of(A, "aaa"), Cursor(-1)
    apply_claims(cursor, log.entries, {"b": claim_of(Origin(*A, 0), Origin(*A, 2))}, A)
    assert cursor.is_acked(2)
    assert IndividualAcks("s").next_update(cursor, log.sender, 9) is None


def test_the_base_moves_one_claim_after_the_positions():
    log, cursor, acks = log_of(A, "aaaaaaaa"), acked(Cursor(-1), 0, 1, 2), IndividualAcks("s")
    acks.positions_sent((("b", Position(7, 3)),), base=1)
    first = acks.next_update(cursor, log.sender, 9)
    assert first is not None
    assert first.individual[0].ranges == ((0, 2),)
    assert first.positions == (("b", Position(7, 3)),)
    second = acks.next_update(acked(cursor, 4), log.sender, 9)
    assert second is not None
    assert second.individual[0].ranges == ((2, 2), (4, 4))
    acks.positions_sent((("b", Position(7, 4)),), base=None)
    third = acks.next_update(acked(cursor, 6), log.sender, 9)
    assert third is not None
    assert third.individual[0].ranges == ((2, 2), (4, 4), (6, 6))


def test_without_positions_an_incomplete_claim_is_not_sent():
    """It would create the subscription in other regions, with a backlog that was consumed here."""
    log, acks = log_of(A, "aaaaaaaa"), IndividualAcks("s")
    log.replicated.forget_below(2)
    cursor = acked(Cursor(-1), 5)
    assert acks.next_update(cursor, log.sender, 9) is None
    acks.positions_sent((("b", Position(7, 3)),), base=None)
    assert acks.next_update(cursor, log.sender, 9) is not None


def test_what_a_seek_or_the_broker_skipped_is_not_claimed():
    log, acks, cursor = log_of(A, "aaaaaaaa"), IndividualAcks("s"), Cursor(-1)
    acks.positions_sent((("b", Position(7, 3)),), base=0)
    cursor.seek(4)
    acks.cursor_reset(cursor.mark_delete)
    update = acks.next_update(acked(cursor, 4), log.sender, 9)
    assert update is not None
    assert update.individual[0].ranges == ((4, 4),)
    cursor.ack_range(5, 6)
    acks.skipped_to(cursor.mark_delete)
    update = acks.next_update(acked(cursor, 7), log.sender, 9)
    assert update is not None
    assert update.individual[0].ranges == ((7, 7),)


# The origins of replicated entries.


def test_origins_are_forgotten_and_read_again():
    origins = ReplicatedOrigins(10)
    for at in range(10, 20):
        origins.stored(at, Facts("b", Position(7, 2 * at)))
    origins.prepend(5, [(at, Facts("b", Position(7, 2 * at))) for at in range(5, 10)])
    assert [entry_id for _, entry_id, _ in origins.items(0, 99)] == list(range(5, 20))
    assert origins.of(7) == Origin(*B, 14)
    origins.forget_below(18)
    assert (origins.first, len(origins), origins.of(17)) == (18, 2, None)


def test_the_number_of_remembered_origins_is_bounded():
    origins = ReplicatedOrigins(0, entries_max=100)
    for at in range(1_000):
        origins.stored(at, Facts("bc"[at % 2], Position(7, at)))
        assert len(origins) <= 100
    assert origins.first >= 900


# Receiving.


def test_a_claimed_entry_is_acknowledged_and_its_neighbours_are_not():
    log, cursor = log_of(B, "abmab"), Cursor(-1)
    claim = claim_of(Origin(*A, 3), Origin(*B, 1))
    assert apply_claims(cursor, log.entries, {"a": claim}, B)
    assert cursor.acked_ranges == [(1, 1), (3, 3)]
    assert not cursor.ahead_of_peers
    assert not apply_claims(cursor, log.entries, {"a": claim}, B)


def test_messages_of_a_batch_are_acknowledged_in_two_regions():
    cursor, log = Cursor(-1), Log(B)
    log.publish(4)
    origin = Origin(*B, 0)
    apply_claims(cursor, log.entries, {"a": AckClaim(OriginSet(), {origin: 0b0111})}, B)
    assert cursor.ack_set_of(0) == (0b0111,)
    apply_claims(cursor, log.entries, {"c": AckClaim(OriginSet(), {origin: 0b1100})}, B)
    assert cursor.ack_set_of(0) == (0b0100,)
    apply_claims(cursor, log.entries, {"c": AckClaim(OriginSet(), {origin: 0b1000})}, B)
    assert cursor.mark_delete == 0
    assert not cursor.ahead_of_peers


def test_a_message_that_never_reached_the_claiming_region_stays():
    log, cursor = Log(B), Cursor(-1)
    log.receive(Origin(*C, 1), replicate_to=("b",))
    log.receive(Origin(*C, 2), replicate_to=("a", "b"))
    claim = claim_of(Origin(*C, 1), Origin(*C, 2))
    apply_claims(cursor, log.entries, {"a": claim}, B)
    assert cursor.acked_ranges == [(1, 1)]
    apply_claims(cursor, log.entries, {"c": claim}, B)
    assert cursor.mark_delete == 1, "its own region has it"


def test_another_incarnation_of_the_topic_is_not_concerned():
    log, cursor = log_of(B, "aba"), Cursor(-1)
    older = (AckedEntries("a", 4, ((0, 9),)), AckedEntries("b", 6, ((0, 9),)))
    claim = AckClaim.from_marker(older, log.newest, 100)
    assert not claim
    assert not apply_claims(cursor, log.entries, {"a": claim}, B)


def test_a_claim_of_messages_that_do_not_exist_yet_has_no_effect_on_them():
    log, cursor = log_of(B, "ab"), Cursor(-1)
    everything = tuple(AckedEntries(*ledger, ((0, 2**63 - 1),)) for ledger in (A, B, C))
    claim = AckClaim.from_marker(everything, log.newest, 100)
    assert claim.entries.as_json() == {"a:5": [[0, 0]], "b:7": [[0, 1]]}
    log.publish()
    log.receive(Origin(*C, 0))
    apply_claims(cursor, log.entries, {"a": claim}, B)
    assert cursor.mark_delete == 1
    assert cursor.acked_ranges == []


def test_entries_from_before_a_seek_are_delivered_again():
    log, cursor = log_of(B, "aaaa"), Cursor(-1)
    claim = claim_of(*(Origin(*A, at) for at in range(4)))
    cursor.seek(1, end_entry_id=3)
    apply_claims(cursor, log.entries, {"a": claim}, B)
    assert (cursor.mark_delete, cursor.acked_ranges) == (0, [(3, 3)])


def test_stored_claims_apply_to_entries_before_their_end_and_are_dropped_when_passed():
    log, cursor = log_of(B, "aaaa"), Cursor(-1)
    cursor.claims.replace("a", StoredClaim(claim_of(Origin(*A, 1), Origin(*A, 3)), 3))
    apply_stored_claims(cursor, log.entries, B)
    assert cursor.acked_ranges == [(1, 1)]
    assert cursor.claims
    acked(cursor, 0, 2)
    apply_stored_claims(cursor, [], B)
    assert not cursor.claims


# Any logs.


LOGS = st.text("abcm", min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_receiver_acknowledges_what_consumers_of_the_sender_acknowledged_and_nothing_else(data):
    """INV-127, for any interleaving of three origins, any acknowledgements, any limit and any base."""
    here = log_of(A, data.draw(LOGS))
    messages = [at for at in range(len(here.entries)) if here.origin(at) is not None]
    cursor = Cursor(-1)
    for entry_id in data.draw(st.permutations(messages))[: data.draw(st.integers(0, len(messages)))]:
        cursor.ack(entry_id)
    base = data.draw(st.integers(-1, len(here.entries)))
    claim = joined(claim_beyond(base, cursor, here.sender), here.sender).limited(
        data.draw(st.integers(0, 12))
    )
    there = Log(OriginLedger("receiver", 1))
    origins = data.draw(st.permutations(messages))
    for at in origins:
        origin = here.origin(at)
        assert origin is not None
        there.receive(origin)
    claim = AckClaim.from_marker(claim.to_marker(), there.newest, 1_000)
    follower = Cursor(-1)
    apply_claims(follower, there.entries, {"a": claim}, there.own)
    for at, entry_id in zip(origins, range(len(origins)), strict=True):
        if follower.is_acked(entry_id):
            assert cursor.is_acked(at)
            assert at > base
    whole = claim_beyond(-1, cursor, here.sender)
    apply_claims(follower, there.entries, {"a": whole}, there.own)
    assert [cursor.is_acked(at) for at in origins] == [
        follower.is_acked(entry_id) for entry_id in range(len(origins))
    ]
