"""State of a replicator besides its stream: the stored progress, the rate limit and the retry timer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from emulator.broker.debounced_writer import one_key
from emulator.core.flow.rate_limit import RateLimit, Throttle, throttle_of
from emulator.core.policies.limits import REPLICATOR_DISPATCH_RATE
from emulator.core.replication.progress import ReplicationProgress
from emulator.model.stored_keys import ProgressKey
from emulator.model.values import Position

if TYPE_CHECKING:
    from emulator.broker.topic.view import TopicView

logger = logging.getLogger(__name__)

PROGRESS_WRITE_DELAY_SECONDS = 0.2
"""Delay before progress is written. Outdated progress only causes entries to be sent again, and the remote region drops
duplicates."""
RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 5.0
"""First and longest delay before a request to the remote region is repeated."""
ROUNDING_SECONDS = 0.001


class StoredProgress:
    """The position up to which one remote region has confirmed a topic's log; kept in the store of this region."""

    def __init__(self, topic: TopicView, remote: str) -> None:
        settings, components = topic.region.config.settings, topic.region.environment.components
        self._topic = topic
        self._remote = remote
        key = ProgressKey(topic.full_name, remote).text
        self.is_known_there = topic.region.store.get(key) is not None
        """Whether the remote region has opened the topic for this region once, so that it knows it."""
        self.progress: ReplicationProgress = components.replication.replication_progress(
            self._read_confirmed(key),
            entries_max=settings.replication_window_entries,
            bytes_max=settings.replication_window_bytes,
        )
        self.writer = components.storage.debounced_writer(
            topic.region.store, key, one_key(key, self._encode), topic.failed
        )

    def _read_confirmed(self, key: str) -> int:
        # A new replicator begins with the log's first entry: a region added later receives the history too.
        beginning = self._topic.reading.first_entry_id - 1
        stored = self._topic.region.store.get(key)
        if stored is None:
            return beginning
        try:
            position = Position.parse(stored.value.decode())
        except ValueError as problem:
            logger.warning(
                "%s is damaged (%s): all entries are sent again; region %s drops duplicates",
                key,
                problem,
                self._remote,
            )
            return beginning
        return position.entry if position.ledger == self._topic.ledger_id else -1

    def _encode(self) -> bytes:
        return str(Position(self._topic.ledger_id, self.progress.confirmed)).encode()

    def opened(self) -> None:
        """Note that the remote region opened the topic. Of a partition this is stored: until then it must be loaded,
        because the remote region learns from it that the topic has grown, even if no message is published to it."""
        if not self.is_known_there:
            self.is_known_there = True
            if self._topic.name.partitioned is not None:
                self.changed()

    def changed(self) -> None:
        """Store the progress soon."""
        self.writer.soon(PROGRESS_WRITE_DELAY_SECONDS)


class ReplicationRate:
    """Limits the replicator's send rate. Calls `resume` when a wait is over or the rate changed."""

    def __init__(self, topic: TopicView, resume: Callable[[], None]) -> None:
        self._topic = topic
        self._resume = resume
        self.throttle: Throttle | None = throttle_of(
            topic.policies[REPLICATOR_DISPATCH_RATE], _now_ms(), topic.metrics.publish_rate
        )
        """Rate limit of the replicator; None: no limit."""
        self._timer: asyncio.TimerHandle | None = None

    def set(self, rate: RateLimit) -> None:
        """Set the rate limit, end a wait for the former one, and call `resume`."""
        self.throttle = throttle_of(rate, _now_ms(), self._topic.metrics.publish_rate)
        self._end_wait()

    @property
    def wait_ms(self) -> float:
        return 0.0 if self.throttle is None else self.throttle.wait_ms(_now_ms())

    def wait_if_limited(self) -> bool:
        """Return whether nothing may be sent now; if so, `resume` is called when the wait is over."""
        wait_ms = self.wait_ms
        if wait_ms <= 0:
            return False
        if self._timer is None:
            # A remainder left by rounding is too short for the clock to advance.
            self._timer = asyncio.get_running_loop().call_later(
                max(wait_ms / 1000, ROUNDING_SECONDS), self._end_wait
            )
        return True

    def count(self, messages: int, size_bytes: int) -> None:
        """Count sent messages and bytes against the rate limit."""
        if self.throttle is not None:
            self.throttle.take(messages, size_bytes, _now_ms())

    def _end_wait(self) -> None:
        self.close()
        self._resume()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class RetryTimer:
    """Calls `due` once after a delay; `start` replaces a pending call."""

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._timer: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._fire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._due()


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
