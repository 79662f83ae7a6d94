"""The rules by which retention, TTL and quotas remove entries."""

from __future__ import annotations

import pytest

from emulator.core.policies.lifetime import (
    KEEP_EVERYTHING,
    Quota,
    QuotaAction,
    QuotaKind,
    Retention,
)
from emulator.core.topic.retention import (
    AGE_PARTS,
    LOOKS_MAX,
    AgedEntry,
    Ages,
    Backlog,
    LogHold,
    LogHolds,
    Trimming,
    backlog_bytes,
    exceeded,
)
from emulator.errors import ServerError

MINUTE = 60_000
MEGABYTE = 1_048_576


def goes(retention: Retention, entries: list[AgedEntry], now_ms: int) -> int:
    """Return how many of the oldest entries are removed."""
    looking = Trimming(
        retention, Ages(), now_ms=now_ms, size_bytes=sum(entry.size_bytes for entry in entries)
    )
    for index, entry in enumerate(entries):
        if not looking.goes(entry):
            return index
    return len(entries)


def test_what_is_older_goes_and_what_is_younger_stays() -> None:
    entries = [AgedEntry(i, i * MINUTE, 10) for i in range(10)]
    assert goes(Retention(5, -1), entries, now_ms=9 * MINUTE) == 5
    assert goes(KEEP_EVERYTHING, entries, now_ms=10**12) == 0


def test_what_is_too_much_goes_however_young() -> None:
    entries = [AgedEntry(i, 0, MEGABYTE) for i in range(10)]
    assert goes(Retention(-1, 3), entries, now_ms=0) == 7
    assert goes(Retention(60, 3), entries, now_ms=0) == 7, "either limit is enough"


def test_a_message_that_claims_the_future_is_as_old_as_it_is_known() -> None:
    """Otherwise one client whose clock is wrong would keep everything after it for ever."""
    ages, entry = Ages(), AgedEntry(7, 10**15, 1)
    assert not ages.is_older(entry, 1_000, 50_000)
    assert ages.is_older(entry, 1_000, 51_000)
    assert not ages.is_older(AgedEntry(8, 10**15, 1), 1_000, 51_000), "another entry starts afresh"


def test_many_messages_from_the_future_do_not_delay_each_other() -> None:
    """The age of each counts from when the log was seen to reach past it, in whatever order they are asked for."""
    ages, forged = Ages(), [AgedEntry(entry_id, 10**15, 1) for entry_id in range(3)]
    ages.looked(3, 1_000)
    assert ages.published_ms(forged[0], 1_500) == ages.published_ms(forged[2], 1_500) == 1_000
    ages.looked(4, 2_000)
    assert not ages.is_older(AgedEntry(3, 10**15, 1), 1_000, 2_500)
    assert all(ages.is_older(one, 1_000, 2_000) for one in forged)


def test_what_is_remembered_of_a_long_log_is_little_and_nearly_exact() -> None:
    ages = Ages()
    for second in range(86_400):
        ages.looked(second + 1, second)
    assert len(ages._ends) <= LOOKS_MAX
    for entry_id in range(0, 86_400, 100):
        known = ages.published_ms(AgedEntry(entry_id, 10**15, 1), 86_400)
        assert 0 <= known - entry_id <= (86_400 - entry_id) / AGE_PARTS


def test_the_lowest_hold_counts() -> None:
    assert LogHolds({}).first(10) == LogHold(10, "no component")
    needs = {
        "cursors": lambda: [LogHold(4, "subscription a"), LogHold(9, "subscription b")],
        "replicators": lambda: [LogHold(3, "the replicator to eu")],
    }
    assert LogHolds(needs).first(10) == LogHold(3, "the replicator to eu")


def test_a_backlog_is_its_share_of_the_log() -> None:
    assert backlog_bytes(1_000, 0, 5, 10) == 500
    assert backlog_bytes(1_000, 0, 0, 10) == 1_000
    assert backlog_bytes(1_000, 7, 3, 17) == 1_000, "trimmed entries count in no backlog"
    assert backlog_bytes(0, 5, 5, 5) == 0


@pytest.mark.parametrize("action", list(QuotaAction))
def test_a_quota_determines_the_error_of_producers(action: QuotaAction) -> None:
    quotas = {
        QuotaKind.SIZE: Quota(100, -1, action),
        QuotaKind.AGE: Quota(-1, 10, action),
    }
    assert exceeded(quotas, Backlog(100, 10_000, "s")) == []
    size, age = exceeded(quotas, Backlog(101, 10_001, "subscription s"))
    assert (size.kind, age.kind) == (QuotaKind.SIZE, QuotaKind.AGE)
    assert "subscription s" in size.sentence
    assert "the quota is 100" in size.sentence
    refusal = size.refusal()
    codes = {
        QuotaAction.HOLD: ServerError.ProducerBlockedQuotaExceededError,
        QuotaAction.EXCEPTION: ServerError.ProducerBlockedQuotaExceededException,
        QuotaAction.EVICT: None,
    }
    assert (refusal.code if refusal is not None else None) == codes[action]
