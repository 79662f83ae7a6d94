"""Policies of namespaces and topics: rows generated from the registry, so that a declared policy has its paths.

Pulsar defines the paths, so a policy's declaration names them; a test rejects a policy without. The method that sets a
policy, and the path that removes it, are Pulsar's too, and as irregular.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.replication_rules import check_allowed, check_home, check_sharing
from emulator.broker.admin.resource import AdminRequest, Body, Query, Resource, changes, reads
from emulator.broker.authorization import ResourceScope
from emulator.core.json_fit import fits
from emulator.core.policies.declaration import InPulsarsWords, OutOfRange, Policy, Scope
from emulator.core.policies.registry import REGISTRY
from emulator.core.policies.topics import ALLOWED_CLUSTERS, EXCLUSIVE_HOME, REPLICATION_CLUSTERS
from emulator.model.stored_keys import NamespacePath, StoredKey
from emulator.model.values import TopicName

SET_BY_PUT: Final = frozenset(
    {
        "compactionThreshold",
        "offloadThreshold",
        "offloadThresholdInSeconds",
        "offloadDeletionLagMs",
        "schemaCompatibilityStrategy",
        "schemaAutoUpdateCompatibilityStrategy",
    }
)
"""Policies of namespaces that are set by PUT; the others are set by POST."""
UNSET_BY_NULL: Final = frozenset({"deduplicationSnapshotInterval"})
"""Policies that tools remove by setting null."""
TOPICS_SET_BY_PUT: Final = frozenset({"schemaCompatibilityStrategy"})
REMOVED_AT: Final = {
    "offloadPolicies": "removeOffloadPolicies",
    "maxUnackedMessagesPerConsumer": "removeMaxUnackedMessagesPerConsumer",
}
"""Policies of namespaces that can be removed at another path segment, too."""
APPLIED = Query("applied", "Include values inherited from a wider scope.")
IS_GLOBAL = Query(
    "isGlobal", "The value for all regions of the cluster. Without it: the value for this region."
)


def policy_resources(registry: Iterable[Policy[Any]]) -> tuple[Resource, ...]:
    """The rows of all policies."""
    rows: list[Resource] = []
    for policy in registry:
        if policy.own_rows:
            continue
        if Scope.NAMESPACE in policy.scopes:
            rows += _of_namespace(policy)
        if Scope.TOPIC in policy.scopes:
            rows.append(_of_topic(policy))
    return tuple(rows)


def _of_namespace(policy: Policy[Any]) -> list[Resource]:
    at = "/admin/v2/namespaces/{tenant}/{namespace}"
    rows = [
        _row(
            policy,
            f"{at}/{policy.at_namespace}",
            ResourceScope.NAMESPACE,
            _at_namespace,
            _namespace_place,
            (),
            (APPLIED,),
        )
    ]
    removed_at = REMOVED_AT.get(policy.at_namespace)
    if removed_at is not None:
        remove = rows[0].delete
        rows.append(Resource(f"{at}/{removed_at}", ResourceScope.NAMESPACE, delete=remove, kept=policy.kept))
    return rows


def _of_topic(policy: Policy[Any]) -> Resource:
    path = f"/admin/v2/persistent/{{tenant}}/{{namespace}}/{{topic}}/{policy.at_topic}"
    return _row(policy, path, ResourceScope.TOPIC, _at_topic, _topic_place, (IS_GLOBAL,), (APPLIED,))


def _row(
    policy: Policy[Any],
    path: str,
    scope: ResourceScope,
    value_of: Callable[[AdminRequest, Policy[Any]], Any],
    place_of: Callable[[AdminRequest], StoredKey],
    where: tuple[Query, ...],
    reading: tuple[Query, ...],
) -> Resource:
    async def get(call: AdminRequest) -> Response:
        value = value_of(call, policy)
        return Response(status=204) if value is None else Response(value)

    async def set_(call: AdminRequest) -> Response:
        place, value = place_of(call), call.body
        if value is None and behind in call.query:
            value = parse_text(call.query[behind])
        if value is None and segment in UNSET_BY_NULL:
            return await delete(call)
        if value is None and policy.set_without_body:
            value = True
        if value is None:
            raise HttpError(400, f"{policy.name}: a value is required; use DELETE to remove it")
        check(call, policy, value)
        await call.context.region.policies.set(place, policy, value)
        return Response(status=204)

    async def delete(call: AdminRequest) -> Response:
        await call.context.region.policies.set(place_of(call), policy, None)
        return Response(status=204)

    segment = policy.at_topic if scope is ResourceScope.TOPIC else policy.at_namespace
    parse = parser(policy, segment)

    def parse_text(text: str) -> Any:
        try:
            raw = json.loads(text)
        except ValueError:
            raise HttpError(400, f"{policy.name}: {text!r} is not a value") from None
        return parse(raw)

    behind = policy.query_at_topic if scope is ResourceScope.TOPIC else ""
    told = (Query(behind, "The value, instead of a body.", str),) if behind else ()
    setting = changes(set_, f"Set `{policy.name}`.", *where, *told, body=Body(parse, policy.codec.schema))
    is_put_too = policy.namespaces_put and scope is ResourceScope.NAMESPACE
    by_put = segment in (TOPICS_SET_BY_PUT if scope is ResourceScope.TOPIC else SET_BY_PUT)
    unset = "204 if it is not set." if policy.unset is None else f"`{policy.unset}` if it is not set."
    return Resource(
        path,
        scope,
        get=reads(get, f"`{policy.name}`: {policy.doc} {unset}", *where, *reading),
        post=None if by_put else setting,
        put=setting if by_put or is_put_too else None,
        delete=changes(delete, f"Unset `{policy.name}`: the value of the wider scope applies again.", *where),
        kept=policy.kept,
    )


def parser(policy: Policy[Any], segment: str = "") -> Callable[[Any], Any]:
    """Return the parser from a body to the policy's value. HttpError 400 for an invalid form, 412 for an invalid
    value."""

    def parse(raw: Any) -> Any:
        try:
            return None if raw is None else policy.codec.decode(raw)
        except OutOfRange as problem:
            raise HttpError(412, sentence(raw, problem)) from None
        except ValueError as problem:
            is_value = not isinstance(raw, list | str | bool) and fits(policy.codec.schema, raw)
            raise HttpError(412 if is_value else 400, sentence(raw, problem)) from None

    def sentence(raw: Any, problem: ValueError) -> str:
        is_negative = isinstance(raw, int | str) and str(raw).startswith("-") and str(raw)[1:].isdecimal()
        if isinstance(problem, InPulsarsWords):
            return str(problem)
        if policy.below_zero and is_negative:
            return policy.below_zero.format(segment)
        return f"{policy.name}: {problem}"

    return parse


def check(call: AdminRequest, policy: Policy[Any], value: Any) -> None:
    """HttpError for an invalid list of regions."""
    region = call.context.region
    namespace = f"{call.names['tenant']}/{call.names['namespace']}"
    if policy is REPLICATION_CLUSTERS:
        check_sharing(region, namespace, value)
    elif policy is ALLOWED_CLUSTERS:
        check_allowed(region, namespace, value)
    elif policy is EXCLUSIVE_HOME and value:
        check_home(region, value)


def _namespace_place(call: AdminRequest) -> StoredKey:
    return NamespacePath(call.context.namespace(call.names["tenant"], call.names["namespace"]))


def _topic(call: AdminRequest) -> TopicName:
    return call.context.region.check_topic(topic_name(call.names))


def _topic_place(call: AdminRequest) -> StoredKey:
    return call.context.region.policies.topic_place(
        _topic(call), everywhere=call.query.get("isGlobal", False)
    )


def _at_namespace(call: AdminRequest, policy: Policy[Any]) -> Any:
    """The namespace's own value as JSON; None: it sets none."""
    place, policies = _namespace_place(call), call.context.region.policies
    if call.query.get("applied", False):
        name = f"{call.names['tenant']}/{call.names['namespace']}"
        return _as_json(policy, policies.of_namespace(name, policy))
    return policies.set_at(place).get(policy.name, policy.unset)


def _at_topic(call: AdminRequest, policy: Policy[Any]) -> Any:
    policies = call.context.region.policies
    place = _topic_place(call)
    if call.query.get("applied", False):
        return _as_json(policy, policies.of_topic(_topic(call))[policy])
    return policies.set_at(place).get(policy.name, policy.unset)


def _as_json(policy: Policy[Any], value: Any) -> Any:
    return policy.unset if value is None else policy.codec.encode(value)


async def unset_all(call: AdminRequest) -> Response:
    """Also of a topic that was deleted (PIP-422)."""
    region = call.context.region
    for everywhere in (True, False):
        place = region.policies.topic_place(_topic(call), everywhere=everywhere)
        if region.metadata.get(place.text) is not None:
            await region.metadata.put(place.text, None)
    return Response(status=204)


RESOURCES = (
    *policy_resources(REGISTRY.values()),
    Resource(
        "/admin/v2/persistent/{tenant}/{namespace}/{topic}/policies",
        ResourceScope.TOPIC,
        delete=changes(
            unset_all, "Unset all policies of the topic, those for all regions of the cluster too."
        ),
    ),
)
