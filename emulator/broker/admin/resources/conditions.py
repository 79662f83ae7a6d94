"""The resource of conditions that programs wait for: this region's part of each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Body, Resource, changes
from emulator.broker.explain.conditions import WaitScope, state_of
from emulator.core.replication.delivery_state import DeliveryState
from emulator.model.conditions import CONDITIONS
from emulator.model.suggestions import nearest
from emulator.model.values import TopicName
from emulator.net.http_server import HttpError

WAIT_MS_MAX = 30_000
POLL_SECONDS = 0.02
LOST_MAX = 1_000
FIELDS = ("topic", "subscription", "lost", "goal", "target", "wait_ms")


async def post_condition(call: AdminRequest) -> Content:
    """Return the region's part of a condition: at once, or as soon as nothing is missing, within `wait_ms`."""
    condition = call.names["condition"]
    if condition not in CONDITIONS:
        hint = nearest(condition, CONDITIONS)
        meant = f" (did you mean {hint!r}?)" if hint else ""
        raise HttpError(404, f"there is no condition {condition[:100]!r}{meant}: {', '.join(CONDITIONS)}")
    wait, wait_ms = _parse({}) if call.body is None else call.body
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    state = await state_of(call.region, condition, wait)
    while state.missing and loop.time() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        state = await state_of(call.region, condition, replace(wait, goal=state.goal))
    return state.to_json()


def _parse(raw: Any) -> tuple[WaitScope, int]:
    """Parse the body. HttpError 400 names the field, the value and the rule."""
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        raise HttpError(400, f"the body must be a JSON object with {', '.join(FIELDS)}, all optional")
    topic, subscription = _text(raw, "topic"), _text(raw, "subscription")
    if subscription is not None and topic is None:
        raise HttpError(400, f"subscription: {subscription[:100]!r} requires a topic")
    wait = WaitScope(_topic(topic), subscription, frozenset(_lost(raw)), _goal(raw), _target(raw))
    return wait, _wait_ms(raw)


def _text(raw: Mapping[str, Any], name: str) -> str | None:
    value = raw.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise HttpError(400, f"{name}: {repr(value)[:100]} must be a name")
    return value


def _topic(text: str | None) -> TopicName | None:
    try:
        return None if text is None else TopicName.parse(text)
    except ValueError as problem:
        raise HttpError(400, f"topic: {problem}") from None


def _lost(raw: Mapping[str, Any]) -> list[str]:
    value = raw.get("lost", [])
    is_list = isinstance(value, list) and len(value) <= LOST_MAX
    if not is_list or not all(isinstance(one, str) for one in value):
        raise HttpError(400, f"lost: {repr(value)[:100]} must be a list of up to {LOST_MAX} regions")
    return list(value)


def _goal(raw: Mapping[str, Any]) -> dict[str, Any]:
    value = raw.get("goal", {})
    if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
        raise HttpError(400, f"goal: {repr(value)[:100]} must be the goal of an earlier response")
    return value


def _target(raw: Mapping[str, Any]) -> DeliveryState | None:
    try:
        return None if raw.get("target") is None else DeliveryState.parse(raw["target"])
    except ValueError as problem:
        raise HttpError(400, f"target: {problem}") from None


def _wait_ms(raw: Mapping[str, Any]) -> int:
    value = raw.get("wait_ms", 0)
    if type(value) is not int or not 0 <= value <= WAIT_MS_MAX:
        raise HttpError(400, f"wait_ms: {repr(value)[:100]} must be a whole number from 0 to {WAIT_MS_MAX}")
    return value


_BODY = Body(
    _parse,
    {
        "type": "object",
        "properties": {
            "topic": {"type": "string"},
            "subscription": {"type": "string"},
            "lost": {"type": "array", "items": {"type": "string"}, "maxItems": LOST_MAX},
            "goal": {"type": "object"},
            "target": {
                "type": "object",
                "description": "For `replicated` with a subscription: the delivery state of another region.",
            },
            "wait_ms": {"type": "integer", "minimum": 0, "maximum": WAIT_MS_MAX},
        },
    },
)
RESOURCES = (
    Resource(
        "/geoemu/v1/conditions/{condition}",
        post=changes(
            post_condition,
            f"This region's part of a condition: {', '.join(CONDITIONS)}. `missing` says what it lacks, and is empty "
            "once it holds; `goal` is passed back with the next request. `snapshot` starts one. The response is sent "
            "after `wait_ms` at the latest.",
            body=_BODY,
            empty=False,
        ),
    ),
)
