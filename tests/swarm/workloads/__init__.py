"""All workloads. To add one, write a module with a `WORKLOAD`, and list it in SWARM_WORKLOADS or NAMED_WORKLOADS."""

from __future__ import annotations

from tests.swarm.checkers import general
from tests.swarm.workload import Workload
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
    partial_snapshots,
    partitioned_exclusive,
    policy_changes,
    priority_levels,
    quota_block,
    rate_limits,
    remote_limits,
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

SWARM_WORKLOADS: tuple[Workload, ...] = (
    seek.WORKLOAD,
    unsubscribe.WORKLOAD,
    acknowledge_beyond_end.WORKLOAD,
    duplicate_send.WORKLOAD,
    name_collision.WORKLOAD,
    restart.WORKLOAD,
    forged_claims.WORKLOAD,
    slow_reader.WORKLOAD,
    policy_changes.WORKLOAD,
    oversized_messages.WORKLOAD,
    half_open.WORKLOAD,
    byzantine_peer.WORKLOAD,
    exclusive_access.WORKLOAD,
    key_shared.WORKLOAD,
    schema_evolution.WORKLOAD,
    transactions.WORKLOAD,
)

NAMED_WORKLOADS: tuple[Workload, ...] = (
    transaction_key.WORKLOAD,
    metadata_sync.WORKLOAD,
    delayed_delivery.WORKLOAD,
    growth.WORKLOAD,
    compaction.WORKLOAD,
    trimming.WORKLOAD,
    expiry.WORKLOAD,
    quota_block.WORKLOAD,
    dead_letter.WORKLOAD,
    subscription_properties.WORKLOAD,
    sticky_ranges.WORKLOAD,
    priority_levels.WORKLOAD,
    rate_limits.WORKLOAD,
    chunking.WORKLOAD,
    encryption.WORKLOAD,
    schema_compatibility.WORKLOAD,
    partitioned_exclusive.WORKLOAD,
    subscription_retention.WORKLOAD,
    non_persistent.WORKLOAD,
    retention.WORKLOAD,
    topic_termination.WORKLOAD,
    subscription_expiry.WORKLOAD,
    topic_deletion.WORKLOAD,
    inactive_topic.WORKLOAD,
    replication_status.WORKLOAD,
    remote_limits.WORKLOAD,
    partial_snapshots.WORKLOAD,
)
"""Workloads with their own runs, which are drawn only for the workload's name. The swarm does not mix them in, so that
its seeds keep their plans."""

CHECKS = (
    *general.CHECKS,
    *(check for workload in (*SWARM_WORKLOADS, *NAMED_WORKLOADS) for check in workload.checks),
)
"""The checks of every run."""
