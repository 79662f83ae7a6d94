"""Policies of namespaces and topics: rows generated from the registry, so that each declared policy has its paths.

A policy's declaration contains Pulsar's paths for it; a test rejects a policy without paths. The methods that set
policies and the paths that remove them are Pulsar's, too, and irregular. The backlog quota of one kind and the dispatch
rate of one subscription are parts of a policy, and have paths of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from emulator.broker.admin.parsing import codec_body, policy_body
from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Query, Resource, changes, reads
from emulator.broker.admin.resources.clusters import (
    check_allowed,
    check_region_exists,
    check_replication_clusters,
)
from emulator.core.authorization.rule import Permission
from emulator.core.policies.declaration import Policy, Scope
from emulator.core.policies.lifetime import BACKLOG_QUOTAS, QUOTA, QuotaKind, Quotas, quota_kind_of
from emulator.core.policies.limits import (
    DISPATCH_RATE_FORM,
    DISPATCH_RATES_BY_SUBSCRIPTION,
    SUBSCRIPTION_DISPATCH_RATE,
    SUBSCRIPTIONS_MAX,
)
from emulator.core.policies.topic_policies import REGISTRY
from emulator.core.policies.topics import ALLOWED_CLUSTERS, EXCLUSIVE_HOME, REPLICATION_CLUSTERS
from emulator.model.stored_keys import StoredKey
from emulator.net.http_server import HttpError

UNSET_BY_NULL: Final = frozenset({"deduplicationSnapshotInterval"})
"""Path segments of policies that tools remove by setting null."""
FURTHER_REMOVAL_PATHS: Final = {
    "offloadPolicies": "removeOffloadPolicies",
    "maxUnackedMessagesPerConsumer": "removeMaxUnackedMessagesPerConsumer",
}
"""Path segment of a namespace policy -> another segment at which the policy can be removed, too."""
FOR_SUPERUSERS: Final = frozenset({"persistence/bookieAffinity"})
"""Path segments of namespace policies that configure the brokers' machines, and that only superusers may use."""
APPLIED = Query("applied", "Include values inherited from a wider scope.")
IS_GLOBAL = Query(
    "isGlobal", "The value for all regions of the cluster. Without it: the value for this region."
)


@dataclass(frozen=True, slots=True)
class PolicyLevel:
    """The scope of policy rows: namespaces, or topics."""

    path: str
    path_of: Callable[[AdminRequest], StoredKey]
    effective: Callable[[AdminRequest, Policy[Any]], Any]
    """Returns the effective value of a policy, which a wider scope may set."""
    set_by_put: frozenset[str]
    """Path segments of policies that are set by PUT; the others are set by POST."""
    query: tuple[Query, ...] = ()
    """Query parameters of every operation."""


NAMESPACE: Final = PolicyLevel(
    "/admin/v2/namespaces/{tenant}/{namespace}",
    AdminRequest.namespace_path,
    lambda call, policy: call.region.policies.of_namespace(call.namespace(), policy),
    frozenset(
        {
            "compactionThreshold",
            "offloadThreshold",
            "offloadThresholdInSeconds",
            "offloadDeletionLagMs",
            "schemaCompatibilityStrategy",
            "schemaAutoUpdateCompatibilityStrategy",
        }
    ),
)
TOPIC: Final = PolicyLevel(
    "/admin/v2/persistent/{tenant}/{namespace}/{topic}",
    AdminRequest.topic_policies_path,
    lambda call, policy: call.region.policies.of_topic(call.topic_name())[policy],
    frozenset({"schemaCompatibilityStrategy"}),
    (IS_GLOBAL,),
)


def policy_resources(registry: Iterable[Policy[Any]]) -> tuple[Resource, ...]:
    """Return the rows of all policies, except those with `own_rows`."""
    rows: list[Resource] = []
    for policy in registry:
        if policy.own_rows:
            continue
        if Scope.NAMESPACE in policy.scopes:
            row = _row(policy, NAMESPACE, policy.at_namespace, also_put=policy.namespaces_put)
            rows.append(row)
            if segment := FURTHER_REMOVAL_PATHS.get(policy.at_namespace):
                path = f"{NAMESPACE.path}/{segment}"
                rows.append(Resource(path, delete=row.delete, stored_only=policy.kept))
        if Scope.TOPIC in policy.scopes:
            rows.append(_row(policy, TOPIC, policy.at_topic, parameter=policy.query_at_topic))
    return tuple(rows)


def _row(
    policy: Policy[Any], level: PolicyLevel, segment: str, *, also_put: bool = False, parameter: str = ""
) -> Resource:
    """Return the row of a policy. `parameter`: the query parameter that may contain the value instead of the body."""

    async def get(call: AdminRequest) -> Content:
        path = level.path_of(call)
        if call.flag("applied"):
            value = level.effective(call, policy)
            if value is None:
                value = getattr(call.region.config.settings, policy.name, None)
            return policy.unset if value is None else policy.codec.encode(value)
        return call.region.policies.stored_policies(path).get(policy.name, policy.unset)

    async def set_(call: AdminRequest) -> None:
        path, value = level.path_of(call), call.body
        if value is None and parameter in call.query:
            value = parse_text(call.query[parameter])
        if value is None and segment in UNSET_BY_NULL:
            await delete(call)
            return
        if value is None and policy.set_without_body:
            value = True
        if value is None:
            raise HttpError(400, f"{policy.name}: a value is required; use DELETE to remove it")
        _check(call, policy, value)
        await call.region.policies.set(path, policy, value)

    async def delete(call: AdminRequest) -> None:
        await call.region.policies.set(level.path_of(call), policy, None)

    def parse_text(text: str) -> Any:
        try:
            return body.parse(json.loads(text))
        except ValueError:
            raise HttpError(400, f"{policy.name}: {text!r} is not a value") from None

    body = policy_body(policy, segment)
    query = (
        (*level.query, Query(parameter, "The value, instead of a body.", str)) if parameter else level.query
    )
    permission = Permission.SUPERUSER if segment in FOR_SUPERUSERS else None
    setting = changes(set_, f"Set `{policy.name}`.", *query, body=body, permission=permission)
    is_put = segment in level.set_by_put
    unset = "204 if it is not set." if policy.unset is None else f"`{policy.unset}` if it is not set."
    return Resource(
        f"{level.path}/{segment}",
        get=reads(
            get, f"`{policy.name}`: {policy.doc} {unset}", *level.query, APPLIED, permission=permission
        ),
        post=None if is_put else setting,
        put=setting if is_put or also_put else None,
        delete=changes(
            delete,
            f"Unset `{policy.name}`: the value of the wider scope applies again.",
            *level.query,
            permission=permission,
        ),
        stored_only=policy.kept,
    )


def _check(call: AdminRequest, policy: Policy[Any], value: Any) -> None:
    """Raise HttpError for replication clusters, allowed clusters or a home region that are not valid."""
    namespace = f"{call.names['tenant']}/{call.names['namespace']}"
    if policy is REPLICATION_CLUSTERS:
        check_replication_clusters(call.region, namespace, value)
    elif policy is ALLOWED_CLUSTERS:
        check_allowed(call.region, namespace, value)
    elif policy is EXCLUSIVE_HOME and value:
        check_region_exists(call.region, value)


async def unset_all(call: AdminRequest) -> None:
    """Unset all policies of a topic, in this region and in all regions, even if the topic was deleted (PIP-422)."""
    metadata, topic = call.region.metadata, call.topic_name()
    for everywhere in (True, False):
        path = call.region.policies.topic_policies_path(topic, everywhere=everywhere).text
        if metadata.get(path) is not None:
            await metadata.put(path, None)


# Backlog quotas: Pulsar's tools set one kind per request. The policy's own row returns all of them.


def _kind(call: AdminRequest) -> QuotaKind:
    try:
        return quota_kind_of(call.query.get("backlogQuotaType", ""))
    except ValueError as problem:
        raise HttpError(400, str(problem)) from None


def _quota_row(level: PolicyLevel) -> Resource:
    async def post(call: AdminRequest) -> None:
        path, quota = level.path_of(call), _required_body(call, "quota")
        kind = _kind(call)
        await call.region.policies.change(
            path, BACKLOG_QUOTAS, lambda present: {**(present or {}), kind: quota}
        )

    async def delete(call: AdminRequest) -> None:
        path, kind = level.path_of(call), _kind(call)

        def without(present: Quotas | None) -> Quotas | None:
            return _without(present, kind) or None

        await call.region.policies.change(path, BACKLOG_QUOTAS, without)

    query = (Query("backlogQuotaType", "destination_storage (default) or message_age.", str), *level.query)
    return Resource(
        f"{level.path}/backlogQuota",
        post=changes(post, "Set the backlog quota of one kind.", *query, body=codec_body(QUOTA)),
        delete=changes(delete, "Remove the backlog quota of one kind.", *query),
    )


def _required_body(call: AdminRequest, what: str) -> Any:
    if call.body is None:
        raise HttpError(400, f"a {what} is required; use DELETE to remove it")
    return call.body


def _without(present: Mapping[Any, Any] | None, key: object) -> dict[Any, Any]:
    return {one: value for one, value in (present or {}).items() if one != key}


# Dispatch rates of single subscriptions: one policy of the topic.


async def get_rate(call: AdminRequest) -> Content:
    policies, name = call.region.policies, call.names["subscription"]
    if call.flag("applied"):
        applied = policies.of_topic(call.topic_name())
        rate = applied[DISPATCH_RATES_BY_SUBSCRIPTION].get(name) or applied[SUBSCRIPTION_DISPATCH_RATE]
        return DISPATCH_RATE_FORM.encode(rate)
    rates = policies.stored_value(call.topic_policies_path(), DISPATCH_RATES_BY_SUBSCRIPTION) or {}
    return rates.get(name)


async def set_rate(call: AdminRequest) -> None:
    rate = _required_body(call, "rate")
    await _change_rates(call, lambda rates: {**rates, call.names["subscription"]: rate})


async def delete_rate(call: AdminRequest) -> None:
    await _change_rates(call, lambda rates: rates)


async def _change_rates(call: AdminRequest, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Change the rate of one subscription. `change`: maps the rates of the other subscriptions to all new rates."""

    def limit_rates(present: Any) -> Any:
        rates = change(_without(present, call.names["subscription"]))
        if len(rates) > SUBSCRIPTIONS_MAX:
            raise HttpError(412, f"{SUBSCRIPTIONS_MAX} subscriptions of a topic may have rates of their own")
        return rates or None

    await call.region.policies.change(call.topic_policies_path(), DISPATCH_RATES_BY_SUBSCRIPTION, limit_rates)


RESOURCES = (
    *policy_resources(REGISTRY.values()),
    Resource(
        f"{TOPIC.path}/policies",
        delete=changes(
            unset_all, "Unset all policies of the topic, those for all regions of the cluster too."
        ),
    ),
    _quota_row(NAMESPACE),
    _quota_row(TOPIC),
    Resource(
        f"{TOPIC.path}/{{subscription}}/dispatchRate",
        get=reads(get_rate, "The rate of one subscription. 204 if it has no own rate.", IS_GLOBAL, APPLIED),
        post=changes(
            set_rate, "Set the rate of one subscription.", IS_GLOBAL, body=codec_body(DISPATCH_RATE_FORM)
        ),
        delete=changes(
            delete_rate, "Remove the rate of one subscription: `subscriptionDispatchRate` applies.", IS_GLOBAL
        ),
    ),
)
