"""Which regions a namespace may name at all."""

from __future__ import annotations

from emulator.core.policies.codecs import REGION_NAMES
from emulator.core.policies.declaration import Policy, Scope

ALLOWED_CLUSTERS: Policy[tuple[str, ...]] = Policy(
    name="allowed_clusters",
    at_namespace="allowedClusters",
    codec=REGION_NAMES,
    default=(),
    unset=[],
    scopes=frozenset({Scope.NAMESPACE}),
    obeyed_by="emulator.broker.admin.replication_rules",
    doc=(
        "Regions that `replication_clusters` of the namespace and its topics may contain. Empty: those "
        "of the tenant."
    ),
)

POLICIES = (ALLOWED_CLUSTERS,)
