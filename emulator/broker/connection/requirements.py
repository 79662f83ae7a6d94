"""The permissions that commands require.

They are those of Pulsar's broker, with stricter rules where its broker has none: schemas are read with the permission
of a lookup, and participants of a transaction need produce or consume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from emulator.broker.authorizer import Requirement
from emulator.core.authorization.rule import Permission, namespace_target, topic_target
from emulator.errors import ProtocolError, ServerError
from emulator.model.transaction_names import COORDINATORS
from emulator.model.values import TopicName
from emulator.wire import commands as wire

_ANY_ROLE: Final = (Requirement(Permission.ANY_ROLE),)


class CommandRequirements(NamedTuple):
    """The permissions that a kind of command requires."""

    doc: str
    of: Callable[[Any], Iterable[Requirement]]
    """Returns the requirements of a command. ProtocolError for an invalid name."""


def _on_topic(permission: Permission, topic: str, subscription: str = "") -> Requirement:
    try:
        return Requirement(permission, topic_target(TopicName.parse(topic), subscription))
    except ValueError as problem:
        raise ProtocolError(ServerError.InvalidTopicName, str(problem)) from None


def _look_up(command: wire.Lookup | wire.PartitionMetadata) -> Iterable[Requirement]:
    if command.topic.startswith(COORDINATORS):
        return _ANY_ROLE
    return (_on_topic(Permission.LOOKUP, command.topic),)


def _produce(command: wire.CreateProducer) -> Iterator[Requirement]:
    yield _on_topic(Permission.PRODUCE, command.topic)
    if command.initial_subscription_name:
        yield _on_topic(Permission.CONSUME, command.topic, command.initial_subscription_name)


ANY_ROLE: Final = CommandRequirements(Permission.ANY_ROLE.value, lambda command: _ANY_ROLE)
LOOK_UP: Final = CommandRequirements(
    "produce or consume on the topic; any authenticated role for the transaction coordinators", _look_up
)
READ_SCHEMA: Final = CommandRequirements(
    "produce or consume on the topic", lambda command: (_on_topic(Permission.LOOKUP, command.topic),)
)
REGISTER_SCHEMA: Final = CommandRequirements(
    "produce on the topic", lambda command: (_on_topic(Permission.PRODUCE, command.topic),)
)
LIST_TOPICS: Final = CommandRequirements(
    "consume on the namespace",
    lambda command: (Requirement(Permission.NAMESPACE_CONSUME, namespace_target(command.namespace)),),
)
PRODUCE: Final = CommandRequirements(
    "produce on the topic, and consume from the subscription that the producer creates", _produce
)
CONSUME: Final = CommandRequirements(
    "consume from the subscription",
    lambda command: (_on_topic(Permission.CONSUME, command.topic, command.subscription),),
)
ADD_PARTITIONS: Final = CommandRequirements(
    "produce on each of the topics",
    lambda command: [_on_topic(Permission.PRODUCE, topic) for topic in command.topics],
)
ADD_SUBSCRIPTIONS: Final = CommandRequirements(
    "consume from each of the subscriptions",
    lambda command: [_on_topic(Permission.CONSUME, topic, name) for topic, name in command.subscriptions],
)
