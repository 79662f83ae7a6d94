"""The stored format of a cursor: only changes are written, and a kill between any two puts does no harm (T3)."""

from __future__ import annotations

import json
import random

import pytest

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import PART_IDS
from emulator.core.cursor.stored_format import CursorParts, PartName
from emulator.errors import StorageDamaged, StorageError

PART = PART_IDS
IDS = 3 * PART
Name = PartName | None


class Disk:
    """A store that guarantees an order within each key and none across keys. After a crash, each key has any value that
    was put since the last one known to be durable."""

    def __init__(self) -> None:
        self.durable: dict[Name, bytes] = {}
        self.under_way: list[tuple[Name, bytes | None]] = []

    def crash(self, chance: random.Random) -> None:
        for name in {name for name, _ in self.under_way}:
            values = [value for other, value in self.under_way if other == name]
            for value in values[: chance.randrange(len(values) + 1)]:
                self._become(name, value)
        self.under_way.clear()

    def sync(self) -> None:
        for name, value in self.under_way:
            self._become(name, value)
        self.under_way.clear()

    def _become(self, name: Name, value: bytes | None) -> None:
        if value is None:
            self.durable.pop(name, None)
        else:
            self.durable[name] = value

    def load(self) -> CursorParts:
        parts = {name: value for name, value in self.durable.items() if name is not None}
        return CursorParts.load(self.durable[None], parts)


class Owner:
    """A small subscription: it changes a cursor, writes it, is killed, and loads it again."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.disk = chance, Disk()
        self.parts = CursorParts(Cursor(-1))
        self.acked: set[int] = set()
        """Since the last seek."""
        self.confirmed: set[int] = set()
        self.before_seek: set[int] | None = None
        """Acknowledgements that may come back if the seek is not durable."""
        self.write()

    def write(self) -> None:
        """Make everything durable and confirmed."""
        self.issue(all_durable=True)
        self.confirmed, self.before_seek = set(self.acked), None

    def issue(self, *, all_durable: bool) -> bool:
        """Put the changes, step by step. Return false when a kill came in between."""
        puts, deletes = self.parts.take_changes()
        steps: list[list[tuple[Name, bytes | None]]] = [list(step.items()) for step in puts]
        steps.append([(name, None) for name in deletes])
        for step in steps:
            self.chance.shuffle(step)
            self.disk.under_way += step
            if not all_durable and self.chance.random() < 0.5:
                return False
            self.disk.sync()
        return True

    def acknowledge(self) -> None:
        cursor = self.parts.cursor
        for _ in range(self.chance.randrange(1, 30)):
            near = self.chance.choice((cursor.mark_delete + 1, PART - 2, 2 * PART - 2, 0))
            entry_id = min(near + self.chance.randrange(6), IDS - 1)
            cursor.ack(entry_id)
            self.acked.add(entry_id)

    def acknowledge_many(self) -> None:
        first = self.chance.randrange(IDS)
        last = min(first + self.chance.choice((10, 3000, PART)), IDS - 1)
        self.parts.cursor.ack_range(first, last)
        self.acked.update(range(first, last + 1))

    def seek(self) -> None:
        if self.before_seek is None:
            self.before_seek = set(self.acked)
        else:
            self.before_seek |= self.acked
        to = self.chance.randrange(IDS)
        self.parts.cursor.seek(to)
        self.acked, self.confirmed = set(range(to)), set()

    def kill(self) -> None:
        if self.chance.random() < 0.7:
            self.issue(all_durable=False)
        self.disk.crash(self.chance)
        self.parts = self.disk.load()
        cursor = self.parts.cursor
        found = set(range(cursor.mark_delete + 1))
        for first, last in cursor.acked_ranges:
            found.update(range(first, last + 1))
        assert found >= self.confirmed, "every confirmed acknowledgement is stored"
        assert found <= self.acked or (self.before_seek is not None and found <= self.before_seek), (
            "nothing else is stored"
        )
        assert cursor.acked_ranges == [run for run in cursor.acked_ranges if run[0] > cursor.mark_delete + 1]
        self.acked, self.confirmed, self.before_seek = found, set(found), None


@pytest.fixture
def parts() -> CursorParts:
    return CursorParts(Cursor(-1))


@pytest.mark.parametrize("seed", range(40))
def test_a_kill_between_any_two_puts_invents_nothing_and_loses_nothing_confirmed(seed):
    """Random changes; at each kill a random part of the puts under way is durable, in any order across keys."""
    owner = Owner(random.Random(seed))
    steps = [
        owner.acknowledge,
        owner.acknowledge,
        owner.acknowledge_many,
        owner.seek,
        owner.write,
        owner.kill,
    ]
    for _ in range(40):
        owner.chance.choice(steps)()
    owner.kill()


def values(parts: CursorParts) -> dict[Name, bytes]:
    """Return every value, written in one step."""
    (puts,), _ = parts.take_changes()
    return puts


def test_only_what_changed_is_written(parts):
    assert set(values(parts)) == {None}
    parts.cursor.ack(PART + 5)
    assert set(values(parts)) == {(0, 1)}
    parts.cursor.ack(0)
    assert set(values(parts)) == {None}
    parts.cursor.ack_batch(2 * PART, (0b01,), 2)
    assert set(values(parts)) == {(0, 2)}
    parts.cursor.set_replicated(True)
    assert set(values(parts)) == {None}
    assert parts.take_changes().puts == []


def test_a_part_is_never_longer_than_its_bitmap(parts):
    parts.cursor.ack_range(1, PART - 1)
    for entry_id in range(PART, 2 * PART, 2):
        parts.cursor.ack(entry_id)
    sizes = {name: len(value) for name, value in values(parts).items()}
    assert sizes[PartName(0, 0)] < 32, "one run"
    assert 512 < sizes[PartName(0, 1)] < 540, "2,048 runs"


def test_parts_that_mark_delete_passed_are_deleted_once_the_head_is_durable(parts):
    parts.cursor.ack_range(1, PART)
    values(parts)
    parts.cursor.ack(0)
    puts, deletes = parts.take_changes()
    assert ([set(step) for step in puts], deletes) == ([{None}], [(0, 0)])
    assert parts.stored_parts == [(0, 1)]


def test_after_a_seek_older_parts_count_for_nothing_and_are_deleted(parts):
    parts.cursor.ack(5)
    stored = values(parts)
    parts.cursor.seek(0)
    parts.cursor.ack(7)
    puts, deletes = parts.take_changes()
    assert deletes == [(0, 0)]
    stored |= puts[0]
    again = CursorParts.load(stored.pop(None), stored)
    assert again.cursor.acked_ranges == [(7, 7)]
    again.cursor.ack(8)
    assert again.take_changes().deletes == [(0, 0)], "the deletion was lost"


def test_no_generation_is_used_again_while_a_part_of_it_may_exist(parts):
    """The seek was lost in a crash; a part that was written after it was not."""
    head = values(parts)[None]
    parts.cursor.seek(0)
    parts.cursor.ack(7)
    left = {name: value for name, value in values(parts).items() if name is not None}
    again = CursorParts.load(head, left)
    again.cursor.seek(0)
    again.cursor.ack(9)
    left |= values(again)
    assert CursorParts.load(left.pop(None), left).cursor.acked_ranges == [(9, 9)]


def test_the_newest_value_decides_whether_the_cursor_was_ahead(parts):
    """A part may be durable and the head not, or the reverse."""
    head = values(parts)[None]
    parts.cursor.ack(3)
    ahead = values(parts)
    parts.cursor.ack_cumulative_except(5, [])
    followed = values(parts)
    assert CursorParts.load(head, {}).cursor.ahead_of_peers is False
    assert CursorParts.load(head, ahead).cursor.ahead_of_peers is True
    assert CursorParts.load(followed[None], ahead).cursor.ahead_of_peers is False


def test_what_is_stored_comes_back():
    parts = CursorParts(Cursor(3))
    cursor = parts.cursor
    cursor.ack_range(6, 9)
    cursor.ack_batch(PART + 11, (-1,), 65)
    cursor.set_replicated(True)
    stored = values(parts)
    again = CursorParts.load(stored.pop(None), stored).cursor
    assert (again.mark_delete, again.acked_ranges, again.replicated) == (3, [(6, 9)], True)
    assert (again.ack_set_of(PART + 11), again.version) == ((-1,), 0)


FORMAT_1 = {
    "format": 1,
    "mark_delete": 3,
    "ranges": [[6, 9], [PART, PART + 1]],
    "batches": {"11": [-1]},
    "acked_upto": 9,
    "leads": True,
    "replicated": True,
    "properties": {},
}


def test_an_older_cursor_is_read_and_its_head_replaced_only_after_its_parts():
    parts = CursorParts.load(json.dumps(FORMAT_1).encode(), {})
    cursor = parts.cursor
    assert (cursor.mark_delete, cursor.acked_ranges) == (3, [(6, 9), (PART, PART + 1)])
    assert (cursor.ack_set_of(11), cursor.ahead_of_peers, cursor.replicated) == ((-1,), True, True)
    puts, _ = parts.take_changes()
    assert [set(step) for step in puts] == [{(0, 0), (0, 1)}, {None}]


def test_parts_beside_an_older_head_are_left_of_an_attempt_and_count_for_nothing():
    parts = CursorParts.load(json.dumps(FORMAT_1).encode(), {PartName(0, 2): b"whatever"})
    puts, deletes = parts.take_changes()
    assert set(puts[0]) == {(1, 0), (1, 1)}
    assert deletes == [(0, 2)]


GOOD_HEAD = values(CursorParts(Cursor(3)))[None]


@pytest.mark.parametrize(
    "head", [b"", b"[]", b"\xff", b'{"format":3}', b'{"format":2}', b'{"format":1}', GOOD_HEAD[:-3]]
)
def test_a_garbled_head_is_refused(head):
    """A guessed cursor would lose messages."""
    with pytest.raises(StorageError, match="stored cursor"):
        CursorParts.load(head, {})


@pytest.mark.parametrize("keep", [0, 5, 19, 22, 24, -1])
def test_a_garbled_part_is_refused(keep):
    parts = CursorParts(Cursor(3))
    parts.cursor.ack_range(6, 9)
    parts.cursor.ack_batch(11, (-1,), 64)
    stored = values(parts)
    with pytest.raises(StorageError, match="stored cursor"):
        CursorParts.load(stored[None], {PartName(0, 0): stored[PartName(0, 0)][:keep]})


@pytest.mark.parametrize("text", ["", "1", "1-", "a-b", "-1-2"])
def test_what_names_no_part_is_refused(text):
    assert str(PartName.parse("4-17")) == "4-17"
    with pytest.raises(StorageError, match="does not name a part"):
        PartName.parse(text)


def test_disabled_replication_and_unapplied_updates_are_stored():
    parts = CursorParts(Cursor(3))
    parts.cursor.disable_replication()
    parts.cursor.note_unapplied("us", 9, ["us", "eu"])
    parts.cursor.note_unapplied("us", 7, ["us"])
    again = CursorParts.load(values(parts)[None], {}).cursor
    assert (again.replicated, again.replication_disabled) == (False, True)
    assert again.unapplied == {"us": (9, ("us", "eu"))}
    again.set_replicated(True)
    assert not again.replication_disabled
    assert again.take_unapplied() == {"us": (9, ("us", "eu"))}
    assert not again.unapplied


@pytest.mark.parametrize("damaged", ["[]", '{"us": 9}', '{"us": ["9", []]}', '{"us": [9]}', '{"us": [9, 1]}'])
def test_a_damaged_position_that_was_not_applied_is_refused(damaged):
    parts = CursorParts(Cursor(3))
    parts.cursor.note_unapplied("us", 9, [])
    head = values(parts)[None].replace(b'{"us":[9,[]]}', damaged.encode())
    with pytest.raises(StorageDamaged):
        CursorParts.load(head, {})
