"""Dispatch rates of single subscriptions: one policy of the topic, set and read one subscription at a time."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Resource, changes, reads
from emulator.broker.admin.resources.policies import APPLIED, IS_GLOBAL
from emulator.broker.authorization import ResourceScope
from emulator.core.flow.rate_limit import RateLimit
from emulator.core.policies.declaration import OutOfRange
from emulator.core.policies.limits import (
    DISPATCH_RATE_FORM,
    DISPATCH_RATES_BY_SUBSCRIPTION,
    SUBSCRIPTION_DISPATCH_RATE,
    SUBSCRIPTIONS_MAX,
)
from emulator.model.stored_keys import StoredKey
from emulator.model.values import TopicName


def _topic(call: AdminRequest) -> TopicName:
    return call.context.region.check_topic(topic_name(call.names))


def _place(call: AdminRequest) -> StoredKey:
    return call.context.region.policies.topic_place(
        _topic(call), everywhere=call.query.get("isGlobal", False)
    )


async def get(call: AdminRequest) -> Response:
    policies, name = call.context.region.policies, call.names["subscription"]
    if call.query.get("applied", False):
        topic = _topic(call)
        applied = policies.of_topic(topic)
        rate = applied[DISPATCH_RATES_BY_SUBSCRIPTION].get(name) or applied[SUBSCRIPTION_DISPATCH_RATE]
        return Response(DISPATCH_RATE_FORM.encode(rate))
    found = policies.set_at(_place(call)).get(DISPATCH_RATES_BY_SUBSCRIPTION.name, {}).get(name)
    return Response(status=204) if found is None else Response(found)


async def set_(call: AdminRequest) -> Response:
    if call.body is None:
        raise HttpError(400, "a rate is required; use DELETE to remove it")
    return await _change(call, call.body)


async def delete(call: AdminRequest) -> Response:
    return await _change(call, None)


async def _change(call: AdminRequest, rate: RateLimit | None) -> Response:
    name = call.names["subscription"]

    def changed(present: Any) -> Any:
        others = {one: of for one, of in (present or {}).items() if one != name}
        rates = others if rate is None else {**others, name: rate}
        if len(rates) > SUBSCRIPTIONS_MAX:
            raise HttpError(412, f"{SUBSCRIPTIONS_MAX} subscriptions of a topic may have rates of their own")
        return rates or None

    await call.context.region.policies.change(_place(call), DISPATCH_RATES_BY_SUBSCRIPTION, changed)
    return Response(status=204)


def _parse(raw: Any) -> RateLimit | None:
    try:
        return None if raw is None else DISPATCH_RATE_FORM.decode(raw)
    except OutOfRange as problem:
        raise HttpError(412, str(problem)) from None
    except ValueError as problem:
        raise HttpError(400, str(problem)) from None


RESOURCES = (
    Resource(
        "/admin/v2/persistent/{tenant}/{namespace}/{topic}/{subscription}/dispatchRate",
        ResourceScope.TOPIC,
        get=reads(get, "The rate of one subscription. 204 where it has none of its own.", IS_GLOBAL, APPLIED),
        post=changes(
            set_,
            "Set the rate of one subscription.",
            IS_GLOBAL,
            body=Body(_parse, DISPATCH_RATE_FORM.schema),
        ),
        delete=changes(delete, "Let the subscription follow `subscriptionDispatchRate` again.", IS_GLOBAL),
    ),
)
