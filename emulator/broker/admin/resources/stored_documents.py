"""Documents about brokers and bookies that a region does not have, stored and read back.

They are isolation policies of clusters, racks of bookies and quotas of bundles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Query, Resource, changes, reads
from emulator.broker.admin.resources.brokers import broker_id
from emulator.broker.admin.resources.tenants import known_clusters
from emulator.broker.admin.resources.unsupported import WHOLE_BUNDLE
from emulator.broker.authorization import ResourceScope
from emulator.core.policies.codecs import BOOLEAN, TEXT, TEXT_BY_NAME, TEXTS, objects_of
from emulator.core.policies.declaration import Codec
from emulator.core.policies.stored_only import ANTI_AFFINITY, PERSISTENCE, RATE
from emulator.model.stored_keys import KeptPath, parse_path

DOCUMENTS_MAX: Final = 1_000
"""Maximum number of one kind."""
NAME_CHARACTERS_MAX: Final = 255
NO_BALANCING: Final = "A region is one broker: no load is balanced."


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """Documents of one form."""

    name: str
    codec: Codec[Mapping[str, Any]]

    @property
    def body(self) -> Body:
        return Body(self._parse, self.codec.schema)

    def _parse(self, raw: Any) -> Mapping[str, Any] | None:
        try:
            return None if raw is None else self.codec.decode(raw)
        except ValueError as problem:
            raise HttpError(400, str(problem)) from None

    def all(self, call: AdminRequest) -> dict[str, Any]:
        """Return all documents by name."""
        found = {}
        for change in call.context.region.metadata.list(KeptPath.prefix(self.name)):
            key = parse_path(change.path)
            if isinstance(key, KeptPath) and change.value is not None:
                found[key.name] = json.loads(change.value)
        return found

    def get(self, call: AdminRequest, name: str) -> Any:
        stored = call.context.region.metadata.get(KeptPath(self.name, name).text)
        return None if stored is None or stored.value is None else json.loads(stored.value)

    async def put(self, call: AdminRequest, name: str, document: Mapping[str, Any]) -> Response:
        """HttpError 412 for a name that is too long, and for too many documents."""
        if len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
            raise HttpError(412, f"a name must have at most {NAME_CHARACTERS_MAX} printable characters")
        if self.get(call, name) is None and len(self.all(call)) >= DOCUMENTS_MAX:
            raise HttpError(412, f"at most {DOCUMENTS_MAX} documents of the kind {self.name} are stored")
        await call.context.region.metadata.put(KeptPath(self.name, name).text, json.dumps(document).encode())
        return Response(status=204)

    async def delete(self, call: AdminRequest, name: str) -> Response:
        await call.context.region.metadata.put(KeptPath(self.name, name).text, None)
        return Response(status=204)


def _needed(call: AdminRequest) -> Mapping[str, Any]:
    if call.body is None:
        raise HttpError(400, "the body must be a JSON object")
    document: Mapping[str, Any] = call.body
    return document


# Isolation policies.

ISOLATION: Final = DocumentKind(
    "isolation-policy",
    objects_of(
        {
            "namespaces": TEXTS,
            "primary": TEXTS,
            "secondary": TEXTS,
            "auto_failover_policy": objects_of({"policy_type": TEXT, "parameters": TEXT_BY_NAME}),
            "unload_scope": TEXT,
        }
    ),
)


def _cluster(call: AdminRequest) -> str:
    """HttpError 404 when it does not exist."""
    name = call.names["cluster"]
    if name not in known_clusters(call.context.region):
        raise HttpError(404, f"Cluster {name} does not exist")
    return name


def _isolation(call: AdminRequest) -> str:
    return f"{_cluster(call)}/{call.names['policy']}"


async def isolation_policies(call: AdminRequest) -> Response:
    prefix = f"{_cluster(call)}/"
    found = ISOLATION.all(call).items()
    return Response({name.removeprefix(prefix): one for name, one in found if name.startswith(prefix)})


async def isolation_policy(call: AdminRequest) -> Response:
    found = ISOLATION.get(call, _isolation(call))
    if found is None:
        raise HttpError(404, f"NamespaceIsolationPolicy for {_isolation(call)} does not exist")
    return Response(found)


async def set_isolation_policy(call: AdminRequest) -> Response:
    return await ISOLATION.put(call, _isolation(call), _needed(call))


async def delete_isolation_policy(call: AdminRequest) -> Response:
    return await ISOLATION.delete(call, _isolation(call))


def _isolated(call: AdminRequest) -> dict[str, Any]:
    return {"brokerName": broker_id(call), "policyName": None, "namespaceRegex": [], "primary": False}


async def isolated_brokers(call: AdminRequest) -> Response:
    _cluster(call)
    return Response([_isolated(call)])


async def isolated_broker(call: AdminRequest) -> Response:
    _cluster(call)
    if call.names["broker"] != broker_id(call):
        raise HttpError(404, f"broker {call.names['broker']} is not a broker of this region")
    return Response(_isolated(call))


# Racks of bookies.

RACK: Final = DocumentKind("bookie-rack", objects_of({"rack": TEXT, "hostname": TEXT}))


async def racks(call: AdminRequest) -> Response:
    groups: dict[str, dict[str, Any]] = {}
    for bookie, one in RACK.all(call).items():
        groups.setdefault(one["group"], {})[bookie] = one["info"]
    return Response(groups)


async def rack(call: AdminRequest) -> Response:
    found = RACK.get(call, call.names["bookie"])
    if found is None:
        raise HttpError(404, f"Bookie address not found: {call.names['bookie']}")
    return Response(found["info"])


async def set_rack(call: AdminRequest) -> Response:
    group = call.query.get("group")
    if not group:
        raise HttpError(412, "Bookie 'group' parameters is missing")
    return await RACK.put(call, call.names["bookie"], {"group": group, "info": _needed(call)})


async def delete_rack(call: AdminRequest) -> Response:
    await rack(call)
    return await RACK.delete(call, call.names["bookie"])


async def bookies(call: AdminRequest) -> Response:
    return Response({"bookies": []})


# Quotas.

_RATES: Final = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory")
QUOTA: Final = DocumentKind("resource-quota", objects_of({**dict.fromkeys(_RATES, RATE), "dynamic": BOOLEAN}))
UNSET_QUOTA: Final = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100_000.0,
    "bandwidthOut": 300_000.0,
    "memory": 80.0,
    "dynamic": True,
}
"""Pulsar's result where none was set."""
DEFAULT_QUOTA: Final = "default"


def _bundle(call: AdminRequest) -> str:
    return f"{call.context.namespace(call.names['tenant'], call.names['namespace'])}/{WHOLE_BUNDLE}"


async def default_quota(call: AdminRequest) -> Response:
    return Response(QUOTA.get(call, DEFAULT_QUOTA) or UNSET_QUOTA)


async def set_default_quota(call: AdminRequest) -> Response:
    return await QUOTA.put(call, DEFAULT_QUOTA, _needed(call))


async def quota(call: AdminRequest) -> Response:
    return Response(QUOTA.get(call, _bundle(call)) or QUOTA.get(call, DEFAULT_QUOTA) or UNSET_QUOTA)


async def set_quota(call: AdminRequest) -> Response:
    return await QUOTA.put(call, _bundle(call), _needed(call))


async def delete_quota(call: AdminRequest) -> Response:
    return await QUOTA.delete(call, _bundle(call))


_POLICIES = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies"
_RACKS = "/admin/v2/bookies/racks-info"
_QUOTAS = "/admin/v2/resource-quotas"

RESOURCES = (
    Resource(
        _POLICIES,
        ResourceScope.REGION,
        get=reads(isolation_policies, "The cluster's isolation policies, by name."),
        kept=ANTI_AFFINITY.kept,
    ),
    Resource(
        f"{_POLICIES}/{{policy}}",
        ResourceScope.REGION,
        get=reads(isolation_policy, "One policy."),
        post=changes(set_isolation_policy, "Set a policy.", body=ISOLATION.body),
        delete=changes(delete_isolation_policy, "Delete a policy."),
        kept=ANTI_AFFINITY.kept,
    ),
    Resource(
        f"{_POLICIES}/brokers", ResourceScope.REGION, get=reads(isolated_brokers, "The region's one broker.")
    ),
    Resource(
        f"{_POLICIES}/brokers/{{broker}}",
        ResourceScope.REGION,
        get=reads(isolated_broker, "No policy is applied to it."),
    ),
    Resource(
        _RACKS,
        ResourceScope.REGION,
        get=reads(racks, "Racks of bookies, by group and bookie."),
        kept=PERSISTENCE.kept,
    ),
    Resource(
        f"{_RACKS}/{{bookie}}",
        ResourceScope.REGION,
        get=reads(rack, "Rack of one bookie; 404 when it has none."),
        post=changes(
            set_rack, "Set the rack of a bookie.", Query("group", "Its group.", str), body=RACK.body
        ),
        delete=changes(delete_rack, "Delete the rack of a bookie."),
        kept=PERSISTENCE.kept,
    ),
    Resource("/admin/v2/bookies/all", ResourceScope.REGION, get=reads(bookies, "There are none.")),
    Resource(
        _QUOTAS,
        ResourceScope.REGION,
        get=reads(default_quota, "The quota of bundles that have none of their own."),
        post=changes(set_default_quota, "Set it.", body=QUOTA.body),
        kept=NO_BALANCING,
    ),
    Resource(
        f"{_QUOTAS}/{{tenant}}/{{namespace}}/{WHOLE_BUNDLE}",
        ResourceScope.NAMESPACE,
        get=reads(quota, "The quota of a namespace's only bundle."),
        post=changes(set_quota, "Set it.", body=QUOTA.body),
        delete=changes(delete_quota, "Unset it."),
        kept=NO_BALANCING,
    ),
)
