"""A producer that waits for exclusive access, with geoemu's own client, because no released client sends the priority
of PIP-440. It executes other commands while it waits; otherwise it behaves like `pulsar_producer.py`."""

from __future__ import annotations

import asyncio

from emulator.client import AccessMode, Batching, Client, ClientError, Producer, ProducerState
from emulator.scenarios.actors.native_history import ActorHistory, HistoryRecorder, RecordedPublisher
from emulator.scenarios.actors.specs import AccessWord, Counts, ProducerSpec

RETRY_SECONDS = 0.2
POLL_SECONDS = 0.005
"""Interval between checks for outcomes, and for room in the pending window."""
BURST = 64
"""Maximum number of publishes of an unlimited producer without a pause."""
ACCESS_MODES: dict[AccessWord, AccessMode] = {
    "shared": AccessMode.SHARED,
    "exclusive": AccessMode.EXCLUSIVE,
    "wait": AccessMode.WAIT_FOR_EXCLUSIVE,
    "fencing": AccessMode.EXCLUSIVE_WITH_FENCING,
}


class ExclusiveProducer:
    """Publishes at a steady rate and records the outcome of each message."""

    def __init__(self, part: ProducerSpec, client: Client, recorder: HistoryRecorder) -> None:
        self._part = part
        self._client = client
        self._history = ActorHistory(recorder)
        self._publisher: RecordedPublisher | None = None
        self._is_ready = asyncio.Event()
        """Set when the producer is open or in the wait queue."""
        self._is_waiting = False
        self._finishing = False
        self._task = asyncio.create_task(self._serve())

    @property
    def counts(self) -> Counts:
        publisher = self._publisher
        return self._history.counts(
            region=self._part.region,
            connected=publisher is not None and publisher.producer.is_connected,
            publishing=publisher is not None and self._has_more,
            waits=int(self._is_waiting),
        )

    async def begin(self) -> None:
        """Return when the producer is open or in the wait queue."""
        await self._is_ready.wait()

    async def finish(self) -> None:
        """Wait until every publish has an outcome, then leave the wait queue or give up exclusive access."""
        self._finishing = True
        while self.counts.pending:
            await asyncio.sleep(POLL_SECONDS)
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._client.close()

    @property
    def _has_more(self) -> bool:
        enough = self._part.messages is not None and self._history.requested >= self._part.messages
        return not (self._finishing or enough)

    async def _serve(self) -> None:
        """Open a producer and publish with it; open another one after an error."""
        while True:
            try:
                publisher = self._publisher = await self._open()
                self._is_ready.set()
                await self._publish_with(publisher)
                return
            except ClientError:
                self._publisher = None
                await asyncio.sleep(RETRY_SECONDS)

    async def _open(self) -> RecordedPublisher:
        part = self._part
        opening = self._client.producer(
            part.topic,
            name=part.name,
            access_mode=ACCESS_MODES[part.access],
            priority=part.priority,
            batching=Batching(delay_ms_max=max(1.0, part.batching_delay_ms)) if part.batching else None,
            pending_messages_max=part.max_pending + BURST,
            on_state_change=self._state_changed,
        )
        fields = {"region": part.region, "topic": part.topic, "producer": part.name}
        try:
            return await self._history.open_producer(fields, opening)
        finally:
            self._is_waiting = False

    def _state_changed(self, _: Producer, state: ProducerState) -> None:
        self._is_waiting = state is ProducerState.WAITING
        if self._is_waiting:
            self._is_ready.set()

    async def _publish_with(self, publisher: RecordedPublisher) -> None:
        rate = self._part.rate_per_second
        burst, pause_seconds = (BURST, 0.0) if rate is None else (1, 1 / rate)
        while self._has_more:
            for _ in range(burst):
                if self._has_more and self.counts.pending < self._part.max_pending:
                    self._publish_one(publisher)
            has_room = self.counts.pending < self._part.max_pending
            await asyncio.sleep(pause_seconds if has_room else max(pause_seconds, POLL_SECONDS))

    def _publish_one(self, publisher: RecordedPublisher) -> None:
        key = f"{self._part.name}-{publisher.next_number}" if self._part.keyed else None
        payload = publisher.payload(index=self._history.requested).ljust(self._part.message_bytes, b" ")
        publisher.publish_nowait(payload, key)
