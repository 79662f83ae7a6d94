"""Names of workloads that were renamed: each former name with the present one.

Former names of workloads remain the seeds of their random sources, and the names of their topics and programs, so that
every seed still has the same plan and the same trace.
"""

from __future__ import annotations

FORMER_WORKLOADS = {
    "drill": "failover",
    "quiet": "no-faults",
    "acknowledge-ahead": "acknowledge-beyond-end",
    "administer": "policy-changes",
    "carry": "subscription-retention",
    "change-metadata": "metadata-sync",
    "change-metadata-upstream": "metadata-sync-upstream",
    "claim": "exclusive-access",
    "compact": "compaction",
    "comply": "schema-compatibility",
    "cut-up": "chunking",
    "delay": "delayed-delivery",
    "delete-here": "topic-deletion",
    "encrypt": "encryption",
    "evolve": "schema-evolution",
    "expire": "expiry",
    "fall-silent": "half-open",
    "finish": "topic-termination",
    "forge": "forged-claims",
    "give-up": "dead-letter",
    "hoard": "slow-reader",
    "hold-key": "transaction-key",
    "idle": "subscription-expiry",
    "keep-away": "quota-block",
    "label": "subscription-properties",
    "lie": "byzantine-peer",
    "limit": "rate-limits",
    "neighbours": "name-collision",
    "oversize": "oversized-messages",
    "own-all": "partitioned-exclusive",
    "pass-by": "non-persistent",
    "rank": "priority-levels",
    "repeat": "duplicate-send",
    "retain": "retention",
    "share-keys": "key-shared",
    "spread": "partition-growth",
    "stick-to-ranges": "sticky-ranges",
    "transact": "transactions",
    "trim": "trimming",
}
"""Workloads and kinds of simulated runs."""

_SEED_NAMES = {present: former for former, present in FORMER_WORKLOADS.items()}


def public_name(seed_name: str) -> str:
    """The present name of a workload, by the one that its random sources are seeded with."""
    return FORMER_WORKLOADS.get(seed_name, seed_name)


def seed_name(public: str) -> str:
    """What the random sources of a workload are seeded with, by its present name."""
    return _SEED_NAMES.get(public, public)
