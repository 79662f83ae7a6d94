"""Who watches which topics come and go, and what its client was told of them (docs/rooms/topic-directory.md)."""

from __future__ import annotations

from typing import Protocol

from emulator.broker.topic_lists import Listing, TopicLists
from emulator.errors import ProtocolError, ServerError
from emulator.wire import topic_lists
from emulator.wire.topic_lists import WatchTopics


class WatchedRegion(Protocol):
    @property
    def topic_lists(self) -> TopicLists: ...


class WatchingConnection(Protocol):
    """A client's connection, as its watchers see it."""

    @property
    def region(self) -> WatchedRegion: ...
    @property
    def is_writing_paused(self) -> bool:
        """Its client does not read what is written."""
        ...

    def answer(self, data: bytes) -> None: ...


class TopicWatcher:
    """One watcher of one connection. What its client has not read yet is not added to: it is told of all changes at
    once when it reads again."""

    def __init__(self, connection: WatchingConnection, watcher_id: int) -> None:
        self._connection = connection
        self._id = watcher_id
        self.listing: Listing | None = None
        self._told: frozenset[str] = frozenset()
        self._went: frozenset[str] = frozenset()
        """Of what was told: gone since then. It may be there again."""

    def begin(self, request: WatchTopics) -> None:
        """ProtocolError for a pattern that is none, or not offered."""
        try:
            self.listing = self._connection.region.topic_lists.watch(request.namespace, request.pattern, self)
        except ValueError as problem:
            raise ProtocolError(ServerError.NotAllowedError, str(problem)) from None
        self._told = names = self.listing.names
        hash_ = topic_lists.topics_hash(names)
        known = () if request.hash == hash_ else sorted(names)
        self._connection.answer(topic_lists.watching(request.request_id, self._id, known, hash_))

    def changed(self, listing: Listing) -> None:
        self._went |= self._told - listing.names
        if self._connection.is_writing_paused:
            return
        went, self._went = self._went, frozenset()
        self._tell(self._told - went)
        self._tell(listing.names)

    def _tell(self, names: frozenset[str]) -> None:
        told, self._told = self._told, names
        if names == told:
            return
        self._connection.answer(
            topic_lists.watched(
                self._id, sorted(names - told), sorted(told - names), topic_lists.topics_hash(names)
            )
        )

    def catch_up(self) -> None:
        """Its client reads again."""
        if self.listing is not None:
            self.changed(self.listing)

    def end(self) -> None:
        if self.listing is not None:
            self._connection.region.topic_lists.leave(self.listing, self)
