"""The history's format: writers write what it allows, and the schema matches the checks."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from emulator.run import plan_record
from emulator.run.history import HistoryWriter, NotAHistory, seal_history
from emulator.run.history_events import HistoryEvent, attributes_digest, framed, payload_digest, read_events
from emulator.run.history_schema import (
    COMMON,
    FIELDS,
    FRAME,
    OPERATIONS,
    SCHEMA_FILE,
    LineCheck,
    schema_text,
)

EXAMPLES = {
    "at_ms": 1.5,
    "sequence_id": 3,
    "last_sequence_id": -1,
    "topic_epoch": 3,
    "message_id": "1:0:-1",
    "payload_digest": "0" * 16,
    "attributes_digest": "f" * 16,
    "replicate_to": ["us"],
    "replicated": True,
    "initial": "latest",
    "compacted": True,
    "how": "cumulative",
    "transaction": "0,1",
    "action": "abort",
    "key_epoch": 2,
    "plan": {"begun_at_ms": 1, "redelivered_messages": 3, "exact": True, "quiet": False},
    "format": 1,
    "others": [],
    "lines": 2,
    "digest": "0" * 64,
    "torn": False,
}


def lines_of_every_kind() -> list[dict[str, object]]:
    return [
        {
            "op": op,
            "outcome": outcome,
            **{name: EXAMPLES.get(name, "x") for name in ("at_ms", "actor", *kind.required, *kind.optional)},
        }
        for op, outcomes in OPERATIONS.items()
        for outcome, kind in outcomes.items()
    ]


def test_the_schema_is_written_from_the_tables() -> None:
    assert SCHEMA_FILE.read_text() == schema_text(), "python -m emulator.run.history_schema"


def test_an_event_has_every_field_that_is_not_of_the_frame() -> None:
    framing = {
        name for op in FRAME for kind in OPERATIONS[op].values() for name in (*kind.required, *kind.optional)
    }
    assert {one.name for one in fields(HistoryEvent)} - set(COMMON) == (
        set(FIELDS) - set(COMMON)
    ) - framing | {"detail"}


@pytest.mark.parametrize("line", lines_of_every_kind(), ids=lambda line: f"{line['op']} {line['outcome']}")
def test_a_line_with_all_its_fields_is_right_and_without_a_required_one_is_not(
    line: dict[str, object],
) -> None:
    check = LineCheck()
    assert check.problem(line) is None
    for name in (*COMMON, *OPERATIONS[str(line["op"])][str(line["outcome"])].required):
        wrong = check.problem({key: value for key, value in line.items() if key != name})
        assert wrong is not None
        assert wrong.field == name


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"op": "publsh"}, "op: must be one of"),
        ({"outcome": "OK"}, 'outcome: of publish must be one of asked, ok, failed, unknown, not "OK"'),
        ({"sequence_id": "14"}, 'sequence_id: must be an integer from 0 to 2^63-1, not "14"'),
        ({"sequence_id": True}, "sequence_id: must be an integer"),
        ({"sequence_id": -1}, "sequence_id: must be an integer"),
        ({"message_id": "garbage"}, "message_id: must be ledger:entry:batch_index"),
        ({"message_id": "-1:-1:-1"}, "message_id: must be ledger:entry:batch_index"),
        ({"at_ms": "now"}, "at_ms: must be milliseconds"),
        ({"region": "atlantis"}, 'region: must be a region of this run, not "atlantis"'),
        ({"regoin": "x"}, "regoin: is not a field of publish ok"),
        ({"op": ["publish"]}, "op: must be text"),
    ],
)
def test_what_is_wrong_is_named_with_field_and_rule(change: dict[str, object], complaint: str) -> None:
    right = {
        "at_ms": 1,
        "actor": "p",
        "op": "publish",
        "outcome": "ok",
        "region": "us",
        "topic": "t",
        "producer": "p",
        "session": "s",
        "sequence_id": 14,
        "message_id": "1:0:-1",
    }
    check = LineCheck({"region": (frozenset({"us"}), "must be a region of this run")})
    assert check.problem(right) is None
    assert str(check.problem(right | change)).startswith(complaint)


@pytest.mark.parametrize("line", [None, 1, "x", [], ["op", "outcome"], {}])
def test_what_is_no_object_is_no_line(line: object) -> None:
    assert LineCheck().problem(line) is not None


def written(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_program_writes_down_what_it_does(tmp_path: Path) -> None:
    history = HistoryWriter.in_run(tmp_path, "shop", program="shop 1.0")
    first = history.opened_producer("us", "orders", "shop", last_sequence_id=-1)
    publish = first.asked_publish(b"one", key="k", properties={"a": "b"}, replicate_to=["eu"])
    publish.ok("1:0:-1")
    first.asked_publish(b"two").unknown("timeout")
    second = history.opened_producer("us", "orders", "shop", last_sequence_id=1)
    second.asked_publish(b"three").failed("too big")
    history.subscribed("us", "orders", "billing", replicated=True)
    history.received("us", "orders", "billing", "1:0:-1", b"one")
    history.begun("us", (0, 7), key="settlement", key_epoch=2)
    history.received("us", "orders", "billing", "1:1:-1", transaction=(0, 7))
    history.asked_to_acknowledge("us", "orders", "billing", "1:0:-1")
    history.close()
    events = list(read_events(tmp_path / "history" / "shop.jsonl"))
    publishes = [event for event in events if event.op == "publish"]
    assert [(event.sequence_id, event.outcome) for event in publishes] == [
        (0, "asked"),
        (0, "ok"),
        (1, "asked"),
        (1, "unknown"),
        (2, "asked"),
        (2, "failed"),
    ]
    assert publishes[0].payload_digest == payload_digest(b"one")
    assert publishes[0].attributes_digest == attributes_digest("k", {"a": "b"})
    assert publishes[0].replicate_to == ["eu"]
    assert len({event.session for event in publishes}) == 2
    (begun,) = (event for event in events if event.op == "begin_transaction")
    assert (begun.transaction, begun.transaction_key, begun.key_epoch) == ("0,7", "settlement", 2)
    assert [event.transaction for event in events if event.op == "receive"] == [None, "0,7"]


def test_what_is_no_history_is_not_written(tmp_path: Path) -> None:
    history = HistoryWriter.in_run(tmp_path, "shop")
    with pytest.raises(NotAHistory, match="message_id: must be"):
        history.received("us", "orders", "billing", "here")
    with pytest.raises(NotAHistory, match="session: is required of publish asked"):
        history.write("publish", "asked", region="us", topic="t", producer="p", sequence_id=1)
    with pytest.raises(NotAHistory, match="end is written by the recorder itself"):
        history.write("end", "fact", lines=1, digest="0" * 64)
    history.close()
    with pytest.raises(NotAHistory, match="the history is closed"):
        history.write("publish", "asked")
    assert list(read_events(tmp_path / "history" / "shop.jsonl")) == []


def test_two_cannot_write_one_file(tmp_path: Path) -> None:
    history = HistoryWriter.in_run(tmp_path, "shop")
    with pytest.raises(BlockingIOError, match="being written by another process"):
        HistoryWriter.in_run(tmp_path, "shop")
    with pytest.raises(BlockingIOError):
        seal_history(tmp_path / "history" / "shop.jsonl", "too early")
    history.close()


def test_a_file_that_its_program_could_not_close_is_sealed(tmp_path: Path) -> None:
    path = tmp_path / "history" / "p.jsonl"
    history = HistoryWriter(path, "p", lambda: 1.0)
    history.write("kill", "fact", region="a")
    history.close()
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:2]) + '{"at_ms":1,"act')
    assert seal_history(path, "exit code -9", 2.0)
    assert not seal_history(path, "again", 3.0)
    seal = written_but_torn(path)[-1]
    assert (seal["op"], seal["lines"], seal["torn"]) == ("seal", 3, True)
    # Its writer may come back: a new part of the file.
    HistoryWriter(path, "p", lambda: 4.0).close()
    assert [line["op"] for line in written_but_torn(path)[-3:]] == ["seal", "head", "end"]
    assert not seal_history(tmp_path / "none.jsonl", "nothing is there")


def written_but_torn(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def test_what_was_kept_in_memory_is_framed_alike(tmp_path: Path) -> None:
    events = [HistoryEvent(12.25, "p", "kill", "fact", region="a")]
    path = tmp_path / "history" / "p.jsonl"
    history = HistoryWriter(path, "p", lambda: 12.25)
    history.write("kill", "fact", region="a")
    history.close()
    assert [line["op"] for line in map(json.loads, framed(events, "p", "").splitlines())] == [
        line["op"] for line in written(path)
    ]
    assert list(read_events(path)) == events


def test_attributes_have_one_digest_however_they_are_given() -> None:
    assert attributes_digest() is None
    assert attributes_digest("k") == attributes_digest(b"k") != attributes_digest("l")
    assert attributes_digest(properties={"a": "1", "b": "2"}) == attributes_digest(
        properties={"b": "2", "a": "1"}
    )
    # The example of docs/HISTORY.md.
    assert attributes_digest("k", {"a": "b"}) == "2d95be00946d9505"
    assert payload_digest(b"one") == "34f2ddaa8b7615c9"


PLAN = {"begun_at_ms": 1.5, "redelivered_messages": 3, "exact": True, "quiet": True}


@pytest.mark.parametrize(
    "changed",
    [
        {"begun_at_ms": -1},
        {"redelivered_messages": -1},
        {"redelivered_messages": 1.0},
        {"skipped_messages": True},
        {"missing_messages": None},
        {"exact": "yes"},
        {"quiet": None},
        {"resume": "5:-1"},
        {"source_mark_delete": "5"},
        {"source_mark_delete": "5:-2"},
        {"source_mark_delete": f"5:{2**63}"},
        {"source_acknowledged": [[3]]},
        {"source_acknowledged": [3, 4]},
        {"source_acknowledged": [[1, -1]]},
        {"source_acknowledged": {"5": [[1, 2]]}},
        {"source_acknowledged": [[0, 0]] * 1001},
        {"target_last": "us-east:5:7"},
        {"wait_for": []},
    ],
    ids=lambda changed: str(changed)[:60],
)
def test_a_plan_with_a_wrong_field_is_refused(changed: dict[str, object]) -> None:
    assert plan_record.is_plan(PLAN)
    assert not plan_record.is_plan(PLAN | changed)


def test_a_plan_may_have_positions_before_the_first_entry() -> None:
    positions = {"source_mark_delete": "5:-1", "source_acknowledged": [[0, 0], [2, 9]], "target_last": "7:-1"}
    assert plan_record.is_plan(PLAN | positions | {"skipped_messages": 0, "resume": "7:0"})


@pytest.mark.parametrize("missing", PLAN)
def test_a_plan_without_a_required_field_is_refused(missing: str) -> None:
    assert not plan_record.is_plan({name: value for name, value in PLAN.items() if name != missing})
