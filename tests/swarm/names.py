"""Names of workloads that were renamed: each former name with the present one.

Former names still seed the random sources of workloads and name their topics and programs, so that every seed keeps its
plan and its trace.
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
"""Former -> present name of each renamed workload or kind of simulated run."""

_SEED_NAMES = {present: former for former, present in FORMER_WORKLOADS.items()}


def public_name(seed_name: str) -> str:
    """Return the present name of the workload whose random sources are seeded with `seed_name`."""
    return FORMER_WORKLOADS.get(seed_name, seed_name)


def seed_name(public: str) -> str:
    """Return the name that seeds the random sources of the workload with the present name `public`."""
    return _SEED_NAMES.get(public, public)
