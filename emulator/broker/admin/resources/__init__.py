"""The rows, a file per subject. To add a subject, create a file with `RESOURCES` and list it here."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.broker.admin.resource import Resource, RouteTable
from emulator.broker.admin.resources import (
    anti_affinity,
    backlog_quotas,
    broker_stats,
    brokers,
    clock,
    clusters,
    compaction,
    cursors,
    emulator,
    explain,
    failure_domains,
    logs,
    lookup,
    losses,
    messages,
    namespaces,
    partitions,
    permissions,
    policies,
    properties,
    resource_groups,
    schemas,
    stored_documents,
    subscription_properties,
    subscription_rates,
    tenants,
    topic_life,
    topic_properties,
    topics,
    transactions,
    unsupported,
)

SUBJECTS: dict[str, Sequence[Resource]] = {
    "Brokers": (*brokers.RESOURCES, *broker_stats.RESOURCES),
    "Clusters": (*clusters.RESOURCES, *failure_domains.RESOURCES),
    "Tenants": tenants.RESOURCES,
    "Namespaces": namespaces.RESOURCES,
    "Policies": (
        *policies.RESOURCES,
        *properties.RESOURCES,
        *permissions.RESOURCES,
        *resource_groups.RESOURCES,
        *anti_affinity.RESOURCES,
        *backlog_quotas.RESOURCES,
        *subscription_rates.RESOURCES,
    ),
    "Topics": (*topics.RESOURCES, *topic_life.RESOURCES, *topic_properties.RESOURCES),
    "Subscriptions": (*cursors.RESOURCES, *subscription_properties.RESOURCES),
    "Messages": messages.RESOURCES,
    "Partitioned topics": partitions.RESOURCES,
    "Transactions": transactions.RESOURCES,
    "Schemas": schemas.RESOURCES,
    "Compaction": compaction.RESOURCES,
    "Elsewhere": (*unsupported.RESOURCES, *stored_documents.RESOURCES),
    "Lookup": lookup.RESOURCES,
    "The emulator itself": (
        *emulator.RESOURCES,
        *clock.RESOURCES,
        *losses.RESOURCES,
        *logs.RESOURCES,
        emulator.row_about(lambda: SUBJECTS),
    ),
    "Explanations": explain.RESOURCES,
    "Metrics": emulator.METRICS,
}
"""Rows by the heading under which they are documented."""
TABLE = RouteTable(
    (resource for resources in SUBJECTS.values() for resource in resources), unsupported.ABSENT
)
