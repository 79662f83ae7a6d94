"""All words. To add one: a file that makes a Word, and its place in WORDS."""

from __future__ import annotations

from tests.swarm.checkers import general
from tests.swarm.workload import Word
from tests.swarm.workloads import (
    acknowledge_beyond_end,
    byzantine_peer,
    chunking,
    compaction,
    dead_letter,
    delayed_delivery,
    duplicate_send,
    encryption,
    exclusive_access,
    expiry,
    forged_claims,
    half_open,
    inactive_topic,
    key_shared,
    metadata_sync,
    name_collision,
    non_persistent,
    oversized_messages,
    partitioned_exclusive,
    policy_changes,
    priority_levels,
    quota_block,
    rate_limits,
    replication_status,
    restart,
    retention,
    schema_compatibility,
    schema_evolution,
    seek,
    slow_reader,
    sticky_ranges,
    subscription_expiry,
    subscription_properties,
    subscription_retention,
    topic_deletion,
    topic_termination,
    transaction_key,
    transactions,
    trimming,
    unsubscribe,
)
from tests.swarm.workloads.partition_growth import growth

WORDS: tuple[Word, ...] = (
    seek.WORD,
    unsubscribe.WORD,
    acknowledge_beyond_end.WORD,
    duplicate_send.WORD,
    name_collision.WORD,
    restart.WORD,
    forged_claims.WORD,
    slow_reader.WORD,
    policy_changes.WORD,
    oversized_messages.WORD,
    half_open.WORD,
    byzantine_peer.WORD,
    exclusive_access.WORD,
    key_shared.WORD,
    schema_evolution.WORD,
    transactions.WORD,
)

ASKED_FOR: tuple[Word, ...] = (
    transaction_key.WORD,
    metadata_sync.WORD,
    delayed_delivery.WORD,
    growth.WORD,
    compaction.WORD,
    trimming.WORD,
    expiry.WORD,
    quota_block.WORD,
    dead_letter.WORD,
    subscription_properties.WORD,
    sticky_ranges.WORD,
    priority_levels.WORD,
    rate_limits.WORD,
    chunking.WORD,
    encryption.WORD,
    schema_compatibility.WORD,
    partitioned_exclusive.WORD,
    subscription_retention.WORD,
    non_persistent.WORD,
    retention.WORD,
    topic_termination.WORD,
    subscription_expiry.WORD,
    topic_deletion.WORD,
    inactive_topic.WORD,
    replication_status.WORD,
)
"""Words with worlds of their own, which are drawn when they are asked for by the word's name: seeds of the swarm stay
what they are."""

CHECKS = (*general.CHECKS, *(check for word in (*WORDS, *ASKED_FOR) for check in word.checks))
"""What every world is judged by."""
