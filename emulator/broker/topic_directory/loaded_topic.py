"""One name in a region's directory of topics: its state, and the requests that wait for it.

ABSENT ─acquire─▶ OPENING ─▶ SERVING ─idle, failure, unload─▶ LEAVING ─▶ ABSENT
                     └─nothing there, failure─▶ ABSENT           └─delete─▶ DELETING ─▶ ABSENT
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from emulator.errors import GeoemuError, ProtocolError, ServerError
from emulator.model.values import TopicName

if TYPE_CHECKING:
    from emulator.broker.topic.topic import Topic


class OpenMode(Enum):
    """Whether a request creates a missing topic."""

    EXISTING = "a topic that exists"
    CREATE = "a topic, created if need be and allowed"
    REPLICATE = (
        "a topic, created if need be and allowed, but not one that was deleted here: another region sends it"
    )
    CREATE_BY_COMMAND = "a topic, created if needed: an administrator or a partitioned topic requires it"


class LoadState(Enum):
    ABSENT = "not in memory; the store may have it"
    OPENING = "being loaded or created"
    SERVING = "producers and consumers may attach"
    LEAVING = "closed; writes to the store may be pending"
    DELETING = "being removed from the store"


NEXT_STATES = {
    LoadState.ABSENT: {LoadState.OPENING},
    LoadState.OPENING: {LoadState.SERVING, LoadState.ABSENT},
    LoadState.SERVING: {LoadState.LEAVING},
    LoadState.LEAVING: {LoadState.ABSENT, LoadState.DELETING},
    LoadState.DELETING: {LoadState.ABSENT},
}
"""D2: from LEAVING there is no way back to SERVING."""


class LoadStateChange(NamedTuple):
    """A change of a slot's state."""

    name: str
    life: int
    before: LoadState
    after: LoadState
    why: str


@dataclass(slots=True)
class LoadedTopic:
    """One name."""

    name: TopicName
    state: LoadState = LoadState.ABSENT
    life: int = 0
    """Incremented by each opening."""
    topic: Topic | None = None
    """Set while SERVING or LEAVING."""
    asked_at: float = 0.0
    """Loop time of the last `acquire`."""
    waiters: dict[asyncio.Future[Topic], OpenMode] = field(default_factory=dict)

    def become(self, state: LoadState, why: str) -> LoadStateChange:
        """Change the state; the transition must be in NEXT_STATES."""
        before = self.state
        assert state in NEXT_STATES[before], f"{self.name}: {before.name} -> {state.name}"
        self.state = state
        return LoadStateChange(str(self.name), self.life, before, state, why)

    def serve(self, topic: Topic) -> None:
        """Answer the requests that wait."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(topic)
        self.waiters.clear()

    def fail(self, failure: BaseException, waiters: list[asyncio.Future[Topic]]) -> None:
        """Fail these requests, which wait now, and no others."""
        told = failure if isinstance(failure, GeoemuError) else None
        for waiter in waiters:
            self.waiters.pop(waiter, None)
            if waiter.done():
                continue
            waiter.set_exception(
                told or ProtocolError(ServerError.ServiceNotReady, f"{self.name} cannot be opened")
            )
