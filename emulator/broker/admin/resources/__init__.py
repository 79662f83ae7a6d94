"""The rows of the HTTP port, one module per subject. A new subject is a module with `RESOURCES` that is listed here."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.broker.admin.resource import Resource, RouteTable
from emulator.broker.admin.resources import (
    brokers,
    clusters,
    conditions,
    emulator,
    failover,
    machine,
    messages,
    namespaces,
    partitions,
    permissions,
    policies,
    protocol_events,
    removed_regions,
    replication,
    schemas,
    stored_only,
    subscriptions,
    tenants,
    topics,
    transaction_keys,
    transactions,
    unsupported,
)

SUBJECTS: dict[str, Sequence[Resource]] = {
    "Brokers": brokers.RESOURCES,
    "Clusters": (*clusters.RESOURCES, *stored_only.FAILURE_DOMAINS),
    "Tenants": tenants.RESOURCES,
    "Namespaces": namespaces.RESOURCES,
    "Policies": (
        *policies.RESOURCES,
        *namespaces.PROPERTIES_OF,
        *permissions.RESOURCES,
        *stored_only.RESOURCE_GROUPS,
        *namespaces.ANTI_AFFINITY_GROUPS,
    ),
    "Topics": topics.RESOURCES,
    "Subscriptions": subscriptions.RESOURCES,
    "Messages": messages.RESOURCES,
    "Partitioned topics": partitions.RESOURCES,
    "Transactions": (*transaction_keys.RESOURCES, *transactions.RESOURCES),
    "Schemas": schemas.RESOURCES,
    "Compaction": topics.COMPACTION,
    "Elsewhere": (*unsupported.RESOURCES, *stored_only.RESOURCES),
    "Lookup": topics.LOOKUPS,
    "The emulator itself": (
        *emulator.RESOURCES,
        *protocol_events.RESOURCES,
        *conditions.RESOURCES,
        *replication.RESOURCES,
        *machine.RESOURCES,
        *removed_regions.RESOURCES,
        emulator.openapi_row(lambda: SUBJECTS),
    ),
    "Explanations": emulator.EXPLANATIONS,
    "Fail-over": failover.RESOURCES,
    "Metrics": emulator.METRICS,
}
"""Heading in the documentation -> its rows."""
TABLE = RouteTable(
    (resource for resources in SUBJECTS.values() for resource in resources), unsupported.ABSENT
)
