"""Each message is stored once: messages, batches, chunks; and messages from other regions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.topic.deduplication import ProducerDeduplication, PublishVerdict, SourceWatermarks
from emulator.model.values import BEFORE_EVERYTHING, Position

ACCEPT, DUPLICATE = PublishVerdict.ACCEPT, PublishVerdict.DUPLICATE


def through_json(state):
    return json.loads(json.dumps(state))


@pytest.fixture
def deduplication() -> ProducerDeduplication:
    return ProducerDeduplication()


def test_an_unknown_producer_is_accepted():
    assert ProducerDeduplication().admit("p", 0, 0) is ACCEPT


def test_what_was_admitted_is_a_duplicate_durable_or_not(deduplication):
    assert deduplication.admit("p", 5, 0) is ACCEPT
    assert deduplication.admit("p", 5, 0) is DUPLICATE
    assert deduplication.last_sequence_id("p") == -1, "nothing is durable yet"
    deduplication.persisted("p", 5)
    assert deduplication.admit("p", 3, 0) is DUPLICATE
    assert deduplication.last_sequence_id("p") == 5


def test_a_duplicate_changes_nothing(deduplication):
    deduplication.persisted("p", 9)
    assert deduplication.admit("p", 3, 4) is DUPLICATE
    assert deduplication.admit("p", 10, 10) is ACCEPT
    assert deduplication.last_sequence_id("p") == 9


def test_producers_do_not_share_numbers(deduplication):
    deduplication.persisted("p", 5)
    assert deduplication.admit("q", 5, 0) is ACCEPT


def test_a_batch_counts_with_its_highest_sequence_id(deduplication):
    deduplication.admit("p", 9, 0)
    assert deduplication.admit("p", 5, 9) is DUPLICATE
    assert deduplication.admit("p", 10, 14) is ACCEPT


def test_a_batch_with_a_new_part_is_stored_rather_than_lost(deduplication):
    """Upstream drops and acknowledges it (INV-1 forbids that)."""
    deduplication.persisted("p", 9)
    assert deduplication.admit("p", 8, 12) is ACCEPT


def test_chunks_are_accepted_until_the_last_one_was_recorded(deduplication):
    """All chunks of a message share one sequence id."""
    deduplication.persisted("p", 3)
    assert deduplication.admit("p", 4, 0, is_chunk_not_last=True) is ACCEPT
    assert deduplication.admit("p", 4, 0, is_chunk_not_last=True) is ACCEPT
    assert deduplication.admit("p", 4, 0) is ACCEPT
    assert deduplication.admit("p", 4, 0, is_chunk_not_last=True) is DUPLICATE
    assert deduplication.admit("p", 4, 0) is DUPLICATE


def test_a_checkpoint_knows_only_what_is_durable(deduplication):
    deduplication.persisted("p", 5)
    deduplication.admit("p", 8, 0)
    deduplication.admit("q", 2, 0)
    again = ProducerDeduplication.from_json(through_json(deduplication.to_json()))
    assert again.admit("p", 5, 0) is DUPLICATE
    assert again.admit("p", 6, 0) is ACCEPT
    assert again.admit("q", 0, 0) is ACCEPT


def test_the_names_used_least_recently_are_forgotten():
    deduplication = ProducerDeduplication(names_max=2)
    deduplication.persisted("a", 1)
    deduplication.persisted("b", 1)
    deduplication.admit("a", 2, 0)
    deduplication.persisted("c", 1)
    assert len(deduplication) == 2
    assert deduplication.last_sequence_id("a") == 1
    assert deduplication.last_sequence_id("b") == -1
    again = ProducerDeduplication.from_json(through_json(deduplication.to_json()), names_max=2)
    again.persisted("d", 1)
    assert again.admit("c", 1, 0) is DUPLICATE
    assert again.admit("a", 1, 0) is ACCEPT, "the order of use survives a checkpoint"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=30), st.data())
def test_resending_from_anywhere_stores_every_message_once_and_in_order(resend_from, data):
    """A producer sends 0..19, loses its connection at random and resumes from any unacknowledged message; the topic
    fails at random and is rebuilt from an old checkpoint and the entries after it."""
    deduplication, log, issued = ProducerDeduplication(), [], []
    checkpoint, checkpoint_at = deduplication.to_json(), 0
    next_id = 0
    for back in [*resend_from, 20]:
        next_id = max(deduplication.last_sequence_id("p") + 1, next_id - back) if back < 20 else 0
        for sequence_id in range(next_id, min(next_id + 5, 20) if back < 20 else 20):
            if deduplication.admit("p", sequence_id, 0) is ACCEPT:
                issued.append(sequence_id)
            next_id = sequence_id + 1
        durable = data.draw(st.integers(0, len(issued))) if back < 20 else len(issued)
        for sequence_id in issued[:durable]:
            log.append(sequence_id)
            deduplication.persisted("p", sequence_id)
        del issued[:durable]
        if data.draw(st.booleans()):
            checkpoint, checkpoint_at = through_json(deduplication.to_json()), len(log)
        if back < 20 and data.draw(st.booleans()):
            issued.clear()
            deduplication = ProducerDeduplication.from_json(checkpoint)
            for sequence_id in log[checkpoint_at:]:
                deduplication.persisted("p", sequence_id)
            next_id = deduplication.last_sequence_id("p") + 1
    assert log == list(range(20))


def test_a_watermark_only_grows():
    watermarks = SourceWatermarks()
    assert watermarks.lacks("eu", Position(1, 0))
    assert watermarks.advance("eu", Position(1, 7))
    assert not watermarks.advance("eu", Position(1, 3))
    assert watermarks.highest("eu") == (1, 7)
    assert not watermarks.lacks("eu", Position(1, 7))
    assert watermarks.lacks("eu", Position(1, 8))
    assert watermarks.lacks("eu", Position(2, 0)), "the topic was deleted and created again there"


def test_source_regions_do_not_share_positions():
    watermarks = SourceWatermarks()
    watermarks.advance("eu", Position(1, 7))
    assert watermarks.lacks("us", Position(1, 0))
    assert watermarks.highest("us") == BEFORE_EVERYTHING


def test_watermarks_survive_a_checkpoint():
    watermarks = SourceWatermarks()
    watermarks.advance("eu", Position(3, 14))
    again = SourceWatermarks.from_json(through_json(watermarks.to_json()))
    assert again.highest("eu") == (3, 14)


def test_upstream_drops_a_batch_that_overlaps(deduplication: ProducerDeduplication) -> None:
    """`compatibility: {overlapping_batches: upstream}`: its first message decides."""
    deduplication.drops_overlaps = True
    deduplication.admit("p", 5, 0)
    assert deduplication.admit("p", 4, 8) is PublishVerdict.DUPLICATE
    assert deduplication.admit("p", 6, 8) is PublishVerdict.ACCEPT
    deduplication.drops_overlaps = False
    assert deduplication.admit("p", 7, 9) is PublishVerdict.ACCEPT
