"""Policies of namespaces and topics: rows made from the registry, so that a policy that is declared has its paths.

Pulsar names the paths, so each policy has its two here; a test refuses a policy without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.place import topic_name
from emulator.broker.admin.resource import Body, Call, Query, Resource, changes, reads
from emulator.broker.admin.scope import Scope
from emulator.core.policies import EXCLUSIVE_HOME, REGISTRY, REPLICATION_CLUSTERS, Policy
from emulator.core.policies import Scope as PolicyScope
from emulator.model import TopicName
from emulator.stored_keys import NamespacePath, StoredKey, TopicPoliciesPath

PATHS: Mapping[str, tuple[str, str]] = {
    "replication_clusters": ("replication", "replication"),
    "deduplication": ("deduplication", "deduplicationEnabled"),
    "keep_alive_interval_ms": ("keepAliveInterval", ""),
    "exclusive_home": ("exclusiveHome", ""),
    "auto_topic_creation": ("autoTopicCreation", ""),
}
"""By policy: the last segment of its path at a namespace, and at a topic. Keep-alive and home are ours."""
APPLIED = Query("applied", "What applies, also when a namespace says it.")


def policy_resources(registry: Iterable[Policy[Any]]) -> tuple[Resource, ...]:
    """The rows of all policies."""
    rows: list[Resource] = []
    for policy in registry:
        at_namespace, at_topic = PATHS[policy.name]
        if PolicyScope.NAMESPACE in policy.scopes:
            path = f"/admin/v2/namespaces/{{tenant}}/{{namespace}}/{at_namespace}"
            rows.append(_row(policy, path, Scope.NAMESPACE, _of_namespace, _namespace_place))
        if PolicyScope.TOPIC in policy.scopes:
            path = f"/admin/v2/persistent/{{tenant}}/{{namespace}}/{{topic}}/{at_topic}"
            rows.append(_row(policy, path, Scope.TOPIC, _of_topic, _topic_place))
    return tuple(rows)


def _row(
    policy: Policy[Any],
    path: str,
    scope: Scope,
    value_of: Callable[[Call, Policy[Any]], Any],
    place_of: Callable[[Call], StoredKey],
) -> Resource:
    async def get(call: Call) -> Response:
        value = value_of(call, policy)
        return Response(status=204) if value is None else Response(policy.codec.encode(value))

    async def post(call: Call) -> Response:
        place = place_of(call)
        if call.body is None:
            raise HttpError(400, f"{policy.name}: a value is needed; DELETE takes it away")
        _check(call, policy, call.body)
        await call.place.region.policies.set(place, policy, call.body)
        return Response(status=204)

    async def delete(call: Call) -> Response:
        await call.place.region.policies.set(place_of(call), policy, None)
        return Response(status=204)

    def parse(raw: Any) -> Any:
        try:
            return None if raw is None else policy.codec.decode(raw)
        except ValueError as problem:
            raise HttpError(400, f"{policy.name}: {problem}") from None

    query = (APPLIED,) if scope is Scope.TOPIC else ()
    return Resource(
        path,
        scope,
        get=reads(
            get,
            f"`{policy.name}`: {policy.doc}{' 204 where the topic does not set it.' if query else ''}",
            *query,
        ),
        post=changes(post, f"Set `{policy.name}`.", body=Body(parse, policy.codec.schema)),
        delete=changes(delete, f"Unset `{policy.name}`: what a wider place says applies again."),
    )


def _check(call: Call, policy: Policy[Any], value: Any) -> None:
    """HttpError 412 for a list of regions that cannot be meant."""
    if policy is REPLICATION_CLUSTERS:
        region = call.place.region
        _check_regions(value, region.config.region, {region.config.region, *region.peers})
    if policy is EXCLUSIVE_HOME and value:
        known = {call.place.region.config.region, *call.place.region.peers}
        if value not in known:
            raise HttpError(412, f"{value} is no region; there are {', '.join(sorted(known))}")


def _check_regions(named: tuple[str, ...], asked: str, known: set[str]) -> None:
    """Pulsar deletes the topics of the region that is asked when a list lacks it. Nobody means that here, and one who
    does not share the messages any more says so by naming itself alone."""
    strangers = [name for name in named if name not in known]
    if strangers:
        raise HttpError(412, f"{strangers[0]} is no region; there are {', '.join(sorted(known))}")
    if not named:
        raise HttpError(412, f"a list of regions must not be empty; [{asked!r}] alone means no replication")
    if asked not in named:
        raise HttpError(
            412,
            f"the list lacks {asked}, which is asked to keep it: a region shares its own messages; to take {asked} "
            f"out, ask another region of its cluster, and to end replication name {asked} alone",
        )


def _namespace_place(call: Call) -> StoredKey:
    return NamespacePath(call.place.namespace(call.names["tenant"], call.names["namespace"]))


def _topic_place(call: Call) -> StoredKey:
    return TopicPoliciesPath(str(call.place.region.check_topic(topic_name(call.names))))


def _of_namespace(call: Call, policy: Policy[Any]) -> Any:
    name = call.place.namespace(call.names["tenant"], call.names["namespace"])
    return call.place.region.policies.of_namespace(name, policy)


def _of_topic(call: Call, policy: Policy[Any]) -> Any:
    policies = call.place.region.policies
    name: TopicName = call.place.region.check_topic(topic_name(call.names))
    if call.query.get("applied", False):
        effective = policies.of_topic(name)
        try:
            return effective[policy]
        finally:
            effective.close()
    raw = policies.places(name)[PolicyScope.TOPIC].get(policy.name)
    return None if raw is None else policy.codec.decode(raw)


RESOURCES = policy_resources(REGISTRY.values())
