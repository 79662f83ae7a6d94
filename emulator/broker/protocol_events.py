"""Counts protocol events of a region since its start, and wakes requests that wait for a count."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from contextlib import suppress
from typing import Final

from emulator.model.protocol_events import PROTOCOL_EVENTS
from emulator.model.values import TopicName

TOPICS_MAX: Final = 10_000
"""Maximum number of separate counts of topics. Beyond it, the count that did not change for the longest time is
forgotten; the topic begins at 0 again."""

Subject = tuple[str, str]
"""Name of an event, and the full name of a topic; empty: all topics."""


class ProtocolEvents:
    """The events of one region. They are counted when their effect is durable or sent, beside the metrics of the same
    components."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()
        self._of_topics: OrderedDict[Subject, int] = OrderedDict()
        self._waiting: dict[Subject, dict[asyncio.Future[None], int]] = {}
        """Waiting requests with the count that each waits for."""

    def note(self, event: str, topic: str = "", times: int = 1) -> None:
        """Count `times` events of a topic, and of the partitioned topic that it is a partition of; empty: of none."""
        assert event in PROTOCOL_EVENTS, event
        if not times:
            return
        self._totals[event] += times
        self._wake((event, ""))
        if topic:
            self._note_of_topic((event, topic), times)
            if (partitioned := TopicName.parse(topic).partitioned) is not None:
                self._note_of_topic((event, str(partitioned)), times)

    def _note_of_topic(self, subject: Subject, times: int) -> None:
        self._of_topics[subject] = self._of_topics.pop(subject, 0) + times
        if len(self._of_topics) > TOPICS_MAX:
            self._of_topics.popitem(last=False)
        self._wake(subject)

    def count(self, event: str, topic: str = "") -> int:
        """Return the number of events since the region's start, of one topic or of all."""
        return self._of_topics.get((event, topic), 0) if topic else self._totals[event]

    async def reached(self, event: str, count: int, topic: str = "", *, seconds: float) -> bool:
        """Wait until `count` events were counted. Return False if they were not within `seconds`."""
        if self.count(event, topic) >= count:
            return True
        waiting = self._waiting.setdefault((event, topic), {})
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting[reached] = count
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await reached
        finally:
            waiting.pop(reached, None)
            if not waiting:
                self._waiting.pop((event, topic), None)
        return self.count(event, topic) >= count

    def _wake(self, subject: Subject) -> None:
        if not self._waiting:
            return
        counted = self.count(*subject)
        for reached, count in self._waiting.get(subject, {}).items():
            if counted >= count and not reached.done():
                reached.set_result(None)
