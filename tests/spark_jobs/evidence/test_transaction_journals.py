"""Transaction keys as coordinators stored them and as clients received them, and what committed transactions
acknowledged."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from emulator.core.transactions import journal_format
from emulator.core.transactions.coordinator import Coordinator, CoordinatorLimits
from emulator.core.transactions.keys import KeyBook
from emulator.model.transaction_names import TransactionStatus
from emulator.run.history_events import HistoryEvent
from spark_jobs.checks import keys, processed
from spark_jobs.checks.check import Check, Circumstances
from spark_jobs.engines.frames import small_frame
from spark_jobs.evidence.transaction_journals import CoordinatorEntry, rows_of
from spark_jobs.sources.coordinator_journals import JOURNAL_SCHEMA, journal_rows
from spark_jobs.verdict import CheckResult
from tests.spark_jobs.literal import NAMESPACES, event, expect, result_of, stored

pytestmark = pytest.mark.usefixtures("engine")

LOG, KEY_LOG = (f"internal://pulsar/system/__transaction_{kind}_0" for kind in ("log", "key"))
KEY = "settlement"


def entries(name: str, *said: Iterable[object], first: int = 0) -> list[CoordinatorEntry]:
    return [("a", name, first + at, json.dumps([*one]).encode()) for at, one in enumerate(said)]


def began(least: int, epoch: int, role: str = "") -> list[object]:
    return ["began", least, 60_000, 1, [role, KEY, epoch]]


def decided(least: int, status: str = "COMMITTING") -> list[object]:
    return ["decided", least, status, ""]


def told_begun(least: int, epoch: int, at_ms: float, actor: str = "task", region: str = "a") -> HistoryEvent:
    said = {"transaction": f"0,{least}", "transaction_key": KEY, "key_epoch": epoch}
    one = event(at_ms, "begin_transaction", "ok", region=region, topic=None, **said)
    one.actor = actor
    return one


def ended(
    least: int, at_ms: float, *outcomes: str, action: str = "commit", region: str = "a"
) -> list[HistoryEvent]:
    said = {"region": region, "topic": None, "transaction": f"0,{least}", "action": action}
    return [event(at_ms, "end_transaction", one, **said) for one in ("asked", *(outcomes or ("ok",)))]


def kinds(result: CheckResult) -> list[str]:
    return [str(one["kind"]) for one in result.witness]


@pytest.mark.parametrize("data", [rb'["granted", "", "\ud800", 1, "p", 0]', b"[" * 200_000])
def test_an_entry_with_a_text_that_cannot_be_encoded_cannot_be_read(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"entry 7 cannot be read: .*(lone surrogate|nested)"):
        list(rows_of("a", KEY_LOG, [("a", KEY_LOG, 7, data)]))


@pytest.mark.parametrize(
    "entry",
    [
        ["granted", "", KEY, 2**63, "p", 0],
        ["granted", "", KEY, "1", "p", 0],
        ["granted", "", KEY, True, "p", 0],
        ["granted", "", [KEY], 1, "p", 0],
        ["granted", "", KEY, 1, 7, 0],
        ["deleted", {}, KEY, 1],
    ],
)
def test_a_value_that_no_table_can_hold_is_a_damage(entry: list[object]) -> None:
    """No row of the journal follows it."""
    granted = ["granted", "", KEY, 0, "p", 0]
    rows = list(journal_rows(entries(KEY_LOG, granted, entry, granted)))
    assert [row[0] and row[0].partition(": entry 1 cannot be read: ")[0] for row in rows] == [
        None,
        f"{KEY_LOG} of a",
    ]
    assert small_frame(rows, JOURNAL_SCHEMA).count() == 2


@pytest.mark.parametrize("check", [keys.FENCED, keys.EPOCHS, processed.CHECK])
def test_without_keys_and_transactions_nothing_is_checked(check: Check) -> None:
    expect("not applicable", check, [stored("a", 0, 0)], [])


def test_a_coordinator_s_own_logs_are_in_order_over_checkpoints_and_deletions() -> None:
    """The broker's coordinator and key book write the journals."""
    bounds = CoordinatorLimits(
        open_max=9, participants_max=9, timeout_ms_max=60_000, outcomes_max=9, outcome_ms=1
    )
    coordinator, book = Coordinator(0, bounds), KeyBook(0, 9)
    journal: list[journal_format.JournalEntry] = []
    key_journal: list[journal_format.KeyEntry] = []
    for turn in range(6):
        grant = book.connect("", KEY, -1, f"process {turn}", turn, "client" * (turn % 2))
        key_journal.append(grant)
        still_open = [one for one in coordinator.of_key("", KEY) if one.status is TransactionStatus.OPEN]
        decisions = [coordinator.decide(one.txn.least, commit=turn == 2, why="") for one in still_open]
        journal.extend(filter(None, decisions))
        journal.append(coordinator.begin(60_000, turn, book.holder("", KEY, grant.epoch), turn))
        if turn in (2, 4):
            journal += coordinator.checkpoint_entries()
            key_journal += book.checkpoint_entries()
        if turn == 3:
            key_journal.append(book.delete("", KEY))
    said = [
        *(("a", LOG, at, journal_format.encode(one)) for at, one in enumerate(journal)),
        *(("a", KEY_LOG, at, journal_format.encode_key_entry(one)) for at, one in enumerate(key_journal)),
    ]
    for check in (keys.FENCED, keys.EPOCHS):
        expect("valid", check, coordinators=said)


def test_a_transaction_must_be_decided_before_a_newer_one_of_its_key_begins() -> None:
    right = entries(LOG, began(1, 0), decided(1), began(2, 1), began(3, 0, role="another"))
    wrong = entries(LOG, began(1, 0), began(2, 1), decided(1))
    expect("valid", keys.FENCED, coordinators=right)
    result = result_of(keys.FENCED, coordinators=wrong)
    assert (result.verdict, kinds(result)) == ("invalid", ["two open transactions"])
    assert (result.witness[0]["transaction"], result.witness[0]["transaction_key"]) == ("0,2", KEY)


@pytest.mark.parametrize(
    ("commit_asked_ms", "outcomes", "verdict"),
    [
        (15.0, ("ok",), "valid"),
        (25.0, ("ok",), "invalid"),
        (25.0, ("failed",), "valid"),
        (25.0, ("unknown",), "valid"),
    ],
    ids=["before", "behind", "refused", "not answered"],
)
def test_no_transaction_commits_after_a_newer_one_of_its_key_has_begun(
    commit_asked_ms: float, outcomes: tuple[str, ...], verdict: str
) -> None:
    events = [told_begun(1, 0, 10), told_begun(2, 1, 20, "other"), ended(1, commit_asked_ms, *outcomes)]
    expect(verdict, keys.FENCED, [], events)


def test_a_key_fences_no_client_in_another_region() -> None:
    events = [
        told_begun(1, 0, 10),
        told_begun(1, 0, 20, "other", region="b"),
        ended(1, 25),
        ended(1, 26, region="b"),
    ]
    expect("valid", keys.FENCED, [], events)


@pytest.mark.parametrize(
    "circumstances",
    [
        Circumstances(NAMESPACES, damaged_regions=frozenset({"a"})),
        Circumstances(NAMESPACES, lost=frozenset({"a"})),
    ],
    ids=["damaged", "lost"],
)
def test_a_region_that_was_lost_or_is_known_in_part_proves_nothing(circumstances: Circumstances) -> None:
    events = [told_begun(1, 0, 10), told_begun(1, 0, 20, "other")]
    result = expect("unknown", keys.EPOCHS, [], events, circumstances=circumstances)
    assert set(kinds(result)) == {"one epoch returned to two clients", "epoch returned without a grant"}


def test_an_epoch_below_the_floor_of_forgotten_keys_was_granted_once() -> None:
    floor = entries(KEY_LOG, ["floor", 7, 4])
    expect("valid", keys.EPOCHS, [], [told_begun(1, 7, 10)], coordinators=floor)
    beyond = result_of(keys.EPOCHS, [], [told_begun(1, 8, 10)], coordinators=floor)
    assert kinds(beyond) == ["epoch returned without a grant"]


# ---- acknowledgements of committed transactions ----


def acknowledged(
    least: int, entry: int, at_ms: float, *outcomes: str, how: str = "individual"
) -> list[HistoryEvent]:
    place = {"region": "a", "subscription": "s", "message_id": f"1:{entry}:-1", "transaction": f"0,{least}"}
    return [event(at_ms, "acknowledge", one, how=how, **place) for one in ("asked", *outcomes)]


def received(least: int, entry: int, at_ms: float, region: str = "a") -> HistoryEvent:
    place = {
        "region": region,
        "subscription": "s",
        "message_id": f"1:{entry}:-1",
        "transaction": f"0,{least}",
    }
    return event(at_ms, "receive", "ok", **place)


def test_one_acknowledgement_in_two_committed_transactions_is_a_defect() -> None:
    for how in ("individual", "cumulative"):
        events = [
            acknowledged(1, 4, 10, how=how),
            acknowledged(2, 4, 20, how=how),
            ended(1, 15),
            ended(2, 25),
        ]
        result = result_of(processed.CHECK, [], events)
        assert (result.verdict, kinds(result)) == ("invalid", ["acknowledged twice"])
        assert result.witness[0]["transaction"] == "0,1 and 0,2"


@pytest.mark.parametrize(
    "second",
    [
        [acknowledged(2, 4, 20), ended(2, 25, action="abort")],
        [acknowledged(2, 4, 20, "failed"), ended(2, 25)],
        [acknowledged(2, 5, 20), ended(2, 25)],
        [acknowledged(2, 4, 20), ended(2, 25), event(17, "seek", "ok", region="a", subscription="s")],
    ],
    ids=["aborted", "refused", "another message", "moved by hand"],
)
def test_an_acknowledgement_that_did_not_take_effect_twice_is_no_defect(
    second: list[HistoryEvent | list[HistoryEvent]],
) -> None:
    flat = [one for item in second for one in (item if isinstance(item, list) else [item])]
    expect("valid", processed.CHECK, [], [acknowledged(1, 4, 10), ended(1, 15), flat])


def test_what_several_transactions_processed_is_counted_by_key_and_by_region() -> None:
    """Entry 0 is processed twice without a key, 1 twice under a key, 2 in both regions, 3 once."""
    rows = [*(stored("a", n, n) for n in range(4)), *(stored("b", n, n) for n in range(4))]
    plain = [received(1, 0, 1), received(2, 0, 2), acknowledged(1, 3, 3, how="cumulative"), received(1, 3, 3)]
    of_key = [
        told_begun(3, 0, 4),
        told_begun(4, 1, 6),
        received(3, 1, 5),
        received(4, 1, 7),
        received(3, 2, 8),
        received(5, 2, 9, region="b"),
    ]
    ends = [*(ended(least, 20) for least in (1, 2, 3, 4)), ended(5, 20, region="b")]
    result = expect("valid", processed.CHECK, rows, [*plain, *of_key, *ends])
    assert result.sentence.endswith(
        "s: 5 messages processed, 1 of them more than once, 1 of them more than once under one key,"
        " 1 in more than one region."
    )
    assert sorted(kinds(result)) == ["processed again", "processed again under a key"]
