"""The rows, a file a subject. A new subject is a file with `RESOURCES`, and a name here."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.broker.admin.resource import Resource, Table
from emulator.broker.admin.resources import (
    brokers,
    clusters,
    emulator,
    explain,
    lookup,
    metrics,
    namespaces,
    openapi,
    partitions,
    policies,
    tenants,
    topics,
)

SUBJECTS: dict[str, Sequence[Resource]] = {
    "Brokers": brokers.RESOURCES,
    "Clusters": clusters.RESOURCES,
    "Tenants": tenants.RESOURCES,
    "Namespaces": namespaces.RESOURCES,
    "Policies": policies.RESOURCES,
    "Topics": topics.RESOURCES,
    "Partitioned topics": partitions.RESOURCES,
    "Lookup": lookup.RESOURCES,
    "The emulator itself": (*emulator.RESOURCES, openapi.row_about(lambda: SUBJECTS)),
    "Explanations": explain.RESOURCES,
    "Metrics": metrics.RESOURCES,
}
"""Rows by the heading under which they are documented."""
TABLE = Table(resource for resources in SUBJECTS.values() for resource in resources)
