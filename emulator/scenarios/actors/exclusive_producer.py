"""A producer that waits for its topic, with geoemu's own client: no released client sends the priority of PIP-440, and
this one accepts other commands while it waits. Otherwise it behaves like `producer_actor.py`."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

from emulator.client import AccessMode, Batching, Client, ClientError, MessageId, Producer, ProducerState
from emulator.run.history_events import Outcome, attributes_digest, payload_digest
from emulator.scenarios.actor_models.specs import AccessWord, Counts, ProducerSpec
from emulator.scenarios.actors.writer import HistoryRecorder

RETRY_SECONDS = 0.2
POLL_SECONDS = 0.005
"""How often it is looked for room and outcomes."""
BURST = 64
"""Most publishes of an unlimited producer without a pause."""
ACCESS_MODES: dict[AccessWord, AccessMode] = {
    "shared": AccessMode.SHARED,
    "exclusive": AccessMode.EXCLUSIVE,
    "wait": AccessMode.WAIT_FOR_EXCLUSIVE,
    "fencing": AccessMode.EXCLUSIVE_WITH_FENCING,
}


class OwnProducer:
    """Publishes at a steady rate and writes down what becomes of each message."""

    def __init__(self, part: ProducerSpec, client: Client, notes: HistoryRecorder) -> None:
        self._part = part
        self._client = client
        self._notes = notes
        self._outcomes: dict[Outcome, int] = {"ok": 0, "failed": 0, "unknown": 0}
        self._asked = 0
        self._producer: Producer | None = None
        self._session = ""
        self._settled = asyncio.Event()
        """It is open, or has its place in line."""
        self._in_line = False
        self._finishing = False
        self._task = asyncio.create_task(self._serve())

    @property
    def counts(self) -> Counts:
        return Counts(
            region=self._part.region,
            connected=self._producer is not None and self._producer.is_connected,
            asked=self._asked,
            ok=self._outcomes["ok"],
            failed=self._outcomes["failed"],
            unknown=self._outcomes["unknown"],
            publishing=self._producer is not None and self._has_more,
            waits=int(self._in_line),
        )

    async def begin(self) -> None:
        """Ends when the producer is open, or has its place in line."""
        await self._settled.wait()

    async def finish(self) -> None:
        """Out of the line, or out of office once every publish has its outcome: the topic is another's then."""
        self._finishing = True
        while self.counts.pending:
            await asyncio.sleep(POLL_SECONDS)
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._client.close()

    @property
    def _has_more(self) -> bool:
        enough = self._part.messages is not None and self._asked >= self._part.messages
        return not (self._finishing or enough)

    @property
    def _place(self) -> dict[str, str]:
        return {"region": self._part.region, "topic": self._part.topic, "producer": self._part.name}

    async def _serve(self) -> None:
        """A producer that can send no more is followed by another one."""
        while True:
            try:
                producer = self._producer = await self._open()
                self._settled.set()
                await self._publish_with(producer)
                return
            except ClientError:
                self._producer = None
                await asyncio.sleep(RETRY_SECONDS)

    async def _open(self) -> Producer:
        part = self._part
        self._notes.write("connect", "asked", **self._place)
        try:
            producer = await self._client.producer(
                part.topic,
                name=part.name,
                access_mode=ACCESS_MODES[part.access],
                priority=part.priority,
                batching=Batching(delay_ms_max=max(1.0, part.batching_delay_ms)) if part.batching else None,
                pending_messages_max=part.max_pending + BURST,
                on_state_change=self._state_changed,
            )
        except ClientError as refusal:
            self._notes.write("connect", "unknown", error=str(refusal), **self._place)
            raise
        finally:
            self._in_line = False
        self._session = self._notes.new_session()
        told = {
            "session": self._session,
            "last_sequence_id": producer.last_sequence_id,
            "topic_epoch": producer.topic_epoch,
        }
        self._notes.write("connect", "ok", **told, **self._place)
        return producer

    def _state_changed(self, _: Producer, state: ProducerState) -> None:
        self._in_line = state is ProducerState.WAITING
        if self._in_line:
            self._settled.set()

    async def _publish_with(self, producer: Producer) -> None:
        rate = self._part.rate_per_second
        at_once, pause_seconds = (BURST, 0.0) if rate is None else (1, 1 / rate)
        while self._has_more:
            for _ in range(at_once):
                if self._has_more and self.counts.pending < self._part.max_pending:
                    self._publish_one(producer)
            has_room = self.counts.pending < self._part.max_pending
            await asyncio.sleep(pause_seconds if has_room else max(pause_seconds, POLL_SECONDS))

    def _publish_one(self, producer: Producer) -> None:
        number = producer.last_sequence_id + 1
        payload = self._payload(number)
        text = payload.rstrip(b" ").decode()
        identity = {**self._place, "session": self._session, "sequence_id": number, "detail": text}
        key = f"{self._part.name}-{number}" if self._part.keyed else None
        digests = {"payload_digest": payload_digest(payload), "attributes_digest": attributes_digest(key)}
        self._notes.write("publish", "asked", **digests, key=key, **identity)
        self._asked += 1
        try:
            sent = producer.send_nowait(payload, sequence_id=number, key=key)
        except ClientError as refusal:
            self._told(identity, "failed", error=str(refusal))
            raise
        sent.add_done_callback(partial(self._answered, identity))

    def _payload(self, number: int) -> bytes:
        identity = {"origin_region": self._part.region, "producer": self._part.name, "sequence_id": number}
        text = json.dumps({**identity, "index": self._asked}, separators=(",", ":"))
        return text.encode().ljust(self._part.message_bytes, b" ")

    def _answered(self, identity: dict[str, Any], done: asyncio.Future[MessageId]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None and not done.cancelled():
            place = done.result()
            self._told(identity, "ok", message_id=f"{place.ledger}:{place.entry}:{place.batch_index}")
        else:
            certain = isinstance(error, ClientError) and error.definite
            self._told(identity, "failed" if certain else "unknown", error=str(error))

    def _told(self, identity: dict[str, Any], outcome: Outcome, **fields: str) -> None:
        self._notes.write("publish", outcome, **fields, **identity)
        self._outcomes[outcome] += 1
