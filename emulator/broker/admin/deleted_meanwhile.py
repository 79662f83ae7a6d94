"""What an admin call is told that was under way when somebody deleted its topic, subscription or namespace: what Pulsar
says of one that is not there. The store is well.

Who asks for many at once is told nothing of one that went meanwhile: there is nothing to be done to it any more.
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
    """GoneMeanwhile only if it is still there, and loaded again."""
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
    """404 for what is not there any more, with Pulsar's reason; 409 for what was loaded again. ProtocolError."""
    if "topic" in call.names:
        for name in names_of(call):
            topic = await call.context.region.directory.acquire(name, OpenMode.EXISTING)
            if "subscription" in call.names and call.names["subscription"] not in topic.subscriptions:
                return missing(call)
    elif "namespace" in call.names:
        call.context.namespace(call.names["tenant"], call.names["namespace"])
    return HttpError(409, f"{problem}: it was loaded again during the request; repeat the request")
