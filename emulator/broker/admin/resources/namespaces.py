"""Namespaces: list them, their topics, and their policies as one document."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.deleted_meanwhile import unless_gone
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.replication_rules import check_allowed, check_home, check_sharing
from emulator.broker.admin.resource import AdminRequest, Body, Query, Resource, changes, reads
from emulator.broker.admin.resources.cursors import pass_over
from emulator.broker.admin.resources.unsupported import WHOLE_BUNDLE
from emulator.broker.authorization import ResourceScope
from emulator.broker.metadata.tenancy import Used
from emulator.broker.region import Region
from emulator.broker.topic.topic import Topic
from emulator.core.policies import namespace_document
from emulator.core.policies.registry import REGISTRY
from emulator.core.policies.stored_only import BUNDLES
from emulator.core.policies.topics import ALLOWED_CLUSTERS, EXCLUSIVE_HOME, REPLICATION_CLUSTERS
from emulator.model.stored_keys import NamespacePath
from emulator.model.values import NON_PERSISTENT, PERSISTENT


def _named(call: AdminRequest) -> str:
    """Its full name. HttpError 404 when it does not exist."""
    return call.context.namespace(call.names["tenant"], call.names["namespace"])


async def names(call: AdminRequest) -> Response:
    region, tenant = call.context.region, call.names["tenant"]
    region.tenancy.tenant(tenant)
    return Response([name for name in region.policies.namespaces() if name.startswith(f"{tenant}/")])


async def topics(call: AdminRequest) -> Response:
    name = _named(call)
    mode = call.query.get("mode", "").upper() or _MODES[call.names.get("domain", "")]
    if mode not in _ALL_MODES:
        raise HttpError(400, f"mode: {mode!r} is not one of {', '.join(_ALL_MODES)}")
    directory = call.context.region.directory
    persistent = directory.names(name) if mode != "NON_PERSISTENT" else []
    return Response([*persistent, *(directory.non_persistent_names(name) if mode != "PERSISTENT" else ())])


_MODES = {"": "PERSISTENT", PERSISTENT: "PERSISTENT", NON_PERSISTENT: "NON_PERSISTENT"}
"""By the domain in a path: which topics are listed when the query does not name a mode. (The Go client loses its
query.)"""
_ALL_MODES = ("ALL", "PERSISTENT", "NON_PERSISTENT")


async def get(call: AdminRequest) -> Response:
    region = call.context.region
    policies = region.policies.set_at(NamespacePath(_named(call)))
    return Response(namespace_document.written(policies, REGISTRY, region.config.region))


async def create(call: AdminRequest) -> Response:
    region, name = call.context.region, f"{call.names['tenant']}/{call.names['namespace']}"
    region.tenancy.tenant(call.names["tenant"])
    if region.policies.has_namespace(name):
        raise HttpError(409, "Namespace already exists")
    try:
        policies = namespace_document.read(call.body or {}, REGISTRY, region.config.region)
    except ValueError as problem:
        raise HttpError(400, str(problem)) from None
    policies.setdefault(REPLICATION_CLUSTERS.name, [region.config.region])
    _check(region, name, policies)
    await region.tenancy.create_namespace(name, policies)
    return Response(status=204)


def _check(region: Region, name: str, policies: dict[str, Any]) -> None:
    sharing = tuple(policies[REPLICATION_CLUSTERS.name])
    check_sharing(region, name, sharing)
    allowed = policies.get(ALLOWED_CLUSTERS.name, [])
    for one in sharing:
        if allowed and one not in allowed:
            raise HttpError(400, f"Allowed clusters do not contain the replication cluster {one}")
    check_allowed(region, name, tuple(allowed))
    if home := policies.get(EXCLUSIVE_HOME.name):
        check_home(region, home)
    bundles = policies.get(BUNDLES.name, {})
    if not _is_number_of_bundles(bundles.get("numBundles", 1)):
        raise HttpError(412, "Bundles boundaries must be a number from 1 to 2^24")


def _is_number_of_bundles(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= 2**24


async def delete(call: AdminRequest) -> Response:
    region, name = call.context.region, _named(call)
    sharing = region.policies.of_namespace(name, REPLICATION_CLUSTERS)
    if len(sharing) > 1:
        raise HttpError(
            412,
            f"Cannot delete the global namespace {name}. There are still more than one replication clusters "
            "configured.",
        )
    await region.tenancy.delete_namespace(name, force=call.query.get("force", False))
    return Response(status=204)


async def unload(call: AdminRequest) -> Response:
    directory, namespace = call.context.region.directory, _named(call)
    for topic in (*directory.names(namespace), *directory.non_persistent_names(namespace)):
        await directory.unload(topic, "requested by the admin API")
    return Response(status=204)


async def get_bundles(call: AdminRequest) -> Response:
    policies = call.context.region.policies.set_at(NamespacePath(_named(call)))
    return Response(namespace_document.written(policies, REGISTRY, "")["bundles"])


async def split(call: AdminRequest) -> Response:
    _named(call)
    raise HttpError(412, f"a bundle cannot be split: {BUNDLES.kept}")


async def delete_bundle(call: AdminRequest) -> Response:
    """Delete the topics of the only bundle. HttpError 409 while there are some."""
    region, name = call.context.region, _named(call)
    try:
        await region.tenancy.empty(name, force=call.query.get("force", False))
    except Used:
        raise HttpError(409, "Cannot delete non empty bundle") from None
    return Response(status=204)


async def bundle_topics(call: AdminRequest) -> Response:
    return Response(call.context.region.directory.non_persistent_names(_named(call)))


async def unsubscribe(call: AdminRequest) -> Response:
    """Delete the subscription of every topic. HttpError 412 when one of them has consumers."""
    region, name = call.context.region, call.names["subscription"]
    for topic in await _every_topic(region, _named(call)):
        subscription = topic.subscriptions.get(name)
        if subscription is None:
            continue
        if subscription.consumers:
            raise HttpError(412, f"Subscription has active connected consumers: {name} of {topic.full_name}")
        await subscription.delete()
    return Response(status=204)


async def clear_backlog(call: AdminRequest) -> Response:
    region, name = call.context.region, call.names.get("subscription")
    for topic in await _every_topic(region, _named(call)):
        for subscription in list(topic.subscriptions.values()):
            if name is None or subscription.name == name:
                passing = pass_over(topic, subscription, topic.readable_end)
                await unless_gone(call, topic, subscription, passing)
    return Response(status=204)


async def _every_topic(region: Region, namespace: str) -> list[Topic]:
    return [topic for topic in await region.every_topic() if topic.name.full_namespace == namespace]


def _document(raw: Any) -> Any:
    if raw is not None and not isinstance(raw, dict):
        raise HttpError(400, "policies are a JSON object")
    return raw


_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_MODE = Query("mode", "PERSISTENT (the default), NON_PERSISTENT or ALL.", str)


def _rows_of_subscriptions(at: str) -> tuple[Resource, ...]:
    """Rows of a namespace, or of its only bundle, which is the same."""
    return (
        Resource(
            f"{at}/clearBacklog",
            ResourceScope.NAMESPACE,
            post=changes(clear_backlog, "Acknowledge everything on every subscription."),
        ),
        Resource(
            f"{at}/clearBacklog/{{subscription}}",
            ResourceScope.NAMESPACE,
            post=changes(clear_backlog, "Acknowledge everything on the subscriptions of this name."),
        ),
        Resource(
            f"{at}/unsubscribe/{{subscription}}",
            ResourceScope.NAMESPACE,
            post=changes(unsubscribe, "Delete the subscriptions of this name; 412 while one has consumers."),
        ),
    )


RESOURCES = (
    Resource(
        "/admin/v2/namespaces/{tenant}",
        ResourceScope.TENANT,
        get=reads(names, "Full names of the tenant's namespaces."),
    ),
    Resource(
        _NAMESPACE,
        ResourceScope.NAMESPACE,
        get=reads(get, "The namespace's policies, as one document."),
        put=changes(
            create,
            "Create the namespace; 409 if it exists. The body, if any, sets policies. Without "
            "`replication_clusters` it belongs to this region alone.",
            body=Body(_document, {"type": ["object", "null"]}),
        ),
        delete=changes(
            delete,
            "Delete the namespace; 409 while it has topics, 412 while it is replicated.",
            Query("force", "Delete its topics as well."),
        ),
    ),
    Resource(
        f"{_NAMESPACE}/topics",
        ResourceScope.NAMESPACE,
        get=reads(topics, "Full names of the namespace's topics.", _MODE),
    ),
    Resource(
        "/admin/v2/persistent/{tenant}/{namespace}",
        ResourceScope.NAMESPACE,
        get=reads(topics, "Persistent topics."),
        given={"domain": PERSISTENT},
    ),
    Resource(
        "/admin/v2/non-persistent/{tenant}/{namespace}",
        ResourceScope.NAMESPACE,
        get=reads(topics, "Non-persistent topics, while they are loaded."),
        given={"domain": NON_PERSISTENT},
    ),
    Resource(f"{_NAMESPACE}/unload", ResourceScope.NAMESPACE, put=changes(unload, "Unload all topics.")),
    Resource(
        f"{_NAMESPACE}/bundles",
        ResourceScope.NAMESPACE,
        get=reads(get_bundles, "The requested number of bundles."),
        kept=BUNDLES.kept,
    ),
    Resource(
        f"{_NAMESPACE}/{{bundle}}/split",
        ResourceScope.NAMESPACE,
        put=changes(split, "Refused: a region is one broker, so bundles are not split."),
    ),
    Resource(
        f"{_NAMESPACE}/{{bundle}}/unload",
        ResourceScope.NAMESPACE,
        put=changes(unload, "Unload all topics: they are one bundle."),
    ),
    Resource(
        f"{_NAMESPACE}/{WHOLE_BUNDLE}",
        ResourceScope.NAMESPACE,
        delete=changes(
            delete_bundle,
            "Delete what is in the only bundle; 409 while it has topics.",
            Query("force", "Delete its topics as well."),
        ),
    ),
    Resource(
        f"/admin/v2/non-persistent/{{tenant}}/{{namespace}}/{WHOLE_BUNDLE}",
        ResourceScope.NAMESPACE,
        get=reads(bundle_topics, "Non-persistent topics of the only bundle, while they are in memory."),
    ),
    *(row for at in (_NAMESPACE, f"{_NAMESPACE}/{WHOLE_BUNDLE}") for row in _rows_of_subscriptions(at)),
)
