"""Backlog quotas, as Pulsar's tools send them: one kind at a time, named behind the `?`. Reading them all is a row of
the policy itself (`backlogQuotaMap`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Operation, Query, Resource, changes
from emulator.broker.admin.resources.policies import IS_GLOBAL
from emulator.broker.authorization import ResourceScope
from emulator.core.policies.declaration import OutOfRange
from emulator.core.policies.lifetime import BACKLOG_QUOTAS, QUOTA, Quota, QuotaKind, Quotas, quota_kind_of
from emulator.model.stored_keys import NamespacePath, StoredKey


def _kind(call: AdminRequest) -> QuotaKind:
    try:
        return quota_kind_of(call.query.get("backlogQuotaType", ""))
    except ValueError as problem:
        raise HttpError(400, str(problem)) from None


def _of_namespace(call: AdminRequest) -> StoredKey:
    return NamespacePath(call.context.namespace(call.names["tenant"], call.names["namespace"]))


def _of_topic(call: AdminRequest) -> StoredKey:
    topic = call.context.region.check_topic(topic_name(call.names))
    return call.context.region.policies.topic_place(topic, everywhere=call.query.get("isGlobal", False))


def _parse(raw: Any) -> Quota | None:
    try:
        return None if raw is None else QUOTA.decode(raw)
    except OutOfRange as problem:
        raise HttpError(412, str(problem)) from None
    except ValueError as problem:
        raise HttpError(400, str(problem)) from None


_KIND = Query("backlogQuotaType", "destination_storage (default) or message_age.", str)


def _operations(place_of: Callable[[AdminRequest], StoredKey], *where: Query) -> tuple[Operation, Operation]:
    async def post(call: AdminRequest) -> Response:
        place = place_of(call)
        if call.body is None:
            raise HttpError(400, "a quota is required; use DELETE to remove it")
        kind, quota = _kind(call), call.body
        await call.context.region.policies.change(
            place, BACKLOG_QUOTAS, lambda present: {**(present or {}), kind: quota}
        )
        return Response(status=204)

    async def delete(call: AdminRequest) -> Response:
        place, kind = place_of(call), _kind(call)

        def without(present: Quotas | None) -> Quotas | None:
            return {one: quota for one, quota in (present or {}).items() if one is not kind} or None

        await call.context.region.policies.change(place, BACKLOG_QUOTAS, without)
        return Response(status=204)

    body = Body(_parse, QUOTA.schema)
    return changes(post, "Set the backlog quota of one kind.", _KIND, *where, body=body), changes(
        delete, "Remove the backlog quota of one kind.", _KIND, *where
    )


def _row(
    path: str, scope: ResourceScope, place_of: Callable[[AdminRequest], StoredKey], *where: Query
) -> Resource:
    post, delete = _operations(place_of, *where)
    return Resource(path, scope, post=post, delete=delete)


RESOURCES = (
    _row("/admin/v2/namespaces/{tenant}/{namespace}/backlogQuota", ResourceScope.NAMESPACE, _of_namespace),
    _row(
        "/admin/v2/persistent/{tenant}/{namespace}/{topic}/backlogQuota",
        ResourceScope.TOPIC,
        _of_topic,
        IS_GLOBAL,
    ),
)
