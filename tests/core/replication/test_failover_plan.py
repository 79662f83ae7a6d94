"""The comparison of two regions' logs and cursors against a count of every message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.cursor.cursor import Cursor
from emulator.core.replication.delivery_state import (
    DeliveryScan,
    DeliveryState,
    PartialBatch,
    ScannedEntry,
    merged,
)
from emulator.core.replication.failover_plan import (
    Acknowledged,
    PlannedFigures,
    SourceComparison,
    SourceLog,
)
from emulator.core.replication.origins import Origin, OriginSet
from emulator.model.values import BEFORE_EVERYTHING, Position

A, B, C = "us-east", "eu-west", "ap-south"
LEDGERS = {A: 7, B: 3, C: 5}
CHUNK = 3


@dataclass(frozen=True)
class Message:
    """An entry with messages; 0 messages: a marker."""

    origin: Origin
    messages: int
    restricted_to: str = ""
    """The region that the producer named; empty: all."""

    def reaches(self, region: str) -> bool:
        return not self.restricted_to or region in (self.restricted_to, self.origin.region)


@dataclass
class RegionModel:
    name: str
    log: list[Message] = field(default_factory=list)
    cursor: Cursor = field(default_factory=lambda: Cursor(-1))
    first: int = 0

    def stored(self) -> dict[str, Position]:
        found = {self.name: Position(LEDGERS[self.name], len(self.log) - 1)}
        for one in self.log:
            if one.origin.region != self.name:
                found[one.origin.region] = max(
                    found.get(one.origin.region, one.origin.position), one.origin.position
                )
        return found

    def scanned(self, entry_id: int) -> ScannedEntry:
        one = self.log[entry_id]
        return ScannedEntry(entry_id, one.origin, one.messages, 1_000 + entry_id)

    def open_messages(self, entry_id: int) -> set[tuple[Origin, int]]:
        one = self.log[entry_id]
        if self.cursor.is_acked(entry_id):
            return set()
        bits = self.cursor.open_bits.get(entry_id, (1 << one.messages) - 1)
        return {(one.origin, index) for index in range(one.messages) if bits >> index & 1}


@st.composite
def worlds(draw: st.DrawFn, *, trims_c_early: bool = False) -> tuple[RegionModel, RegionModel]:
    """Logs of A and B that contain a prefix of what each origin sent, and any acknowledgements. A has trimmed entries
    that its cursor has passed and B has; `trims_c_early`: also those of C that B lacks."""
    sizes = st.sampled_from([0, 1, 1, 1, 3, 5])
    sent: dict[str, list[Message]] = {A: [], B: [], C: []}
    logs = {A: RegionModel(A), B: RegionModel(B)}
    passed = {(origin, region): 0 for origin in sent for region in logs if origin != region}
    for step in draw(
        st.lists(st.tuples(st.sampled_from([A, B, C]), st.booleans(), sizes, st.booleans()), max_size=30)
    ):
        origin, publishes, size, restricted = step
        if publishes:
            home = logs.get(origin)
            entry_id = len(home.log) if home is not None else len(sent[C])
            name = draw(st.sampled_from([A, B])) if restricted and draw(st.booleans()) else ""
            one = Message(Origin(origin, LEDGERS[origin], entry_id), size, name)
            sent[origin].append(one)
            if home is not None:
                home.log.append(one)
            continue
        for region, model in logs.items():
            if region != origin and passed[origin, region] < len(sent[origin]) and draw(st.booleans()):
                one = sent[origin][passed[origin, region]]
                passed[origin, region] += 1
                if one.reaches(region):
                    model.log.append(one)
    for model in logs.values():
        acknowledge(draw, model)
    source, stored = logs[A], logs[B].stored()
    source.first = draw(st.integers(0, source.cursor.mark_delete + 1))
    kept = {A} if trims_c_early else {A, B, C}
    lacking = (
        entry_id
        for entry_id, one in enumerate(source.log)
        if one.origin.region in kept
        and one.origin.position > stored.get(one.origin.region, BEFORE_EVERYTHING)
    )
    source.first = min(source.first, next(lacking, source.first))
    return source, logs[B]


def acknowledge(draw: st.DrawFn, model: RegionModel) -> None:
    end = len(model.log)
    if end and draw(st.booleans()):
        model.cursor.ack_cumulative(draw(st.integers(0, end - 1)))
    for entry_id in draw(st.lists(st.integers(0, max(0, end - 1)), max_size=10)):
        if entry_id < end and model.log[entry_id].messages:
            if draw(st.booleans()):
                model.cursor.ack(entry_id)
            else:
                model.cursor.keep_open(entry_id, draw(st.integers(0, 31)), model.log[entry_id].messages)


def state_of(model: RegionModel, source: str, *, entries_max: int = 10_000) -> DeliveryState:
    state = DeliveryState(model.name, stored=model.stored(), replicated=True)
    scan = DeliveryScan(state, source, LEDGERS[model.name])
    reached: dict[str, Position] = {}
    for read, entry_id in enumerate(range(model.cursor.mark_delete + 1, len(model.log))):
        if read == entries_max:
            scan.stopped(reached)
            break
        one = model.log[entry_id]
        reached[one.origin.region] = one.origin.position
        if not model.cursor.is_acked(entry_id):
            scan.add(
                model.scanned(entry_id),
                model.cursor.open_bits.get(entry_id),
                reaches_source=one.reaches(source),
            )
    return DeliveryState.parse(json.loads(json.dumps(scan.result().as_json())))


def compare(source: RegionModel, state: DeliveryState, *, entries_max: int = 10_000) -> PlannedFigures:
    log = SourceLog(source.name, LEDGERS[source.name], source.first, len(source.log), source.stored())
    comparison = SourceComparison(log, Acknowledged.of(source.cursor), state)
    end, read = len(source.log), 0
    while not comparison.is_done and read < entries_max:
        begin = max(source.first, end - CHUNK)
        lowest: dict[str, Position] = {}
        for entry_id in range(begin, end):
            one = source.log[entry_id]
            comparison.add(source.scanned(entry_id), reaches_target=one.reaches(state.region))
            known = lowest.get(one.origin.region, one.origin.position)
            lowest[one.origin.region] = min(known, one.origin.position)
        comparison.chunk_read(begin, lowest)
        read += end - begin
        end = begin
    return comparison.result()


def all_open(model: RegionModel) -> set[tuple[Origin, int]]:
    return {one for entry_id in range(len(model.log)) for one in model.open_messages(entry_id)}


def all_messages(model: RegionModel, meant_for: str) -> Iterator[tuple[Origin, int]]:
    for one in model.log:
        if one.reaches(meant_for):
            yield from ((one.origin, index) for index in range(one.messages))


@settings(max_examples=80, deadline=None)
@given(worlds())
def test_a_plan_counts_every_redelivered_skipped_and_missing_message(world):
    source, target = world
    figures = compare(source, state_of(target, source.name))
    here, there = set(all_messages(source, target.name)), set(all_messages(target, target.name))
    acknowledged = here - all_open(source)
    delivered = all_open(target) | (here - there)
    assert figures.complete or source.first, "without the trimmed entries it may be unknown what B lacks"
    assert figures.redelivered == len(acknowledged & delivered)
    assert figures.missing == len(here - there)
    assert figures.skipped == len((all_open(source) & here & there) - all_open(target))
    assert figures.exact == (figures.complete and not acknowledged & (here - there))


@settings(max_examples=80, deadline=None)
@given(worlds(trims_c_early=True), st.integers(0, 12), st.integers(0, 12))
def test_a_plan_that_did_not_read_everything_is_a_bound_or_says_that_it_is_none(
    world, target_max, source_max
):
    source, target = world
    figures = compare(
        source, state_of(target, source.name, entries_max=target_max), entries_max=source_max * CHUNK
    )
    here, there = set(all_messages(source, target.name)), set(all_messages(target, target.name))
    redelivered = len((here - all_open(source)) & (all_open(target) | (here - there)))
    if figures.complete:
        assert figures.redelivered >= redelivered
    if figures.exact:
        assert figures.redelivered == redelivered


@settings(max_examples=80, deadline=None)
@given(worlds(), st.lists(st.integers(0, 40), max_size=12))
def test_later_acknowledgements_add_at_most_themselves(world, later):
    source, target = world
    planned = compare(source, state_of(target, source.name)).redelivered
    before = len(all_open(source))
    for entry_id in later:
        if entry_id < len(source.log) and source.log[entry_id].messages:
            source.cursor.ack(entry_id)
    acknowledged_since = before - len(all_open(source))
    assert compare(source, state_of(target, source.name)).redelivered <= planned + acknowledged_since


def model(region: str, entries: list[tuple[str, int, int]], mark_delete: int) -> RegionModel:
    """A region whose log has these (origin, entry, messages)."""
    log = [Message(Origin(origin, LEDGERS[origin], entry), count) for origin, entry, count in entries]
    return RegionModel(region, log, Cursor(mark_delete))


def test_one_message_that_stays_unacknowledged_makes_all_later_ones_redelivered():
    entries = [(A, entry, 1) for entry in range(2_000)]
    source, target = model(A, entries, -1), model(B, entries, -1)
    for entry in range(1, 2_000):
        source.cursor.ack(entry)
    figures = compare(source, state_of(target, A))
    assert (figures.redelivered, figures.skipped, figures.exact) == (1_999, 0, True)
    assert figures.oldest_publish_ms == 1_001


def test_a_topic_that_was_created_again_has_other_origins():
    source = model(A, [(A, 0, 1), (A, 1, 1)], 1)
    old = Message(Origin(A, LEDGERS[A] - 1, 40), 1)
    target = RegionModel(B, [old, *source.log], Cursor(-1))
    figures = compare(source, state_of(target, A))
    # The source knows nothing of its earlier log: the message of it is counted, as a bound.
    assert (figures.redelivered, figures.exact, figures.complete) == (3, False, True)


def test_what_the_source_trimmed_counts_as_acknowledged_with_its_batch_sizes():
    entries = [(A, 0, 5), (A, 1, 1), (A, 2, 3)]
    source, target = model(A, entries, 1), model(B, entries, -1)
    target.cursor.keep_open(0, 0b00110, 5)
    source.first = 2
    figures = compare(source, state_of(target, A))
    assert (figures.redelivered, figures.exact) == (3, True)
    assert figures.oldest_publish_ms == 1_000, "the age of trimmed messages is bounded by the target's oldest"


@pytest.mark.parametrize("ranges_max", [0, 1, 3, 1_000])
def test_the_first_acknowledged_ranges_are_those_of_the_cursor(ranges_max):
    cursor = Cursor(4_090)
    for entry_id in (*range(4_092, 4_100), 4_102, *range(9_000, 9_100, 2), 20_000):
        cursor.ack(entry_id)
    assert Acknowledged.of(cursor).first_ranges(ranges_max) == cursor.acked_ranges[:ranges_max]
    cursor.ack(4_091)
    assert Acknowledged.of(cursor).first_ranges(ranges_max) == cursor.acked_ranges[:ranges_max]


def test_neighbouring_ranges_are_merged_beyond_the_bound():
    found = OriginSet.of(Origin(A, 7, entry) for entry in (0, 2, 3, 9, 11, 20))
    assert merged(found, 3).as_json() == {f"{A}:7": [[0, 3], [9, 11], [20, 20]]}
    assert merged(found, 9) == found
    assert merged(found, 0).ranges == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"region": 3}, "region: 3 must be the name of a region"),
        ({"region": "a b"}, "region: 'a b' must be the name of a region"),
        ({"exists": 1}, "exists: 1 must be true or false"),
        ({"messages": -1}, "messages: -1 must be a number from 0"),
        ({"messages": None}, "messages: None must be a number from 0"),
        ({"messages": 2**63}, "must be a number from 0"),
        ({"resume": "5"}, "resume: '5' must be a position, like 5:17"),
        ({"resume": "٥:1"}, "must be a position, like 5:17"),
        ({"mark_delete": f"{2**63}:1"}, "must be a position, like 5:17"),
        ({"stored": {"a": "x"}}, "stored: {'a': 'x'} must be an object of positions by region"),
        ({"stored": []}, "stored: [] must be an object of up to 1000 positions by region"),
        ({"unacknowledged": {"a": [[0, 1]]}}, "unacknowledged: 'a' must be a region and a ledger"),
        (
            {"partial": [["us:1:2", 4, "1f"]]},
            "partial: ['us:1:2', 4, '1f'] must be [origin, size, open messages",
        ),
        ({"partial": [["us:1:2", 4, "0"]]}, "partial: ['us:1:2', 4, '0'] must be"),
        ({"partial": [["us:1:2", 4, "zz"]]}, "partial: ['us:1:2', 4, 'zz'] must be"),
        ({"partial": [["us:1", 4, "1"]]}, "partial: "),
        ({"partial": {}}, "partial: {} must be a list of up to 1000 batches"),
        ({"batch_sizes": {"x": {}}}, "batch_sizes: 'x' must be a number of messages"),
        ({"batch_sizes": {"3": {"us:1": [[2, 1]]}}}, "batch_sizes: 3: us:1: [2, 1] must ascend"),
    ],
)
def test_an_invalid_claim_is_refused_with_place_value_and_rule(change, message):
    valid = DeliveryState(B, partial={Origin(A, 1, 2): PartialBatch(4, 5)}).as_json()
    assert DeliveryState.parse(valid).partial == {Origin(A, 1, 2): PartialBatch(4, 5)}
    with pytest.raises(ValueError, match=r".") as refused:
        DeliveryState.parse({**valid, **change})
    assert message in str(refused.value)


@pytest.mark.parametrize("raw", [None, [], "x", 3])
def test_a_claim_that_is_no_object_is_refused(raw):
    with pytest.raises(ValueError, match="must be an object"):
        DeliveryState.parse(raw)
