"""The kinds of simulated runs that `geoemu simulate` offers: the function that draws each, and its description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import NamedTuple

from tests.swarm.generator.small import drill, quiet
from tests.swarm.generator.swarm import swarm
from tests.swarm.generator.workload_plans import (
    carry,
    change_metadata,
    change_metadata_published_first,
    fail_at_states,
    hold_key,
    over_limits,
    over_wide_links,
    pass_by,
    rank,
    trim,
    with_adaptive_snapshots,
    with_frame_faults,
    with_policies,
    with_right_clocks,
    without_a_region,
)
from tests.swarm.names import seed_name
from tests.swarm.plan import Plan
from tests.swarm.workload import Workload
from tests.swarm.workloads import (
    chunking,
    compaction,
    dead_letter,
    delayed_delivery,
    encryption,
    expiry,
    inactive_topic,
    individual_acks,
    metadata_sync,
    partitioned_exclusive,
    quota_block,
    rate_limits,
    remote_limits,
    replication_status,
    retention,
    schema_compatibility,
    sticky_ranges,
    subscription_expiry,
    subscription_properties,
    topic_deletion,
    topic_termination,
)
from tests.swarm.workloads.partition_growth import growth


class Kind(NamedTuple):
    about: str
    """Description that `--list` prints."""
    draw: Callable[[int, Random], Plan]


def _policies_of(workload: Workload) -> Callable[[int, Random], Plan]:
    return partial(with_policies, workload)


def _frame_faults(seed: int, random: Random) -> Plan:
    """Draw a plan of another kind, mostly `swarm`, and add faults of frames."""
    kind = random.choice(FRAME_FAULT_KINDS) if random.random() < 0.5 else "swarm"
    return replace(with_frame_faults(KINDS[kind].draw(seed, random), random), kind="frame-faults")


FRAME_FAULT_KINDS = (
    "chunking",
    "inactive-topic",
    "metadata-sync",
    "partition-growth",
    "replication-status",
    "schema-compatibility",
    "subscription-retention",
    "topic-deletion",
)
"""Kinds whose replication uses commands besides those of messages, or depends on their order."""

KINDS: dict[str, Kind] = {
    "swarm": Kind("random workloads and faults", swarm),
    "failover": Kind("three regions, one kill, one cut link", drill),
    "no-faults": Kind("three regions, no faults", quiet),
    "adaptive-snapshots": Kind("snapshots by the adaptive schedule", with_adaptive_snapshots),
    "barriers": Kind("faults that begin at states of the protocols", fail_at_states),
    "chunking": Kind("large messages in chunks", partial(over_wide_links, chunking.WORKLOAD)),
    "compaction": Kind("topic compaction", partial(with_right_clocks, compaction.WORKLOAD, compaction.TOPIC)),
    "dead-letter": Kind(
        "redelivered messages, dead letters, retry letters", _policies_of(dead_letter.WORKLOAD)
    ),
    "delayed-delivery": Kind(
        "messages with a delivery time",
        partial(with_right_clocks, delayed_delivery.WORKLOAD, delayed_delivery.TOPIC),
    ),
    "encryption": Kind("end-to-end encrypted messages", partial(over_wide_links, encryption.WORKLOAD)),
    "expiry": Kind("expired and evicted messages, topics deleted by force", _policies_of(expiry.WORKLOAD)),
    "frame-faults": Kind(
        "commands, receipts and markers that links lose, delay, repeat or swap", _frame_faults
    ),
    "inactive-topic": Kind(
        "replication of topics that become inactive while links break", _policies_of(inactive_topic.WORKLOAD)
    ),
    "individual-acks": Kind(
        "individual acknowledgements replicated between regions", _policies_of(individual_acks.WORKLOAD)
    ),
    "metadata-sync": Kind("policies and partitions of several clusters (PIP-136)", change_metadata),
    metadata_sync.PUBLISHED_FIRST: Kind(
        "the same with metadata_order: upstream", change_metadata_published_first
    ),
    "non-persistent": Kind("non-persistent topics", pass_by),
    "partial-snapshots": Kind("snapshots without a region that is absent", without_a_region),
    "partition-growth": Kind(
        "growing partitioned topics, topic lists, patterns, table views", _policies_of(growth.WORKLOAD)
    ),
    "partitioned-exclusive": Kind(
        "exclusive producers of partitioned topics, compacted", _policies_of(partitioned_exclusive.WORKLOAD)
    ),
    "priority-levels": Kind("consumers with priority levels", rank),
    "quota-block": Kind("backlog quotas that block producers", _policies_of(quota_block.WORKLOAD)),
    "rate-limits": Kind(
        "limits of producers, consumers and subscriptions; rates", _policies_of(rate_limits.WORKLOAD)
    ),
    remote_limits.WORKLOAD.name: Kind(
        "limits that a region reaches during replication, partitions added while regions are down",
        over_limits,
    ),
    "replication-status": Kind(
        "subscriptions whose replication is turned off and on", _policies_of(replication_status.WORKLOAD)
    ),
    "retention": Kind("retention by age and size", partial(over_wide_links, retention.WORKLOAD)),
    "schema-compatibility": Kind(
        "schema compatibility strategies", _policies_of(schema_compatibility.WORKLOAD)
    ),
    "sticky-ranges": Kind(
        "Key_Shared consumers with sticky ranges or out of order",
        partial(with_right_clocks, sticky_ranges.WORKLOAD, sticky_ranges.TOPIC),
    ),
    "subscription-expiry": Kind(
        "expiry and deletion of unused subscriptions", _policies_of(subscription_expiry.WORKLOAD)
    ),
    "subscription-properties": Kind(
        "properties of subscriptions", _policies_of(subscription_properties.WORKLOAD)
    ),
    "subscription-retention": Kind("replicated subscriptions over trimmed or expired messages", carry),
    "topic-deletion": Kind("topics deleted in one of their regions", _policies_of(topic_deletion.WORKLOAD)),
    "topic-termination": Kind(
        "terminated topics, deletion without force, inactive topics", _policies_of(topic_termination.WORKLOAD)
    ),
    "transaction-key": Kind("programs that share a transaction key", hold_key),
    "trimming": Kind("retention of zero: acknowledged messages are trimmed", trim),
}
"""All kinds, by the name that `geoemu simulate` takes."""


def draw(kind: str, seed: int) -> Plan:
    """Return the plan of this kind and seed. Raises KeyError for an unknown kind."""
    return KINDS[kind].draw(seed, Random(f"{seed_name(kind)}/{seed}"))
