"""WATCH_TOPIC_LIST and WATCH_TOPIC_LIST_CLOSE: notify clients of created and deleted topics."""

from __future__ import annotations

from typing import Final, Protocol

from emulator.broker.connection.dispatch import CommandingConnection
from emulator.broker.topic_directory.directory import TopicDirectory
from emulator.broker.topic_directory.listing import Listing
from emulator.errors import ProtocolError, ServerError
from emulator.wire.commands import (
    EndWatch,
    Success,
    TopicsUpdate,
    WatchTopics,
    WatchTopicsSuccess,
    topics_hash,
)

WATCHERS_MAX: Final = 100
"""Maximum number of watchers of a connection, because each may have its own topic list."""


class WatchedRegion(Protocol):
    @property
    def directory(self) -> TopicDirectory: ...


class WatchingConnection(CommandingConnection, Protocol):
    """A client's connection, as its watchers see it."""

    watchers: dict[int, TopicWatcher]

    @property
    def region(self) -> WatchedRegion: ...


class TopicWatcher:
    """One watcher of one connection. Changes are collected while the client does not read, and sent together when it
    reads again."""

    def __init__(self, connection: WatchingConnection, watcher_id: int) -> None:
        self._connection = connection
        self._id = watcher_id
        self.listing: Listing | None = None
        self._sent: frozenset[str] = frozenset()
        self._deleted: frozenset[str] = frozenset()
        """Topics of the client's list that were deleted since the last update. They may exist again."""

    def begin(self, request: WatchTopics) -> None:
        """Watch the topic list and send it, without names if the client's hash shows that it has them. ProtocolError
        for a pattern that is invalid or not supported."""
        try:
            self.listing = self._connection.region.directory.lists.watch(
                request.namespace, request.pattern, self
            )
        except ValueError as problem:
            raise ProtocolError(ServerError.NotAllowedError, str(problem)) from None
        self._sent = names = self.listing.names
        hash_ = topics_hash(names)
        to_send = () if request.hash == hash_ else sorted(names)
        self._connection.answer(
            WatchTopicsSuccess(request.request_id, self._id, tuple(to_send), hash_).encode()
        )

    def changed(self, listing: Listing) -> None:
        self._deleted |= self._sent - listing.names
        if self._connection.flow_control.is_writing_paused:
            return
        deleted, self._deleted = self._deleted, frozenset()
        self._send(self._sent - deleted)
        self._send(listing.names)

    def _send(self, names: frozenset[str]) -> None:
        """Send the difference between `names` and the client's list."""
        former, self._sent = self._sent, names
        if names == former:
            return
        self._connection.answer(
            TopicsUpdate(
                self._id, tuple(sorted(names - former)), tuple(sorted(former - names)), topics_hash(names)
            ).encode()
        )

    def catch_up(self) -> None:
        """Send the collected changes to a client that reads again."""
        if self.listing is not None:
            self.changed(self.listing)

    def end(self) -> None:
        if self.listing is not None:
            self._connection.region.directory.lists.leave(self.listing, self)


def watch(connection: WatchingConnection, command: WatchTopics) -> None:
    """Start a watcher, which replaces an earlier one with the same id."""
    former = connection.watchers.pop(command.watcher_id, None)
    if former is not None:
        former.end()
    if len(connection.watchers) >= WATCHERS_MAX:
        raise ProtocolError(ServerError.NotAllowedError, "this connection has too many watchers")
    watcher = TopicWatcher(connection, command.watcher_id)
    watcher.begin(command)
    connection.watchers[command.watcher_id] = watcher


def close(connection: WatchingConnection, command: EndWatch) -> None:
    watcher = connection.watchers.pop(command.watcher_id, None)
    if watcher is not None:
        watcher.end()
    connection.answer(Success(command.request_id).encode())
