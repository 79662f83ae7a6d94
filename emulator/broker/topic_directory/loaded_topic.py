"""The slot of one topic name in a region's topic directory: its load state and waiting requests. Also the list of
damaged topics.

ABSENT ─acquire─▶ OPENING ─▶ SERVING ─idle, failure, unload─▶ LEAVING ─▶ ABSENT
                     └─no such topic, failure─▶ ABSENT           └─delete─▶ DELETING ─▶ ABSENT
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from emulator.errors import GeoemuError, ProtocolError, ServerError, StorageDamaged
from emulator.model.values import TopicName

if TYPE_CHECKING:
    from emulator.broker.topic.topic import Topic


logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
RETRY_SECONDS_MAX = 2.0
"""First and maximum delay before a topic whose store failed is loaded again."""
DAMAGED_SECONDS = 30.0
"""Seconds for which requests for a damaged topic fail without reading the store: clients and regions retry often."""


def retry_delays() -> Iterator[float]:
    """Yield the delays between attempts to load a topic whose store fails, in seconds, without end."""
    delay_seconds = RETRY_SECONDS
    while True:
        yield delay_seconds
        delay_seconds = min(delay_seconds * 2, RETRY_SECONDS_MAX)


class OpenMode(Enum):
    """The condition under which a request creates a missing topic."""

    EXISTING = "a topic that exists"
    CREATE = "a topic, created if need be and allowed"
    REPLICATE = (
        "a topic, created if need be and allowed, but not one that was deleted here: another region sends it"
    )
    CREATE_BY_COMMAND = "a topic, created if needed: an administrator or a partitioned topic requires it"

    __hash__ = object.__hash__  # that of Enum is written in Python, and each opening needs it a dozen times


class LoadState(Enum):
    ABSENT = "not in memory; the store may have it"
    OPENING = "being loaded or created"
    SERVING = "producers and consumers may attach"
    LEAVING = "closed; writes to the store may be pending"
    DELETING = "being removed from the store"

    __hash__ = object.__hash__


NEXT_STATES = {
    LoadState.ABSENT: {LoadState.OPENING},
    LoadState.OPENING: {LoadState.SERVING, LoadState.ABSENT},
    LoadState.SERVING: {LoadState.LEAVING},
    LoadState.LEAVING: {LoadState.ABSENT, LoadState.DELETING},
    LoadState.DELETING: {LoadState.ABSENT},
}
"""The allowed transitions of the load state. A LEAVING topic cannot become SERVING again (D2)."""


class LoadStateChange(NamedTuple):
    """A transition of one topic's load state."""

    name: str
    incarnation: int
    """The `LoadedTopic.incarnation` of the slot."""
    before: LoadState
    after: LoadState
    why: str


@dataclass(slots=True)
class LoadedTopic:
    """The slot of one topic name."""

    name: TopicName
    state: LoadState = LoadState.ABSENT
    incarnation: int = 0
    """Number of the latest opening, unique among all openings of the directory; 0: none yet."""
    topic: Topic | None = None
    """The topic in memory; set from SERVING until ABSENT."""
    requested_at: float = 0.0
    """Loop time in seconds of the last `acquire`."""
    waiters: dict[asyncio.Future[Topic], OpenMode] = field(default_factory=dict)
    delay_seconds: float = 0.0
    """Time for which the topic stays unloaded after its store failed."""

    async def wait_for_store(self) -> None:
        """Wait until a topic whose store failed may be loaded again."""
        delay_seconds, self.delay_seconds = self.delay_seconds, 0.0
        if delay_seconds:
            await asyncio.sleep(delay_seconds)

    def change_state(self, state: LoadState, why: str) -> LoadStateChange:
        """Change the state; the transition must be in NEXT_STATES."""
        before = self.state
        assert state in NEXT_STATES[before], f"{self.name}: {before.name} -> {state.name}"
        self.state = state
        return LoadStateChange(self.name.text, self.incarnation, before, state, why)

    def serve(self, topic: Topic) -> None:
        """Return the topic to all waiting requests."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(topic)
        self.waiters.clear()

    def fail(self, failure: BaseException, waiters: list[asyncio.Future[Topic]]) -> None:
        """Fail only these of the waiting requests; failures other than GeoemuError become ServiceNotReady."""
        sent = failure if isinstance(failure, GeoemuError) else None
        for waiter in waiters:
            self.waiters.pop(waiter, None)
            if waiter.done():
                continue
            waiter.set_exception(
                sent or ProtocolError(ServerError.ServiceNotReady, f"{self.name} cannot be opened")
            )


class FailedStores:
    """Delays the loading of topics whose store fails again and again, such as on a full disk: clients connect again at
    once, and each of their writes would unload the topic."""

    def __init__(self) -> None:
        self._delays: dict[str, tuple[float, float]] = {}
        """Full name -> delay after the latest failure, and the loop time after which the failure is forgotten."""

    def next_delay(self, name: str) -> float:
        """Return the seconds for which a topic that failed now stays unloaded: 0 after a single failure."""
        now = asyncio.get_running_loop().time()
        self._delays = {one: found for one, found in self._delays.items() if found[1] > now}
        before, _ = self._delays.get(name, (None, 0.0))
        delay = 0.0 if before is None else min(max(before * 2, RETRY_SECONDS), RETRY_SECONDS_MAX)
        self._delays[name] = delay, now + delay + RETRY_SECONDS_MAX
        return delay

    def producer_delay(self, name: str) -> float:
        """Return the seconds that a producer has to wait before it uses a topic: not 0 if its store failed repeatedly,
        so that consumers can read in the meantime."""
        return RETRY_SECONDS_MAX / 2 if self._delays.get(name, (0.0, 0.0))[0] else 0.0


class DamagedTopics:
    """Topics with damaged stored state: requests for them fail for DAMAGED_SECONDS without reading the store again."""

    def __init__(self) -> None:
        self._damaged: dict[str, tuple[StorageDamaged, float]] = {}
        """Full name -> why the topic could not be loaded, and the loop time after which the store is read again."""

    def check(self, name: str) -> None:
        """Raise StorageDamaged for a damaged topic until the store may be read again, then forget the damage."""
        if not self._damaged or name not in self._damaged:
            return
        damage, until = self._damaged[name]
        if asyncio.get_running_loop().time() < until:
            raise StorageDamaged(str(damage))
        del self._damaged[name]

    def add(self, name: str, damage: StorageDamaged) -> None:
        logger.error("topic %s cannot be loaded: %s", name, damage)
        self._damaged[name] = damage, asyncio.get_running_loop().time() + DAMAGED_SECONDS
