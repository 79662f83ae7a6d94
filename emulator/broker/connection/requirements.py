"""The permissions that commands require.

They are those of Pulsar's broker, with stricter rules where its broker has none: schemas are read with the permission
of a lookup, and participants of a transaction need produce or consume.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Final, NamedTuple

from emulator.broker.authorizer import Requirement
from emulator.core.authorization.rule import Permission, namespace_target, topic_target
from emulator.errors import ProtocolError, ServerError
from emulator.model.transaction_names import COORDINATORS
from emulator.model.values import TopicName
from emulator.wire import commands as wire

_ANY_ROLE: Final = (Requirement(Permission.ANY_ROLE),)
_COORDINATOR: Final = re.compile(rf"{re.escape(COORDINATORS)}(-partition-\d{{1,9}})?", re.ASCII)
PARTICIPANTS_MAX: Final = 10_000
"""Maximum number of participants that one command adds to a transaction."""


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


def _look_up(command: wire.Lookup) -> Iterable[Requirement]:
    if _COORDINATOR.fullmatch(command.topic):
        return _ANY_ROLE
    return (_on_topic(Permission.LOOKUP, command.topic),)


def _count_partitions(command: wire.PartitionMetadata) -> Iterable[Requirement]:
    # Any other name that begins like this one may be a topic that the command creates.
    if command.topic == COORDINATORS:
        return _ANY_ROLE
    return (_on_topic(Permission.LOOKUP, command.topic),)


def _check_size(participants: Sized) -> None:
    """Raise ProtocolError for more participants than can be checked without delaying other clients."""
    if len(participants) > PARTICIPANTS_MAX:
        sentence = f"{len(participants):,} participants in one command; {PARTICIPANTS_MAX:,} are allowed"
        raise ProtocolError(ServerError.NotAllowedError, sentence)


def _add_partitions(command: wire.AddPartitions) -> Iterator[Requirement]:
    _check_size(command.topics)
    yield from _ANY_ROLE
    for topic in command.topics:
        yield _on_topic(Permission.PRODUCE, topic)


def _add_subscriptions(command: wire.AddSubscriptions) -> Iterator[Requirement]:
    _check_size(command.subscriptions)
    yield from _ANY_ROLE
    for topic, name in command.subscriptions:
        yield _on_topic(Permission.CONSUME, topic, name)


def _produce(command: wire.CreateProducer) -> Iterator[Requirement]:
    yield _on_topic(Permission.PRODUCE, command.topic)
    if command.initial_subscription_name:
        yield _on_topic(Permission.CONSUME, command.topic, command.initial_subscription_name)


ANY_ROLE: Final = CommandRequirements(Permission.ANY_ROLE.value, lambda command: _ANY_ROLE)
_LOOKED_UP: Final = "produce or consume on the topic; any authenticated role for the transaction coordinators"
LOOK_UP: Final = CommandRequirements(_LOOKED_UP, _look_up)
COUNT_PARTITIONS: Final = CommandRequirements(_LOOKED_UP, _count_partitions)
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
ADD_PARTITIONS: Final = CommandRequirements("produce on each of the topics", _add_partitions)
ADD_SUBSCRIPTIONS: Final = CommandRequirements("consume from each of the subscriptions", _add_subscriptions)
