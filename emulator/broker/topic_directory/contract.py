"""What the topic directory requires of the module that loads topics, and of the rules for missing ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from emulator.model.values import TopicName
from emulator.storage.contract import Log

if TYPE_CHECKING:
    from emulator.broker.topic.topic import Topic


class TopicOpener(Protocol):
    """Loads, closes and deletes topics for the directory."""

    async def open(self, name: TopicName, *, create: bool) -> Topic | None:
        """Load a topic, or create it if it is missing and `create` is set. Return None if it is missing otherwise.
        StorageError or ProtocolError if it cannot be loaded."""
        ...

    def begin_creating(self, name: TopicName) -> asyncio.Future[Log] | None:
        """Begin to create the log of a missing topic; `created` needs it. None, and no effect, if `open` has to be
        called instead: the topic exists, or its creation takes more than a log."""
        ...

    def created(self, name: TopicName, log: Log) -> Topic | None:
        """Return the topic whose log was created. None: `open` has to be called, because policies have changed."""
        ...

    def serve(self, topic: Topic) -> None:
        """Start the replicators and other background work of a topic that serves from now on."""
        ...

    def send_away(self, topic: Topic) -> None:
        """Disconnect all clients of a topic, so that they connect again, and stop applying policies to it."""
        ...

    def owes(self, topic: Topic) -> bool:
        """Whether a topic has pending work even without clients (D3)."""
        ...

    async def write_pending(self, topic: Topic) -> None:
        """Make pending changes of a topic durable now. StorageError when that fails."""
        ...

    async def forget_owing(self, topic: Topic) -> bool:
        """Record that a topic need not be loaded at the next start; call it after `Topic.settled`. Return False,
        without a record, if the topic has pending work. StorageError when the record fails."""
        ...

    async def erase(self, name: str, *, for_good: bool) -> None:
        """Remove all stored data of a topic. `for_good`: replication must not create it again. StorageError: retry."""
        ...


class CreationRules(Protocol):
    """The rules for requests that may create a missing topic."""

    def may_create(self, topic: TopicName) -> bool:
        """Whether a request may create the topic."""
        ...

    def check_room(self, topic: TopicName) -> None:
        """Raise ProtocolError for a missing topic when its namespace or tenant has too many topics."""
        ...

    def was_deleted(self, topic: TopicName) -> bool:
        """Whether a user deleted the topic and no client used it here since: replication does not create it."""
        ...
