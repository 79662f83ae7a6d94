"""The set of topics that a multi-topic consumer reads, and the detection of its changes."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from emulator.client.config import PARTITION_SUFFIX
from emulator.client.connection import BrokerConnection
from emulator.client.connection_pool import ConnectionPool
from emulator.client.messages import partition_index
from emulator.client.types import ClientError
from emulator.errors import ServerError
from emulator.wire.commands.connections import (
    EndWatch,
    GetTopics,
    GetTopicsResponse,
    TopicsUpdate,
    WatchTopics,
    WatchTopicsSuccess,
    topics_hash,
)

TOPICS_MAX: Final = 100_000
"""Maximum number of topics of a pattern, which bounds the memory that a region's response can use in a client."""


class TopicSource(Protocol):
    """The set of topics of a multi-topic consumer."""

    @property
    def is_pattern(self) -> bool:
        """Whether the set consists of the existing topics that match a pattern: subscribing creates none."""
        ...

    async def names(self) -> frozenset[str]:
        """Return the existing topics that match a pattern, or the listed topics with their current partitions. Raises
        ClientError when the request fails."""
        ...

    async def wait_for_change(self) -> None:
        """Wait until the set may have changed, or until the client's interval has passed."""
        ...

    def recheck(self) -> None:
        """End `wait_for_change`: a topic's consumer has ended, so the topic may be deleted or created again."""
        ...

    def stop_watching(self) -> None:
        """Stop watching, because the consumer is closed."""
        ...


class FixedTopics:
    """A list of topics with their partitions. A lower number of partitions is ignored: partitions are never removed."""

    is_pattern = False

    def __init__(self, client: ConnectionPool, topics: Sequence[str], *, may_create: bool = True) -> None:
        self._client = client
        self._may_create = may_create
        self._counts: dict[str, int] = dict.fromkeys(topics, 0)
        self._is_known = False

    async def names(self) -> frozenset[str]:
        for topic, count in self._counts.items():
            if self._may_have_partitions(topic, count):
                reported = await self._client.partitions_of(
                    topic, may_create=self._may_create and not self._is_known
                )
                self._counts[topic] = max(count, reported)
        self._is_known = True
        return frozenset(name for topic, count in self._counts.items() for name in partitions(topic, count))

    def _may_have_partitions(self, topic: str, count: int) -> bool:
        """Whether to request the number of partitions. A topic without partitions never gets any; a partition has none
        (N1, N3)."""
        if not self._client.settings.asks_for_partitions or partition_index(topic) >= 0:
            return False
        return not self._is_known or count > 0

    async def wait_for_change(self) -> None:
        await asyncio.sleep(self._client.settings.partitions_interval_seconds)

    def recheck(self) -> None:
        """Do nothing: the list is fixed, and partitions are never removed."""

    def stop_watching(self) -> None:
        pass


def partitions(topic: str, count: int) -> list[str]:
    """Return the names of the partitions of a topic; without partitions, its own name."""
    return [f"{topic}-partition-{index}" for index in range(count)] if count else [topic]


class PatternTopics:
    """Topics of one namespace whose whole names match a pattern; partitions match if their topic does. The region
    sends changes (WATCH_TOPIC_LIST), and the client also requests the list periodically. The client filters the names
    again, because the region's patterns have another syntax."""

    is_pattern = True

    def __init__(self, client: ConnectionPool, pattern: str) -> None:
        """`pattern`: `[persistent://]tenant/namespace/<regular expression>`. ValueError."""
        self._client = client
        self._pattern = pattern
        self._namespace, self._regex = _parse_pattern(pattern)
        self._names: frozenset[str] = frozenset()
        """Topic names that the region reported last."""
        self._hash = ""
        """Hash of `_names`; empty before the first response, or if the region's hash did not match them."""
        self._id = client.new_id()
        self._connection: BrokerConnection | None = None
        self._may_watch = True
        self._changed = asyncio.Event()

    async def names(self) -> frozenset[str]:
        self._changed.clear()
        connection = await self._client.service_connection()
        if self._connection is not connection and self._may_watch:
            await self._watch(connection)
        else:
            await self._request_list(connection)
        return frozenset(filter(self._matches, self._names))

    def _matches(self, name: str) -> bool:
        base = PARTITION_SUFFIX.sub("", name).partition("://")[2]
        return self._regex.fullmatch(base) is not None

    async def wait_for_change(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._client.settings.topics_interval_seconds):
                await self._changed.wait()

    # Requests.

    async def _watch(self, connection: BrokerConnection) -> None:
        request_id = self._client.new_id()
        connection.watchers[self._id] = self
        try:
            command = WatchTopics(request_id, self._id, self._namespace, self._pattern, self._hash)
            self._apply_response(await connection.request(command))
        except BaseException as reason:
            connection.watchers.pop(self._id, None)
            if isinstance(reason, asyncio.CancelledError):  # The region may have opened the watch.
                connection.write(EndWatch(self._client.new_id(), self._id).encode())
            if not isinstance(reason, ClientError) or reason.code is not ServerError.NotAllowedError:
                raise
            self._may_watch = False
            await self._request_list(connection)
        else:
            self._connection = connection

    async def _request_list(self, connection: BrokerConnection) -> None:
        command = GetTopics(self._client.new_id(), self._namespace, self._pattern, self._hash)
        self._apply_response(await connection.request(command))

    def _apply_response(self, response: object) -> None:
        if not isinstance(response, GetTopicsResponse | WatchTopicsSuccess):
            raise ClientError(
                f"unexpected response to a request for topics: {type(response).__name__}", definite=True
            )
        if not (self._hash and response.hash == self._hash):
            self._set_names(response.names, response.hash)

    def _set_names(self, names: Iterable[str], hash_: str) -> None:
        known = frozenset(names)
        if len(known) > TOPICS_MAX:
            sentence = f"{self._pattern} matches {len(known)} topics; the maximum is {TOPICS_MAX}"
            raise ClientError(sentence, definite=True, code=ServerError.NotAllowedError)
        self._names = known
        self._hash = hash_ if topics_hash(known) == hash_ else ""

    # Notifications (connection.WatchHandler).

    def topics_changed(self, change: TopicsUpdate) -> None:
        """Apply a change. When the resulting hash differs from the broker's, `names` requests the whole list."""
        with contextlib.suppress(ClientError):
            self._set_names(self._names.union(change.new).difference(change.deleted), change.hash)
        self._changed.set()

    def connection_lost(self) -> None:
        self._connection = None
        self._changed.set()

    def closed_by_broker(self) -> None:
        """Never called: only the client that opened a watch closes it."""

    def recheck(self) -> None:
        self._changed.set()

    def stop_watching(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.watchers.pop(self._id, None)
            connection.write(EndWatch(self._client.new_id(), self._id).encode())


def _parse_pattern(pattern: str) -> tuple[str, re.Pattern[str]]:
    """Return the namespace (tenant/namespace) and the pattern of whole names. ValueError."""
    domain, separator, rest = pattern.rpartition("://")
    parts = rest.split("/", 2)
    if (separator and domain != "persistent") or len(parts) != 3 or not all(parts):
        raise ValueError(f"pattern {pattern!r}: must be [persistent://]tenant/namespace/<regular expression>")
    try:
        return "/".join(parts[:2]), re.compile(rest)
    except re.error as problem:
        raise ValueError(f"pattern {pattern!r}: {problem}") from None
