"""Every check on a few literal rows: what makes it invalid, valid or unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulator.run.history_events import HistoryEvent
from emulator.run.service_contract import Contract
from spark_jobs.checks import (
    consumed,
    converged,
    measured,
    order,
    phantom_writes,
    places,
    position_claims,
    replicated,
    service_contract,
)
from spark_jobs.checks import stored as stored_check
from spark_jobs.checks.circumstances import Circumstances
from spark_jobs.checks.judging import Check
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.sources.lifetimes import Lifetime
from spark_jobs.sources.run_folder import Namespace
from tests.spark_jobs.literal import (
    NAMESPACES,
    TOPIC,
    acknowledged,
    judged,
    published,
    received,
    stored,
    subscribed,
)

BOTH_0_1 = [stored("a", 0, 0), stored("a", 1, 1), stored("b", 0, 0), stored("b", 1, 1)]
"""Messages 0 and 1 of region a, in both regions."""


@pytest.mark.parametrize(
    "check",
    [
        stored_check.CHECK,
        replicated.CHECK,
        phantom_writes.CHECK,
        order.CHECK,
        consumed.CHECK,
        converged.CHECK,
        measured.OUTCOMES,
        measured.REDELIVERED,
        places.CHECK,
        position_claims.SNAPSHOTS,
        position_claims.CURSORS,
    ],
    ids=lambda check: check.name,
)
def test_without_any_evidence_nothing_is_valid(engine: QueryEngine, check: Check) -> None:
    assert judged(engine, check).verdict == "not applicable"


class TestStored:
    def test_all_there(self, engine: QueryEngine) -> None:
        result = judged(engine, stored_check.CHECK, BOTH_0_1, [published(0), published(1)])
        assert (result.verdict, result.invariant) == ("valid", "INV-1")
        assert "2 acknowledged messages" in result.sentence

    def test_an_acknowledged_message_that_is_not_in_its_own_region_is_lost(self, engine: QueryEngine) -> None:
        rows = [stored("a", 0, 0), stored("b", 0, 0), stored("b", 1, 1)]
        result = judged(engine, stored_check.CHECK, rows, [published(0), published(1)])
        assert result.verdict == "invalid"
        (witness,) = result.witness
        assert (witness["region"], witness["producer"], witness["sequence_id"]) == ("a", "p", 1)
        assert witness["origin_position"] == "1:1"

    def test_what_was_never_acknowledged_may_be_missing(self, engine: QueryEngine) -> None:
        result = judged(
            engine,
            stored_check.CHECK,
            BOTH_0_1,
            [published(0), published(7, "unknown"), published(8, "failed")],
        )
        assert result.verdict == "valid"

    def test_what_retention_let_go_is_neither_lost_nor_proof(self, engine: QueryEngine) -> None:
        rows = [stored("a", 1, 1), stored("b", 0, 0), stored("b", 1, 1)]
        trimmed = [("a", TOPIC, {1: 1})]
        result = judged(engine, stored_check.CHECK, rows, [published(0), published(1)], trimmed=trimmed)
        assert result.verdict == "valid"
        assert "Not checked: 1 copy that retention removed." in result.sentence

    def test_a_damaged_log_proves_no_loss(self, engine: QueryEngine) -> None:
        damaged = Circumstances(NAMESPACES, damaged_regions=frozenset("a"))
        result = judged(engine, stored_check.CHECK, BOTH_0_1[2:], [published(0)], circumstances=damaged)
        assert result.verdict == "unknown"
        assert "the log of a is missing or damaged" in result.sentence


class TestReplicated:
    def test_a_region_that_holds_later_ones_has_lost_what_it_does_not_hold(self, engine: QueryEngine) -> None:
        rows = [stored("a", 0, 0), stored("a", 1, 1), stored("b", 0, 1)]
        result = judged(engine, replicated.CHECK, rows, [published(0), published(1)])
        assert result.verdict == "invalid"
        assert [(one["region"], one["sequence_id"]) for one in result.witness] == [("b", 0)]

    @pytest.mark.parametrize(
        ("circumstances", "reason"),
        [
            (Circumstances(NAMESPACES, away=frozenset("a")), "a was down when the history ended"),
            (Circumstances(NAMESPACES, away=frozenset("b")), "b was down when the history ended"),
            (Circumstances(NAMESPACES, cut=frozenset({("a", "b")})), "the link from a to b was cut"),
            (Circumstances(NAMESPACES, read_at_ms=1000.0), "may still be in progress"),
        ],
    )
    def test_a_region_that_is_behind_for_a_reason_may_still_catch_up(
        self, engine: QueryEngine, circumstances: Circumstances, reason: str
    ) -> None:
        rows = [stored("a", 0, 0), stored("a", 1, 1), stored("b", 0, 0)]
        result = judged(
            engine, replicated.CHECK, rows, [published(0), published(1)], circumstances=circumstances
        )
        assert result.verdict == "unknown"
        assert reason in result.sentence

    def test_a_region_that_is_behind_for_no_reason_has_lost_it(self, engine: QueryEngine) -> None:
        rows = [stored("a", 0, 0), stored("a", 1, 1), stored("b", 0, 0)]
        assert judged(engine, replicated.CHECK, rows, [published(0), published(1)]).verdict == "invalid"

    def test_a_second_copy_is_a_violation_where_deduplication_is_on(self, engine: QueryEngine) -> None:
        rows = [stored("a", 0, 0), stored("a", 1, 0), stored("b", 0, 0), stored("b", 1, 0)]
        result = judged(engine, replicated.CHECK, rows, [published(0)])
        assert result.verdict == "invalid"
        assert result.witness[0]["times"] == 2
        assert result.witness[0]["position"] == "1:0:-1 and 1:1:-1"

    def test_a_second_copy_is_legitimate_where_deduplication_is_off(self, engine: QueryEngine) -> None:
        rows = [stored("a", 0, 0), stored("a", 1, 0), stored("b", 0, 0), stored("b", 1, 0)]
        off = Circumstances({"public/default": Namespace(("a", "b"), deduplication=False)})
        result = judged(engine, replicated.CHECK, rows, [published(0)], circumstances=off)
        assert result.verdict == "valid"
        assert "these duplicates are allowed" in result.sentence

    def test_replication_may_not_double_even_then(self, engine: QueryEngine) -> None:
        rows = [stored("a", 0, 0), stored("b", 0, 0), stored("b", 1, 0)]
        off = Circumstances({"public/default": Namespace(("a", "b"), deduplication=False)})
        assert judged(engine, replicated.CHECK, rows, [published(0)], circumstances=off).verdict == "invalid"

    def test_a_message_is_expected_only_where_its_sender_wants_it(self, engine: QueryEngine) -> None:
        rows = [stored("a", 0, 0, replicate_to=["__local__"])]
        asked = published(0, replicate_to=["__local__"])
        assert judged(engine, replicated.CHECK, rows, [asked]).verdict == "valid"
        # A restriction in the log is no excuse when the client did not ask for it.
        assert judged(engine, replicated.CHECK, rows, [published(0)]).verdict == "invalid"
        assert judged(engine, phantom_writes.CHECK, rows, [published(0)]).witness[0]["kind"] == "restricted"

    def test_other_namespaces_have_other_regions(self, engine: QueryEngine) -> None:
        topic = "persistent://public/local/t"
        local = Circumstances({**NAMESPACES, "public/local": Namespace(("a",), deduplication=True)})
        rows = [stored("a", 0, 0, topic=topic)]
        result = judged(engine, replicated.CHECK, rows, [published(0, topic=topic)], circumstances=local)
        assert result.verdict == "valid"

    def test_what_a_region_let_go_before_its_oldest_is_not_judged(self, engine: QueryEngine) -> None:
        rows = [stored("a", 0, 0), stored("a", 1, 1), stored("a", 2, 2), stored("b", 1, 1)]
        asked = [published(0), published(1), published(2)]
        result = judged(engine, replicated.CHECK, rows, asked, trimmed=[("b", TOPIC, {1: 1})])
        assert result.verdict == "invalid"
        assert [one["sequence_id"] for one in result.witness] == [2]
        assert "Not checked: 1 copy" in result.sentence

    def test_partitions_belong_to_the_topic_that_the_history_speaks_of(self, engine: QueryEngine) -> None:
        rows = [stored(region, 0, 0, topic=f"{TOPIC}-partition-3") for region in "ab"]
        assert judged(engine, replicated.CHECK, rows, [published(0)]).verdict == "valid"


class TestUnasked:
    def test_a_known_producer_never_asked_for_it(self, engine: QueryEngine) -> None:
        rows = [*BOTH_0_1, stored("a", 2, 99)]
        result = judged(engine, phantom_writes.CHECK, rows, [published(0), published(1)])
        assert result.verdict == "invalid"
        assert [(one["sequence_id"], one["position"]) for one in result.witness] == [(99, "1:2:-1")]

    def test_with_a_part_of_the_history_gone_it_proves_nothing(self, engine: QueryEngine) -> None:
        gone = Circumstances(NAMESPACES, history_damaged=True)
        rows = [*BOTH_0_1, stored("a", 2, 99)]
        result = judged(engine, phantom_writes.CHECK, rows, [published(0), published(1)], circumstances=gone)
        assert result.verdict == "unknown"

    def test_a_producer_that_the_history_does_not_know_leaves_it_open(self, engine: QueryEngine) -> None:
        rows = [*BOTH_0_1, stored("a", 2, 5, producer="somebody")]
        result = judged(engine, phantom_writes.CHECK, rows, [published(0), published(1)])
        assert result.verdict == "unknown"
        assert "somebody" in result.sentence

    def test_topics_that_the_history_does_not_know_leave_it_open(self, engine: QueryEngine) -> None:
        rows = [
            *BOTH_0_1,
            stored("a", 0, 5, producer="somebody", topic="persistent://public/default/other"),
            stored("a", 3, 0, producer="pulsar.marker", marker_type=10),
        ]
        assert judged(engine, phantom_writes.CHECK, rows, [published(0), published(1)]).verdict == "unknown"

    def test_what_certainly_failed_must_not_be_stored(self, engine: QueryEngine) -> None:
        result = judged(engine, phantom_writes.CHECK, BOTH_0_1, [published(0), published(1, "failed")])
        assert result.verdict == "invalid"
        assert result.witness[0]["kind"] == "refused"

    def test_what_may_have_happened_may_be_stored(self, engine: QueryEngine) -> None:
        assert (
            judged(engine, phantom_writes.CHECK, BOTH_0_1, [published(0), published(1, "unknown")]).verdict
            == "valid"
        )


class TestOrder:
    def test_a_message_behind_a_later_one(self, engine: QueryEngine) -> None:
        rows = [stored("a", 0, 0), stored("a", 1, 1), stored("b", 0, 1), stored("b", 1, 0)]
        result = judged(engine, order.CHECK, rows)
        assert result.verdict == "invalid"
        assert [(one["region"], one["sequence_id"], one["position"]) for one in result.witness] == [
            ("b", 0, "1:1:-1")
        ]

    def test_a_second_copy_stands_behind_by_nature(self, engine: QueryEngine) -> None:
        rows = [stored("a", 0, 0), stored("a", 1, 1), stored("a", 2, 0)]
        assert judged(engine, order.CHECK, rows).verdict == "valid"

    def test_origins_may_interleave(self, engine: QueryEngine) -> None:
        rows = [
            stored("a", 0, 5),
            stored("a", 1, 0, origin="b"),
            stored("a", 2, 6),
            stored("a", 3, 1, producer="q"),
        ]
        assert judged(engine, order.CHECK, rows).verdict == "valid"


class TestTrimmed:
    """INV-36: entries that retention removed prove nothing."""

    def test_a_delivery_may_name_a_place_that_was_let_go(self, engine: QueryEngine) -> None:
        events = [subscribed("a"), published(0), received(0, "a"), received(9, "a", named=False)]
        rows = [stored("b", 0, 0)]
        assert judged(engine, places.CHECK, rows, events).verdict == "invalid"
        trimmed = [("a", TOPIC, {1: 10})]
        assert judged(engine, places.CHECK, rows, events, trimmed=trimmed).verdict == "valid"

    def test_a_place_that_is_still_there_is_judged(self, engine: QueryEngine) -> None:
        events = [subscribed("a"), published(0), received(0, "a", entry=7)]
        trimmed = [("a", TOPIC, {1: 7})]
        assert judged(engine, places.CHECK, BOTH_0_1, events, trimmed=trimmed).verdict == "invalid"


class TestConsumed:
    def test_seen_in_either_region(self, engine: QueryEngine) -> None:
        events = [
            subscribed("a"),
            subscribed("b", 30),
            published(0),
            published(1),
            received(0, "a"),
            received(1, "b", 60),
        ]
        result = judged(engine, consumed.CHECK, BOTH_0_1, events)
        assert (result.verdict, result.invariant) == ("valid", "INV-5")

    def test_skipped_when_a_later_one_was_received_in_the_last_region(self, engine: QueryEngine) -> None:
        events = [subscribed("a"), published(0), published(1), received(1, "b", entry=1)]
        result = judged(engine, consumed.CHECK, BOTH_0_1, events)
        assert result.verdict == "invalid"
        assert [(one["sequence_id"], one["position"]) for one in result.witness] == [(0, "1:0:-1")]

    @pytest.mark.parametrize(
        ("lifetime", "verdict"),
        [
            (Lifetime(expires_after_ms=0.0), "valid"),
            (Lifetime(expires_after_ms=10**9), "invalid"),
            (Lifetime(trims=True), "invalid"),
        ],
    )
    def test_what_may_have_expired_is_owed_to_nobody(
        self, engine: QueryEngine, lifetime: Lifetime, verdict: str
    ) -> None:
        """INV-37: neither lost nor proof. A younger skipped message is lost."""
        known = Circumstances({"public/default": replace(NAMESPACES["public/default"], lifetime=lifetime)})
        events = [subscribed("a"), published(0), published(1), received(1, "b", entry=1)]
        result = judged(engine, consumed.CHECK, BOTH_0_1, events, circumstances=known, end_ms=1_000.0)
        assert result.verdict == verdict
        assert ("Not checked: 1 message not received" in result.sentence) == (verdict == "valid")

    def test_not_reached_yet_is_not_proven_lost(self, engine: QueryEngine) -> None:
        events = [subscribed("a"), published(0), published(1), received(0, "a")]
        result = judged(engine, consumed.CHECK, BOTH_0_1, events)
        assert result.verdict == "unknown"
        assert "had not reached them" in result.sentence

    @pytest.mark.parametrize(("given", "verdict"), [(0, "unknown"), (1, "invalid")])
    def test_within_a_batch_only_what_stands_before_something_received_was_skipped(
        self, engine: QueryEngine, given: int, verdict: str
    ) -> None:
        batch = [stored(region, 0, n, source="1:0", batch_index=n) for region in ("a", "b") for n in (0, 1)]
        asked = [event for n in (0, 1) for event in published(n, entry=0)]
        events = [subscribed("a"), *asked, received(given, "a", entry=0, batch_index=given)]
        assert judged(engine, consumed.CHECK, batch, events).verdict == verdict

    def test_only_what_was_asked_for_after_the_subscription_existed(self, engine: QueryEngine) -> None:
        events = [published(0, at_ms=5), subscribed("a", 7), published(1), received(1, "a")]
        assert judged(engine, consumed.CHECK, BOTH_0_1, events).verdict == "valid"

    def test_who_reads_compacted_is_not_owed_what_it_was_not_given(self, engine: QueryEngine) -> None:
        """Compaction left out message 0. Without the note in the history, that message is skipped."""
        given = [published(0), published(1), received(1, "a")]
        compacted = judged(engine, consumed.CHECK, BOTH_0_1, [subscribed("a", compacted=True), *given])
        assert compacted.verdict == "valid"
        assert "1 message that subscriptions with compacted reads did not receive" in compacted.sentence
        assert judged(engine, consumed.CHECK, BOTH_0_1, [subscribed("a"), *given]).verdict != "valid"

    def test_received_but_never_asked_for_means_that_history_is_missing(self, engine: QueryEngine) -> None:
        events = [subscribed("a"), published(0), received(0, "a"), received(1, "a")]
        result = judged(engine, consumed.CHECK, BOTH_0_1, events)
        assert result.verdict == "unknown"
        assert "a part of the history is missing" in result.sentence


class TestConverged:
    def test_needs_no_history(self, engine: QueryEngine) -> None:
        assert judged(engine, converged.CHECK, BOTH_0_1).verdict == "valid"

    def test_unacknowledged_messages_count_too(self, engine: QueryEngine) -> None:
        result = judged(engine, converged.CHECK, BOTH_0_1[:3], [published(0), published(1, "unknown")])
        assert result.verdict == "invalid"
        assert [(one["region"], one["sequence_id"]) for one in result.witness] == [("b", 1)]

    def test_the_bytes_must_be_the_same(self, engine: QueryEngine) -> None:
        result = judged(engine, converged.CHECK, [stored("a", 0, 0, digest=1), stored("b", 0, 0, digest=2)])
        assert result.verdict == "invalid"
        assert result.witness[0]["kind"] == "differs"


class TestFigures:
    def test_received_again(self, engine: QueryEngine) -> None:
        events = [received(0, "a"), received(0, "b", 60), received(0, "b", 61), received(1, "b", 62)]
        result = judged(engine, measured.REDELIVERED, [], events)
        assert (result.verdict, result.invariant) == ("measured", "info")
        # The subscription is not replicated: each region has its own.
        assert (
            "1 of 3 received messages were received more than once (1 repeated delivery)" in result.sentence
        )

    def test_outcomes(self, engine: QueryEngine) -> None:
        events = [published(0), published(1, "unknown"), published(2, "failed"), published(3, "unknown")]
        result = judged(engine, measured.OUTCOMES, BOTH_0_1, events)
        assert result.sentence == (
            "4 messages published: 1 acknowledged, 1 certainly failed, 2 without a response"
            " (1 of these are stored)."
        )

    def test_gap_ends_in_another_region_not_in_the_clients_own_memory(self, engine: QueryEngine) -> None:
        events = [
            received(0, "a", 900),
            received(1, "a", 1005),
            received(1, "b", 1840),
            received(2, "b", 1900),
        ]
        result = judged(engine, measured.FAILOVER_GAP, [], events, outages=[("a", 1000.0, 9000.0)])
        assert "0.840 s later, in b" in result.sentence
        assert (result.witness[0]["region"], result.witness[0]["other_region"]) == ("a", "b")

    def test_gap_ends_in_the_same_region_once_it_is_back(self, engine: QueryEngine) -> None:
        events = [received(0, "a", 900), received(1, "a", 4000)]
        result = judged(engine, measured.FAILOVER_GAP, [], events, outages=[("a", 1000.0, 3500.0)])
        assert "3.000 s later, in a" in result.sentence

    def test_a_subscription_that_was_elsewhere_has_no_gap(self, engine: QueryEngine) -> None:
        events = [received(0, "b", 900), received(1, "b", 1800)]
        result = judged(engine, measured.FAILOVER_GAP, [], events, outages=[("a", 1000.0, None)])
        assert result.sentence == "No subscription was in a region that went down."

    def test_a_subscription_that_never_went_on_is_named(self, engine: QueryEngine) -> None:
        result = judged(
            engine, measured.FAILOVER_GAP, [], [received(0, "a", 900)], outages=[("a", 1000.0, None)]
        )
        assert "s after a went down" in result.sentence


class TestAnswered:
    """Subscription s answers topic t on another topic; its message n has the key `n`."""

    INVOICES = "persistent://public/default/invoices"
    CHECK = service_contract.check_of([Contract("s", TOPIC, INVOICES)])

    def orders(self, *numbers: int) -> list[HistoryEvent]:
        events = [event for n in numbers for event in published(n, key=str(n))]
        given = [event for n in numbers for event in (received(n, "a"), acknowledged("a", n))]
        return [subscribed("a"), *events, *given]

    def invoice(self, number: int, key: int, *outcomes: str) -> list[HistoryEvent]:
        return published(number, *outcomes, topic=self.INVOICES, session="two", key=str(key))

    def test_each_acknowledged_message_has_an_answer(self, engine: QueryEngine) -> None:
        events = [self.orders(0, 1), self.invoice(0, 0), self.invoice(1, 1), self.invoice(2, 1)]
        result = judged(engine, self.CHECK, BOTH_0_1, events)
        assert (result.verdict, result.invariant) == ("valid", "INV-20")
        assert "2 acknowledged messages, each with a result" in result.sentence

    @pytest.mark.parametrize("outcome", ["failed", "unknown"])
    def test_one_whose_answer_was_not_stored_was_let_go_too_early(
        self, engine: QueryEngine, outcome: str
    ) -> None:
        events = [self.orders(0, 1), self.invoice(0, 0), self.invoice(1, 1, outcome)]
        result = judged(engine, self.CHECK, BOTH_0_1, events)
        assert result.verdict == "invalid"
        assert [(one["kind"], one["sequence_id"]) for one in result.witness] == [("without a result", 1)]

    def test_the_witness_names_where_it_was_let_go_and_where_its_answer_was_asked_for(
        self, engine: QueryEngine
    ) -> None:
        """Not where and when the order was published: a fault there and then is no cause."""
        orders = [subscribed("b"), published(0, key="0"), received(0, "b"), acknowledged("b", 0, 900.0)]
        (witness,) = judged(engine, self.CHECK, BOTH_0_1, orders).witness
        assert (witness["region"], witness.get("other_region")) == ("b", None)
        assert (witness["at_ms"], witness["until_ms"]) == (900.0, 900.0)
        failed = published(0, "failed", region="a", at_ms=800.0, topic=self.INVOICES, session="two", key="0")
        (witness,) = judged(engine, self.CHECK, BOTH_0_1, [*orders, failed]).witness
        assert (witness["region"], witness["other_region"]) == ("b", "a")
        assert (witness["at_ms"], witness["until_ms"]) == (800.0, 900.0)

    def test_a_cumulative_acknowledgement_lets_go_of_all_before_it(self, engine: QueryEngine) -> None:
        orders = [published(n, key=str(n)) for n in (0, 1)]
        given = [received(0, "b"), received(1, "b")]
        said = [acknowledged("b", 1, 700.0, how="cumulative"), acknowledged("b", 0, 800.0)]
        found = judged(engine, self.CHECK, BOTH_0_1, [subscribed("b"), *orders, *given, *said]).witness
        assert [(one["sequence_id"], one["region"], one["at_ms"]) for one in found] == [
            (0, "b", 700.0),
            (1, "b", 700.0),
        ]

    def test_an_answer_without_a_receipt_counts_where_it_is_stored(self, engine: QueryEngine) -> None:
        stored_all_the_same = [stored("a", 0, 0, topic=self.INVOICES)]
        events = [self.orders(0), self.invoice(0, 0, "unknown")]
        assert judged(engine, self.CHECK, [*BOTH_0_1, *stored_all_the_same], events).verdict == "valid"

    def test_what_was_not_acknowledged_is_owed_nothing_yet(self, engine: QueryEngine) -> None:
        events = [subscribed("a"), published(0, key="0"), received(0, "a")]
        assert judged(engine, self.CHECK, BOTH_0_1, events).verdict == "not applicable"

    def test_several_of_one_key_want_as_many_answers(self, engine: QueryEngine) -> None:
        two = [event for n in (0, 1) for event in published(n, key="same")]
        given = [event for n in (0, 1) for event in (received(n, "a"), acknowledged("a", n))]
        answer = published(0, topic=self.INVOICES, session="two", key="same")
        result = judged(engine, self.CHECK, BOTH_0_1, [subscribed("a"), two, given, answer])
        assert result.verdict == "invalid"
        assert result.witness[0]["times"] == 1

    def test_a_history_that_is_not_whole_proves_nothing(self, engine: QueryEngine) -> None:
        damaged = Circumstances(NAMESPACES, history_damaged=True)
        result = judged(engine, self.CHECK, BOTH_0_1, [self.orders(0)], circumstances=damaged)
        assert result.verdict == "unknown"
