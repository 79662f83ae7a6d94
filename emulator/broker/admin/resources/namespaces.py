"""Namespaces: list them, their topics, their policies as one document, their properties and anti-affinity groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from emulator.broker.admin.parsing import OBJECT, PROPERTIES_BODY, limit_properties, policy_body
from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Query, Resource, changes, reads, stored_only
from emulator.broker.admin.resources.clusters import (
    check_allowed,
    check_contained,
    check_region_exists,
    check_replication_clusters,
    known_cluster,
)
from emulator.broker.admin.resources.subscriptions import acknowledge_before
from emulator.broker.admin.resources.unsupported import WHOLE_BUNDLE
from emulator.broker.metadata.tenancy import NotEmpty
from emulator.broker.region import Region
from emulator.broker.topic.topic import Topic
from emulator.core.authorization.rule import Permission
from emulator.core.policies import namespace_document
from emulator.core.policies.stored_only import ANTI_AFFINITY, BUNDLES, PROPERTIES
from emulator.core.policies.topic_policies import REGISTRY
from emulator.core.policies.topics import ALLOWED_CLUSTERS, EXCLUSIVE_HOME, REPLICATION_CLUSTERS
from emulator.model.stored_keys import NamespacePath
from emulator.model.values import NON_PERSISTENT, PERSISTENT
from emulator.net.http_server import HttpError, Response


async def names(call: AdminRequest) -> Content:
    region, tenant = call.region, call.names["tenant"]
    region.tenancy.tenant(tenant)
    return [name for name in region.policies.namespaces() if name.startswith(f"{tenant}/")]


async def topics(call: AdminRequest) -> Content:
    name = call.namespace()
    mode = call.query.get("mode", "").upper() or _MODES[call.names.get("domain", "")]
    if mode not in _ALL_MODES:
        raise HttpError(400, f"mode: {mode!r} is not one of {', '.join(_ALL_MODES)}")
    directory = call.region.directory
    persistent = directory.names(name) if mode != "NON_PERSISTENT" else []
    return [*persistent, *(directory.non_persistent_names(name) if mode != "PERSISTENT" else ())]


_MODES = {"": "PERSISTENT", PERSISTENT: "PERSISTENT", NON_PERSISTENT: "NON_PERSISTENT"}
"""Domain in a path -> the mode of a request without the query parameter `mode`, which the Go client drops."""
_ALL_MODES = ("ALL", "PERSISTENT", "NON_PERSISTENT")


async def get(call: AdminRequest) -> Content:
    region = call.region
    policies = region.policies.stored_policies(call.namespace_path())
    return namespace_document.written(policies, REGISTRY, region.config.region)


async def create(call: AdminRequest) -> None:
    region, name = call.region, f"{call.names['tenant']}/{call.names['namespace']}"
    region.tenancy.tenant(call.names["tenant"])
    if region.policies.has_namespace(name):
        raise HttpError(409, "Namespace already exists")
    try:
        policies = namespace_document.read(call.body or {}, REGISTRY, region.config.region)
    except ValueError as problem:
        raise HttpError(400, str(problem)) from None
    policies.setdefault(REPLICATION_CLUSTERS.name, [region.config.region])
    _check(region, name, policies)
    await region.tenancy.create_namespace(name, policies, region.config.settings.namespaces_per_tenant_max)


def _check(region: Region, name: str, policies: dict[str, Any]) -> None:
    replication_clusters = tuple(policies[REPLICATION_CLUSTERS.name])
    check_replication_clusters(region, name, replication_clusters)
    allowed = policies.get(ALLOWED_CLUSTERS.name, [])
    check_contained(replication_clusters, allowed)
    check_allowed(region, name, tuple(allowed))
    if home := policies.get(EXCLUSIVE_HOME.name):
        check_region_exists(region, home)
    count = policies.get(BUNDLES.name, {}).get("numBundles", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 2**24:
        raise HttpError(412, "Bundles boundaries must be a number from 1 to 2^24")


async def delete(call: AdminRequest) -> None:
    region, name = call.region, call.namespace()
    replication_clusters = region.policies.of_namespace(name, REPLICATION_CLUSTERS)
    if len(replication_clusters) > 1:
        raise HttpError(
            412,
            f"Cannot delete the global namespace {name}. There are still more than one replication clusters "
            "configured.",
        )
    await region.tenancy.delete_namespace(name, force=call.flag("force"))


async def unload(call: AdminRequest) -> None:
    directory, namespace = call.region.directory, call.namespace()
    for topic in (*directory.names(namespace), *directory.non_persistent_names(namespace)):
        await directory.unload(topic, "requested by the admin API")


async def get_bundles(call: AdminRequest) -> Content:
    policies = call.region.policies.stored_policies(call.namespace_path())
    return namespace_document.written(policies, REGISTRY, "")["bundles"]


async def split(call: AdminRequest) -> None:
    call.namespace()
    raise HttpError(412, f"a bundle cannot be split: {BUNDLES.kept}")


async def delete_bundle(call: AdminRequest) -> None:
    """Delete the topics of a namespace's only bundle. HttpError 409 if there are topics and `force` is not set."""
    region, name = call.region, call.namespace()
    try:
        await region.tenancy.delete_topics(name, force=call.flag("force"))
    except NotEmpty:
        raise HttpError(409, "Cannot delete non empty bundle") from None


async def bundle_topics(call: AdminRequest) -> Content:
    return call.region.directory.non_persistent_names(call.namespace())


async def unsubscribe(call: AdminRequest) -> None:
    """Delete the subscription of this name on every topic. HttpError 412 at the first one that has consumers; the ones
    before it are deleted."""
    region, name = call.region, call.names["subscription"]
    for topic in await _every_topic(region, call.namespace()):
        subscription = topic.subscriptions.get(name)
        if subscription is None:
            continue
        if subscription.consumers:
            raise HttpError(412, f"Subscription has active connected consumers: {name} of {topic.full_name}")
        await subscription.delete()


async def clear_backlog(call: AdminRequest) -> None:
    region, name = call.region, call.names.get("subscription")
    for topic in await _every_topic(region, call.namespace()):
        for subscription in list(topic.subscriptions.values()):
            if name is None or subscription.name == name:
                acknowledging = acknowledge_before(topic, subscription, topic.state.readable_end)
                await call.ignoring_deletion(topic, subscription, acknowledging)


async def _every_topic(region: Region, namespace: str) -> list[Topic]:
    return [topic for topic in await region.every_topic() if topic.name.full_namespace == namespace]


# Properties, which users and tools choose freely.


def _properties(call: AdminRequest) -> Mapping[str, str]:
    found: Mapping[str, str] = call.region.policies.stored_value(call.namespace_path(), PROPERTIES) or {}
    return found


async def _change(call: AdminRequest, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
    """Change the properties of a namespace atomically. HttpError 412 for too many properties."""

    def limited(present: Mapping[str, str] | None) -> Mapping[str, str] | None:
        return limit_properties(change(present or {}), "namespace") or None

    await call.region.policies.change(call.namespace_path(), PROPERTIES, limited)


async def get_properties(call: AdminRequest) -> Content:
    return _properties(call)


async def put_properties(call: AdminRequest) -> None:
    await _change(call, lambda present: {**present, **(call.body or {})})


async def delete_properties(call: AdminRequest) -> None:
    await _change(call, lambda present: {})


async def get_property(call: AdminRequest) -> Content:
    return _properties(call).get(call.names["key"])


async def put_property(call: AdminRequest) -> None:
    await _change(call, lambda present: {**present, call.names["key"]: call.names["value"]})


async def delete_property(call: AdminRequest) -> Content:
    key = call.names["key"]
    before = _properties(call).get(key)
    await _change(call, lambda present: {name: one for name, one in present.items() if name != key})
    return None if before is None else Response(before, text=True)


# Anti-affinity groups.


def _group(call: AdminRequest, namespace: NamespacePath) -> Any:
    return call.region.policies.stored_policies(namespace).get(ANTI_AFFINITY.name)


async def get_group(call: AdminRequest) -> Content:
    return _group(call, call.namespace_path())


async def set_group(call: AdminRequest) -> None:
    if not call.body or not call.body.strip():
        raise HttpError(412, "Anti-affinity group name can't be null or empty")
    await call.region.policies.set(call.namespace_path(), ANTI_AFFINITY, call.body)


async def delete_group(call: AdminRequest) -> None:
    await call.region.policies.set(call.namespace_path(), ANTI_AFFINITY, None)


async def group_members(call: AdminRequest) -> Content:
    """Return the namespaces of all tenants that are in an anti-affinity group."""
    known_cluster(call)
    namespaces = call.region.policies.namespaces()
    return [one for one in namespaces if _group(call, NamespacePath(one)) == call.names["group"]]


_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_MODE = Query("mode", "PERSISTENT (the default), NON_PERSISTENT or ALL.", str)


def _subscription_rows(prefix: str) -> tuple[Resource, ...]:
    """Return the rows for the subscriptions of a namespace, or of its only bundle, which has the same ones."""
    return (
        Resource(
            f"{prefix}/clearBacklog",
            post=changes(
                clear_backlog,
                "Acknowledge everything on every subscription.",
                permission=Permission.NAMESPACE_CONSUME,
            ),
        ),
        Resource(
            f"{prefix}/clearBacklog/{{subscription}}",
            post=changes(
                clear_backlog,
                "Acknowledge everything on the subscriptions of this name.",
                permission=Permission.NAMESPACE_CONSUME,
            ),
        ),
        Resource(
            f"{prefix}/unsubscribe/{{subscription}}",
            post=changes(
                unsubscribe,
                "Delete the subscriptions of this name; 412 while one has consumers.",
                permission=Permission.NAMESPACE_CONSUME,
            ),
        ),
    )


RESOURCES = (
    Resource("/admin/v2/namespaces/{tenant}", get=reads(names, "Full names of the tenant's namespaces.")),
    Resource(
        _NAMESPACE,
        get=reads(get, "The namespace's policies, as one document."),
        put=changes(
            create,
            "Create the namespace; 409 if it exists. The body, if any, sets policies. Without "
            "`replication_clusters` it belongs to this region alone.",
            body=OBJECT,
        ),
        delete=changes(
            delete,
            "Delete the namespace; 409 while it has topics, 412 while it is replicated.",
            Query("force", "Delete its topics as well."),
        ),
    ),
    Resource(
        f"{_NAMESPACE}/topics",
        get=reads(
            topics,
            "Full names of the namespace's topics in this region.",
            _MODE,
            permission=Permission.NAMESPACE_CONSUME,
        ),
    ),
    Resource(
        "/admin/v2/persistent/{tenant}/{namespace}",
        get=reads(topics, "Persistent topics.", permission=Permission.NAMESPACE_CONSUME),
    ),
    Resource(
        "/admin/v2/non-persistent/{tenant}/{namespace}",
        get=reads(
            topics, "Non-persistent topics, while they are loaded.", permission=Permission.NAMESPACE_CONSUME
        ),
    ),
    Resource(
        f"{_NAMESPACE}/unload", put=changes(unload, "Unload all topics.", permission=Permission.SUPERUSER)
    ),
    Resource(
        f"{_NAMESPACE}/bundles",
        get=reads(get_bundles, "The requested number of bundles."),
        stored_only=BUNDLES.kept,
    ),
    Resource(
        f"{_NAMESPACE}/{{bundle}}/split",
        put=changes(
            split,
            "Refused: a region is one broker, so bundles are not split.",
            permission=Permission.SUPERUSER,
        ),
    ),
    Resource(
        f"{_NAMESPACE}/{{bundle}}/unload",
        put=changes(unload, "Unload all topics: they are one bundle.", permission=Permission.SUPERUSER),
    ),
    Resource(
        f"{_NAMESPACE}/{WHOLE_BUNDLE}",
        delete=changes(
            delete_bundle,
            "Delete the topics of the only bundle; 409 if there are any and `force` is not set.",
            Query("force", "Delete its topics as well."),
        ),
    ),
    Resource(
        f"/admin/v2/non-persistent/{{tenant}}/{{namespace}}/{WHOLE_BUNDLE}",
        get=reads(bundle_topics, "Non-persistent topics of the only bundle, while they are loaded."),
    ),
    *(row for prefix in (_NAMESPACE, f"{_NAMESPACE}/{WHOLE_BUNDLE}") for row in _subscription_rows(prefix)),
)
PROPERTIES_OF = stored_only(
    PROPERTIES.kept,
    Resource(
        f"{_NAMESPACE}/properties",
        get=reads(get_properties, "All properties."),
        put=changes(put_properties, "Add these properties.", body=PROPERTIES_BODY),
        delete=changes(delete_properties, "Remove all properties."),
    ),
    Resource(
        f"{_NAMESPACE}/property/{{key}}",
        get=reads(get_property, "One property; 204 if it does not exist.", text=True),
        delete=changes(delete_property, "Remove one property and return its value."),
    ),
    Resource(f"{_NAMESPACE}/property/{{key}}/{{value}}", put=changes(put_property, "Set one property.")),
)
ANTI_AFFINITY_GROUPS = stored_only(
    ANTI_AFFINITY.kept,
    Resource(
        f"{_NAMESPACE}/antiAffinity",
        get=reads(get_group, "The namespace's anti-affinity group; 204 if it has none.", text=True),
        post=changes(
            set_group,
            "Set the anti-affinity group. The body is its name, quoted as JSON or not.",
            body=policy_body(ANTI_AFFINITY, or_text=True),
        ),
        delete=changes(delete_group, "Remove the namespace from its anti-affinity group."),
    ),
    Resource(
        "/admin/namespaces/{cluster}/antiAffinity/{group}",
        get=reads(
            group_members,
            "Full names of the namespaces in a group.",
            Query("tenant", "The requesting tenant; not checked.", str),
        ),
    ),
)
