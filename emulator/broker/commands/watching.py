"""WATCH_TOPIC_LIST and WATCH_TOPIC_LIST_CLOSE: who wants to know which topics come and go."""

from __future__ import annotations

from typing import Final, Protocol

from emulator.broker.environment import Environment
from emulator.broker.topic_watcher import TopicWatcher, WatchedRegion
from emulator.errors import ProtocolError, ServerError
from emulator.wire import answers
from emulator.wire.topic_lists import EndWatch, WatchTopics

WATCHERS_MAX: Final = 100
"""Of one connection: each may have a list of its own."""


class AssembledRegion(WatchedRegion, Protocol):
    environment: Environment


class WatchingConnection(Protocol):
    """A client's connection."""

    watchers: dict[int, TopicWatcher]

    @property
    def region(self) -> AssembledRegion: ...
    @property
    def is_writing_paused(self) -> bool: ...

    def answer(self, data: bytes) -> None: ...


def watch(connection: WatchingConnection, command: WatchTopics) -> None:
    """One that has its id ends: the client knows of one only."""
    former = connection.watchers.pop(command.watcher_id, None)
    if former is not None:
        former.end()
    if len(connection.watchers) >= WATCHERS_MAX:
        raise ProtocolError(ServerError.NotAllowedError, "this connection has too many watchers")
    watcher = connection.region.environment.parts.topic_watcher(connection, command.watcher_id)
    watcher.begin(command)
    connection.watchers[command.watcher_id] = watcher


def close(connection: WatchingConnection, command: EndWatch) -> None:
    watcher = connection.watchers.pop(command.watcher_id, None)
    if watcher is not None:
        watcher.end()
    connection.answer(answers.success(command.request_id))
