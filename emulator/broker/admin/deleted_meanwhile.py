"""The response to an admin request whose topic, subscription or namespace was deleted during the request: as Pulsar's
for one that does not exist. It is no failure of the store.

Requests for many topics or subscriptions skip those that were deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress

from emulator.broker.admin.http import HttpError
from emulator.broker.admin.resource import AdminRequest
from emulator.broker.admin.topics_named import missing, names_of
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.errors import GoneMeanwhile, ProtocolError


async def unless_gone(
    call: AdminRequest, topic: Topic, subscription: Subscription, work: Awaitable[None]
) -> None:
    """GoneMeanwhile only if the subscription still exists, and its topic is loaded again."""
    try:
        await work
    except GoneMeanwhile:
        if await _has(call, topic.full_name, subscription.name):
            raise


async def _has(call: AdminRequest, topic: str, subscription: str) -> bool:
    with suppress(ProtocolError):
        found = await call.context.region.directory.acquire(topic, OpenMode.EXISTING)
        return subscription in found.subscriptions
    return False


async def answer_to(call: AdminRequest, problem: GoneMeanwhile) -> HttpError:
    """404 with Pulsar's reason if it does not exist any more; 409 if it was loaded again. ProtocolError."""
    if "topic" in call.names:
        for name in names_of(call):
            topic = await call.context.region.directory.acquire(name, OpenMode.EXISTING)
            if "subscription" in call.names and call.names["subscription"] not in topic.subscriptions:
                return missing(call)
    elif "namespace" in call.names:
        call.context.namespace(call.names["tenant"], call.names["namespace"])
    return HttpError(409, f"{problem}: it was loaded again during the request; repeat the request")
