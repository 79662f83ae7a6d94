"""The topics that a path addresses: one, or all partitions of one."""

from __future__ import annotations

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError
from emulator.broker.admin.resource import AdminRequest
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.partitions import partition_names


def names_of(call: AdminRequest) -> list[str]:
    """Full names of the topic, or of its partitions."""
    region = call.context.region
    name = region.check_topic(topic_name(call.names))
    found = region.partitioned.get(name)
    return [str(name)] if found is None else partition_names(name, found.count)


async def every_topic(call: AdminRequest, wish: OpenMode = OpenMode.EXISTING) -> list[Topic]:
    """HttpError 404 or ProtocolError when one of them cannot be loaded."""
    return [await call.context.region.directory.acquire(name, wish) for name in names_of(call)]


async def one_topic(call: AdminRequest) -> Topic:
    """HttpError 405 for a partitioned topic: a position is valid in one partition only."""
    names = names_of(call)
    region = call.context.region
    if region.partitioned.get(region.check_topic(topic_name(call.names))) is not None:
        raise HttpError(405, f"{topic_name(call.names)} has partitions: name one of them, such as {names[0]}")
    return await region.directory.acquire(names[0], OpenMode.EXISTING)


async def every_subscription(call: AdminRequest) -> list[tuple[Topic, Subscription]]:
    """Subscriptions with the name in the path: of the topic, or of those partitions that have it. HttpError 404 for
    none."""
    name = call.names["subscription"]
    topics = await every_topic(call)
    pairs = [(topic, topic.subscriptions.get(name)) for topic in topics]
    found = [(topic, one) for topic, one in pairs if one is not None and not one.closed]
    if not found:
        raise missing(call)
    return found


async def one_subscription(call: AdminRequest) -> tuple[Topic, Subscription]:
    """HttpError 404 when it does not exist, 405 for a partitioned topic."""
    topic = await one_topic(call)
    found = topic.subscriptions.get(call.names["subscription"])
    if found is None or found.closed:
        raise missing(call)
    return topic, found


def missing(call: AdminRequest) -> HttpError:
    name = call.names["subscription"]
    if name.startswith("pulsar.repl."):
        return HttpError(
            412, f"{name}: a replicator cannot skip messages; remove its region from replication_clusters"
        )
    return HttpError(404, f"Subscription {name} not found for topic {topic_name(call.names)}")
