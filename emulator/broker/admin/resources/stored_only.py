"""Documents for features of Pulsar that a region does not have, stored and returned without any effect.

These are failure domains and isolation policies of clusters, racks of bookies, quotas of bundles, and resource groups.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from emulator.broker.admin.parsing import codec_body
from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Body, Query, Resource, changes, reads, stored_only
from emulator.broker.admin.resources.brokers import broker_id
from emulator.broker.admin.resources.clusters import known_cluster
from emulator.broker.admin.resources.unsupported import WHOLE_BUNDLE
from emulator.core.authorization.rule import Permission
from emulator.core.policies.codecs import BOOLEAN, TEXT, TEXT_BY_NAME, TEXTS, counts, objects_of
from emulator.core.policies.declaration import Codec
from emulator.core.policies.stored_only import ANTI_AFFINITY, PERSISTENCE, RATE, RESOURCE_GROUP
from emulator.model.stored_keys import NamespacePath, StoredOnlyPath, parse_path
from emulator.model.values import is_valid_name
from emulator.net.http_server import HttpError

DOCUMENTS_MAX: Final = 1_000
"""Maximum number of documents of one kind."""
NAME_CHARACTERS_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """A kind of documents. `get`, `put`, `delete_existing` and `delete` are handlers for the document in a path."""

    name: str
    codec: Codec[Mapping[str, Any]]
    name_of: Callable[[AdminRequest], str]
    """Returns the name of the document in a path. HttpError for an invalid name."""
    not_found_reason: str = ""
    """Reason of the error 404 for a document that does not exist, with placeholders for names in the path."""
    is_limited: bool = True
    """Whether `check_limits` limits the number of documents and the length of their names."""

    @property
    def body(self) -> Body:
        return codec_body(self.codec)

    def documents(self, call: AdminRequest, prefix: str = "") -> dict[str, Any]:
        """Return the documents whose names begin with `prefix`, by name without the prefix."""
        found = {}
        for change in call.region.metadata.list(StoredOnlyPath.prefix(self.name)):
            key = parse_path(change.path)
            if isinstance(key, StoredOnlyPath) and key.name.startswith(prefix) and change.value is not None:
                found[key.name.removeprefix(prefix)] = json.loads(change.value)
        return found

    def find(self, call: AdminRequest, name: str) -> Any:
        stored = call.region.metadata.get(StoredOnlyPath(self.name, name).text)
        return None if stored is None or stored.value is None else json.loads(stored.value)

    async def get(self, call: AdminRequest) -> Content:
        """Return the document in the path. HttpError 404 when it does not exist."""
        found = self.find(call, self.name_of(call))
        if found is None:
            raise HttpError(404, self.not_found_reason.format(**call.names))
        return found

    async def put(self, call: AdminRequest) -> None:
        await self.store(call, self.name_of(call), call.required_body("a JSON object"))

    async def store(self, call: AdminRequest, name: str, document: Mapping[str, Any]) -> None:
        """Store a document. HttpError 412 as in `check_limits`."""
        self.check_limits(call, name)
        await call.region.metadata.put(StoredOnlyPath(self.name, name).text, json.dumps(document).encode())

    def check_limits(self, call: AdminRequest, name: str) -> None:
        """Raise HttpError 412 for a name that is too long, and for a new document if there are DOCUMENTS_MAX."""
        if self.is_limited and (len(name) > NAME_CHARACTERS_MAX or not name.isprintable()):
            raise HttpError(412, f"a name must have at most {NAME_CHARACTERS_MAX} printable characters")
        if self.is_limited and self.find(call, name) is None and len(self.documents(call)) >= DOCUMENTS_MAX:
            raise HttpError(412, f"at most {DOCUMENTS_MAX} documents of the kind {self.name} are stored")

    async def delete_existing(self, call: AdminRequest) -> None:
        """Delete the document in the path. HttpError 404 when it does not exist."""
        await self.get(call)
        await self.delete(call)

    async def delete(self, call: AdminRequest) -> None:
        await call.region.metadata.put(StoredOnlyPath(self.name, self.name_of(call)).text, None)


# Failure domains of clusters.


def _domain(call: AdminRequest) -> str:
    """Return the name of a document: cluster and failure domain, neither of which contains a slash."""
    cluster, domain = known_cluster(call), call.names["domain"]
    if not is_valid_name(domain):
        raise HttpError(412, f"{domain[:100]!r} is not a name of a failure domain")
    return f"{cluster}/{domain}"


DOMAIN: Final = DocumentKind(
    "failure-domain",
    objects_of({"brokers": TEXTS}),
    _domain,
    "Domain {domain} does not exist in {cluster}",
    is_limited=False,
)


async def domains(call: AdminRequest) -> Content:
    return dict(sorted(DOMAIN.documents(call, f"{known_cluster(call)}/").items()))


async def set_domain(call: AdminRequest) -> None:
    await DOMAIN.store(call, _domain(call), call.body or {"brokers": []})


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
    lambda call: f"{known_cluster(call)}/{call.names['policy']}",
    "NamespaceIsolationPolicy for {cluster}/{policy} does not exist",
)


async def isolation_policies(call: AdminRequest) -> Content:
    return ISOLATION.documents(call, f"{known_cluster(call)}/")


async def isolated_brokers(call: AdminRequest) -> Content:
    known_cluster(call)
    return [{"brokerName": broker_id(call), "policyName": None, "namespaceRegex": [], "primary": False}]


async def isolated_broker(call: AdminRequest) -> Content:
    (found,) = await isolated_brokers(call)
    if call.names["broker"] != broker_id(call):
        raise HttpError(404, f"broker {call.names['broker']} is not a broker of this region")
    return found


# Racks of bookies.

RACK: Final = DocumentKind(
    "bookie-rack",
    objects_of({"rack": TEXT, "hostname": TEXT}),
    lambda call: call.names["bookie"],
    "Bookie address not found: {bookie}",
)


async def racks(call: AdminRequest) -> Content:
    groups: dict[str, dict[str, Any]] = {}
    for bookie, one in RACK.documents(call).items():
        groups.setdefault(one["group"], {})[bookie] = one["info"]
    return groups


async def rack(call: AdminRequest) -> Content:
    return (await RACK.get(call))["info"]


async def set_rack(call: AdminRequest) -> None:
    group = call.query.get("group")
    if not group:
        raise HttpError(412, "Bookie 'group' parameters is missing")
    info = call.required_body("a JSON object")
    await RACK.store(call, call.names["bookie"], {"group": group, "info": info})


async def bookies(call: AdminRequest) -> Content:
    return {"bookies": []}


# Quotas of bundles.

_RATES: Final = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory")
_QUOTA: Final = objects_of({**dict.fromkeys(_RATES, RATE), "dynamic": BOOLEAN})
DEFAULT_QUOTA: Final = DocumentKind("resource-quota", _QUOTA, lambda call: "default")
QUOTA: Final = DocumentKind("resource-quota", _QUOTA, lambda call: f"{call.namespace()}/{WHOLE_BUNDLE}")
UNSET_QUOTA: Final = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100_000.0,
    "bandwidthOut": 300_000.0,
    "memory": 80.0,
    "dynamic": True,
}
"""Pulsar's response for a bundle without a quota."""


async def default_quota(call: AdminRequest) -> Content:
    return QUOTA.find(call, "default") or UNSET_QUOTA


async def quota(call: AdminRequest) -> Content:
    return QUOTA.find(call, QUOTA.name_of(call)) or await default_quota(call)


# Resource groups.


def _group(call: AdminRequest) -> str:
    return call.names["group"]


GROUP: Final = DocumentKind(
    "resource-group",
    objects_of(
        {
            f"{kind}RateIn{unit}": counts(1 - 2**63, 2**63 - 1)
            for kind in ("publish", "dispatch", "replicationDispatch")
            for unit in ("Msgs", "Bytes")
        }
    ),
    _group,
    "ResourceGroup does not exist",
)


async def groups(call: AdminRequest) -> Content:
    return sorted(GROUP.documents(call))


async def set_group(call: AdminRequest) -> None:
    """Create a resource group, or change its fields that are in the body. HttpError 412 for an invalid name, and
    as in `DocumentKind.check_limits`."""
    if not is_valid_name(_group(call)):
        raise HttpError(412, "ResourceGroup name is not valid")
    GROUP.check_limits(call, _group(call))

    def merge(present: bytes | None) -> bytes:
        before = {} if present is None else json.loads(present)
        return json.dumps(before | (call.body or {}), sort_keys=True).encode()

    await call.region.metadata.update(StoredOnlyPath(GROUP.name, _group(call)).text, merge)


async def delete_group(call: AdminRequest) -> None:
    await GROUP.get(call)
    policies, name = call.region.policies, _group(call)
    for namespace in policies.namespaces():
        if policies.stored_policies(NamespacePath(namespace)).get(RESOURCE_GROUP.name) == name:
            raise HttpError(412, f"ResourceGroup {name} is in use by namespace {namespace}")
    await GROUP.delete(call)


async def group_of_namespace(call: AdminRequest) -> Content:
    return call.region.policies.stored_policies(call.namespace_path()).get(RESOURCE_GROUP.name)


async def join_group(call: AdminRequest) -> None:
    path = call.namespace_path()
    await GROUP.get(call)
    await call.region.policies.set(path, RESOURCE_GROUP, _group(call))


async def leave_group(call: AdminRequest) -> None:
    await call.region.policies.set(call.namespace_path(), RESOURCE_GROUP, None)


_DOMAINS = "/admin/v2/clusters/{cluster}/failureDomains"
_POLICIES = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies"
_RACKS = "/admin/v2/bookies/racks-info"
_QUOTAS = "/admin/v2/resource-quotas"
_GROUPS = "/admin/v2/resourcegroups"
_GROUP_OF = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"

FAILURE_DOMAINS = stored_only(
    ANTI_AFFINITY.kept,
    Resource(_DOMAINS, get=reads(domains, "The cluster's failure domains, by name.")),
    Resource(
        f"{_DOMAINS}/{{domain}}",
        get=reads(DOMAIN.get, "Its brokers."),
        put=changes(set_domain, "Set its brokers.", body=DOMAIN.body),
        post=changes(set_domain, "Set its brokers.", body=DOMAIN.body),
        delete=changes(DOMAIN.delete_existing, "Delete it."),
    ),
)
RESOURCE_GROUPS = stored_only(
    RESOURCE_GROUP.kept,
    Resource(_GROUPS, get=reads(groups, "Names of all resource groups.")),
    Resource(
        f"{_GROUPS}/{{group}}",
        get=reads(GROUP.get, "Its rates."),
        put=changes(set_group, "Create the resource group, or change the given rates.", body=GROUP.body),
        delete=changes(delete_group, "Delete it; 412 while a namespace uses it."),
    ),
    Resource(
        _GROUP_OF,
        get=reads(group_of_namespace, "The namespace's resource group; 204 if it has none."),
        delete=changes(leave_group, "Remove the namespace's resource group."),
    ),
    Resource(
        f"{_GROUP_OF}/{{group}}",
        post=changes(join_group, "Set the namespace's resource group; 404 if it does not exist."),
    ),
)
RESOURCES = (
    *stored_only(
        ANTI_AFFINITY.kept,
        Resource(_POLICIES, get=reads(isolation_policies, "The cluster's isolation policies, by name.")),
        Resource(
            f"{_POLICIES}/{{policy}}",
            get=reads(ISOLATION.get, "One policy."),
            post=changes(ISOLATION.put, "Set a policy.", body=ISOLATION.body),
            delete=changes(ISOLATION.delete, "Delete a policy."),
        ),
    ),
    Resource(f"{_POLICIES}/brokers", get=reads(isolated_brokers, "The region's one broker.")),
    Resource(
        f"{_POLICIES}/brokers/{{broker}}",
        get=reads(isolated_broker, "The region's broker, without a policy; 404 for another one."),
    ),
    *stored_only(
        PERSISTENCE.kept,
        Resource(_RACKS, get=reads(racks, "Racks of bookies, by group and bookie.")),
        Resource(
            f"{_RACKS}/{{bookie}}",
            get=reads(rack, "Rack of one bookie; 404 when it has none."),
            post=changes(
                set_rack, "Set the rack of a bookie.", Query("group", "Its group.", str), body=RACK.body
            ),
            delete=changes(RACK.delete_existing, "Delete the rack of a bookie."),
        ),
    ),
    Resource("/admin/v2/bookies/all", get=reads(bookies, "None: a region has no bookies.")),
    *stored_only(
        "A region is one broker: no load is balanced.",
        Resource(
            _QUOTAS,
            get=reads(default_quota, "The quota of bundles that have none of their own."),
            post=changes(DEFAULT_QUOTA.put, "Set it.", body=QUOTA.body),
        ),
        Resource(
            f"{_QUOTAS}/{{tenant}}/{{namespace}}/{WHOLE_BUNDLE}",
            get=reads(quota, "The quota of a namespace's only bundle."),
            post=changes(QUOTA.put, "Set it.", body=QUOTA.body, permission=Permission.SUPERUSER),
            delete=changes(QUOTA.delete, "Unset it.", permission=Permission.SUPERUSER),
        ),
    ),
)
