"""One host and one topic: wait for it, own it, say so, write to it; and from the start when it was lost.

asking ──▶ in line ──▶ granted ──▶ (reads the topic) ──▶ introduced: it holds it ──▶ heartbeats
   ▲                                                                                    │
   └──────────────── fenced off, refused, a write without outcome ◀─────────────────────┘
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from emulator.client import EARLIEST, AccessMode, Client, ClientError, Message, Producer, Standing
from emulator.history import Outcome, attributes_digest, payload_digest
from emulator.scenarios.notes import Notes
from emulator.scenarios.replayed import State, heartbeat, introduction, key_of
from emulator.scenarios.workload import HostPart

RETRY_SECONDS = 0.2


class Claim:
    """Of one host to one topic."""

    def __init__(self, part: HostPart, topic: str, client: Client, notes: Notes) -> None:
        self.topic = topic
        self.settled = asyncio.Event()
        """It holds the topic, or has a place in line."""
        self.in_line = False
        self.asked = self.ok = self.failed = self.unknown = 0
        self._part = part
        self._priority = part.priority_of(topic)
        self._client = client
        self._notes = notes
        self._producer: Producer | None = None
        self._introduced = False
        self._ending = asyncio.Event()
        self._session = ""
        self._task = asyncio.create_task(self._serve())

    @property
    def holds(self) -> bool:
        """The region has stored its introduction, and it is connected."""
        return self._introduced and self._producer is not None and self._producer.is_connected

    async def leave(self) -> None:
        """Out of the line, or out of office, and then end."""
        self._ending.set()
        if not self._introduced:
            self._task.cancel()
        await asyncio.wait({self._task})

    @property
    def _place(self) -> dict[str, str]:
        return {"region": self._part.region, "topic": self.topic, "producer": self._part.name}

    async def _serve(self) -> None:
        while not self._ending.is_set():
            try:
                await self._ask()
                await self._own()
            except ClientError:
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                await self._retire()

    async def _ask(self) -> None:
        self._notes.write("connect", "asked", **self._place)
        try:
            self._producer = await self._client.producer(
                self.topic,
                name=self._part.name,
                access_mode=AccessMode.WAIT_FOR_EXCLUSIVE,
                priority=self._priority,
                on_standing=self._stands,
            )
        except ClientError as refusal:
            self._notes.write("connect", "unknown", error=str(refusal), **self._place)
            raise
        finally:
            self.in_line = False
        self._session = self._notes.new_session()
        self._notes.write(
            "connect",
            "ok",
            session=self._session,
            last_sequence_id=self._producer.last_sequence_id,
            topic_epoch=self._producer.topic_epoch,
            **self._place,
        )

    def _stands(self, _: Producer, standing: Standing) -> None:
        self.in_line = standing is Standing.WAITS
        if self.in_line:
            self.settled.set()

    async def _own(self) -> None:
        assert self._producer is not None
        state = await self._rebuilt() if self._part.rebuilds else State()
        await self._publish(introduction(self._priority, self._producer.topic_epoch, state))
        self._introduced = True
        self.settled.set()
        while not await self._ends_within(1 / self._part.heartbeats_per_second):
            number = state.next_number
            payload = await self._publish(heartbeat(number), key_of(number))
            state.apply(payload)

    async def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        return self._ending.is_set()

    async def _rebuilt(self) -> State:
        """What the owners before wrote in this region. It is all there: nobody else may write any more."""
        state = State()
        reader = await self._client.reader(self.topic, EARLIEST)
        try:
            while await reader.has_message():
                message: Message = await reader.receive()
                if message.replicated_from is None:
                    state.apply(message.payload)
        finally:
            await reader.close()
        return state

    async def _retire(self) -> None:
        producer, self._producer, self._introduced = self._producer, None, False
        if producer is not None:
            await producer.close()

    async def _publish(self, what: dict[str, Any], key: str | None = None) -> bytes:
        """Its payload, once the region has stored it. ClientError otherwise."""
        assert self._producer is not None
        number = self._producer.last_sequence_id + 1
        identity = {"origin_region": self._part.region, "producer": self._part.name, "sequence_id": number}
        payload = json.dumps({**identity, **what}, separators=(",", ":")).encode()
        message = {**self._place, "session": self._session, "sequence_id": number, "detail": payload.decode()}
        self.asked += 1
        said = {
            "payload_digest": payload_digest(payload),
            "attributes_digest": attributes_digest(key),
            "key": key,
        }
        self._notes.write("publish", "asked", **said, **message)
        try:
            place = await self._producer.send(payload, key=key, sequence_id=number)
        except ClientError as error:
            self.failed, self.unknown = self.failed + error.definite, self.unknown + (not error.definite)
            outcome: Outcome = "failed" if error.definite else "unknown"
            self._notes.write("publish", outcome, error=str(error), **message)
            raise
        except asyncio.CancelledError:
            self.unknown += 1
            self._notes.write("publish", "unknown", error="it was told to end", **message)
            raise
        self.ok += 1
        self._notes.write(
            "publish", "ok", message_id=f"{place.ledger}:{place.entry}:{place.batch_index}", **message
        )
        return payload
