"""Which topics a namespace has: how clients ask, and watch; and the hash by which they know that nothing changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from crc32c import crc32c

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import decode_command
from emulator.wire.frames import simple_frame


def topics_hash(names: Iterable[str]) -> str:
    """As clients work it out of the names that they have."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()


@dataclass(frozen=True, slots=True)
class GetTopics:
    """GET_TOPICS_OF_NAMESPACE."""

    request_id: int
    namespace: str
    wants_persistent: bool
    """Topics that keep their messages."""
    wants_non_persistent: bool
    pattern: str
    """Empty: all of them. Who asks with one looks through the answer all the same if it is told to."""
    hash: str
    """Of what the client knows already; empty: nothing."""

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).getTopicsOfNamespace
        return cls(
            body.request_id,
            body.namespace,
            wants_persistent=body.mode != pb.CommandGetTopicsOfNamespace.NON_PERSISTENT,
            wants_non_persistent=body.mode != pb.CommandGetTopicsOfNamespace.PERSISTENT,
            pattern=body.topics_pattern,
            hash=body.topics_hash,
        )


@dataclass(frozen=True, slots=True)
class WatchTopics:
    """WATCH_TOPIC_LIST."""

    request_id: int
    watcher_id: int
    namespace: str
    pattern: str
    hash: str

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).watchTopicList
        return cls(body.request_id, body.watcher_id, body.namespace, body.topics_pattern, body.topics_hash)


@dataclass(frozen=True, slots=True)
class EndWatch:
    """WATCH_TOPIC_LIST_CLOSE."""

    request_id: int
    watcher_id: int

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).watchTopicListClose
        return cls(body.request_id, body.watcher_id)


def topics(request_id: int, names: Iterable[str], hash_: str, *, filtered: bool, changed: bool) -> bytes:
    """GET_TOPICS_OF_NAMESPACE_RESPONSE. `filtered`: the pattern was applied. Not `changed`: no names."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            getTopicsOfNamespaceResponse=pb.CommandGetTopicsOfNamespaceResponse(
                request_id=request_id, topics=names, topics_hash=hash_, filtered=filtered, changed=changed
            ),
        )
    )


def watching(request_id: int, watcher_id: int, names: Iterable[str], hash_: str) -> bytes:
    """WATCH_TOPIC_LIST_SUCCESS."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
            watchTopicListSuccess=pb.CommandWatchTopicListSuccess(
                request_id=request_id, watcher_id=watcher_id, topic=names, topics_hash=hash_
            ),
        )
    )


def watched(watcher_id: int, new: Iterable[str], deleted: Iterable[str], hash_: str) -> bytes:
    """WATCH_TOPIC_UPDATE. `hash_`: of all that there are now."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.WATCH_TOPIC_UPDATE,
            watchTopicUpdate=pb.CommandWatchTopicUpdate(
                watcher_id=watcher_id, new_topics=new, deleted_topics=deleted, topics_hash=hash_
            ),
        )
    )
