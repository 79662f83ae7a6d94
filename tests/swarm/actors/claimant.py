"""A program with an exclusive producer: it opens the producer, publishes as owner of the topic, closes, and repeats.

After healing each claimant waits for exclusive access once more, publishes a last message and ends. A claimant that
still waits at the end of the run is therefore a violation.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from emulator.client import AccessMode, Client, ClientError, MessageId, Producer, ProducerState
from emulator.model.stored_keys import GrantKey
from emulator.run.history_events import payload_digest
from emulator.simulation.evidence import full
from spark_jobs.evidence.grants import read_grant
from tests.swarm.actors.clients import RETRY_SECONDS, Actor
from tests.swarm.checkers.claims import Attempt, Ending, Sent
from tests.swarm.evidence import OperationResult
from tests.swarm.plan import ClaimantPlan

if TYPE_CHECKING:
    from tests.swarm.record import Record
    from tests.swarm.world import SwarmWorld

WORKLOAD = "claim"
LOOK_SECONDS = 0.2


class ClaimantActor(Actor):
    def __init__(self, world: SwarmWorld, record: Record, plan: ClaimantPlan) -> None:
        super().__init__(world, record, plan.name, plan.region, plan.place or plan.region)
        self.plan = plan
        self.finished = False
        """Whether the claimant has owned the topic once more after healing."""
        self.last: Attempt | None = None
        """The latest request to open the producer; None: there was none."""
        self._opened: Attempt | None = None
        """The latest request that was granted; None: there was none."""
        self._instances = 0
        self._session = ""
        self._requested = 0

    async def _program(self) -> None:
        client = self.world.client_on(self.host, (self.region,))
        while not self.finished:
            with contextlib.suppress(ClientError, TimeoutError):
                await self._claim(client, self._mode())
            await asyncio.sleep(RETRY_SECONDS * self.random.uniform(0.5, 2.0))
        await client.close()

    def _mode(self) -> AccessMode:
        return AccessMode.WAIT_FOR_EXCLUSIVE if self.world.healing else AccessMode[self.plan.mode]

    async def _claim(self, client: Client, mode: AccessMode) -> None:
        self._instances += 1
        plan, began = self.plan, self.world.simulation.now
        limit = (
            None
            if plan.gives_up_seconds is None or self.world.healing
            else self._about(plan.gives_up_seconds)
        )
        try:
            async with asyncio.timeout(limit):
                producer = await client.producer(
                    plan.topic,
                    name=self.name,
                    access_mode=mode,
                    priority=plan.priority,
                    on_state_change=partial(self._state_changed, mode, self._instances),
                )
        except ClientError as failure:
            self._did("refused" if failure.code is not None else "nothing", began)
            raise
        self._did("accepted", began)
        try:
            await self._have_it(producer, mode)
        except ClientError as failure:
            # A producer that lost its access fails every send with the same error, which is recorded once.
            assert self._opened is not None
            self.record.claims.endings.append(Ending(self._opened, failure.code))
            raise
        finally:
            await producer.close()

    async def _have_it(self, producer: Producer, mode: AccessMode) -> None:
        until = self.world.simulation.now + self._about(self.plan.holds_seconds)
        while self.world.simulation.now < until and not self.world.healing:
            for _ in range(min(self.plan.burst, self.plan.messages - self._requested)):
                self._send(producer)
            await asyncio.sleep(self._about(self.plan.pause_seconds))
        if self.world.healing and mode is not AccessMode.SHARED:
            await self._send(producer)
            self.finished = True

    def _about(self, seconds: float) -> float:
        return seconds * self.random.uniform(0.1, 1.9)

    # Responses of the region.

    def _state_changed(
        self, mode: AccessMode, instance: int, producer: Producer, state: ProducerState
    ) -> None:
        now, place = self.world.simulation.now, (self.region, full(self.plan.topic))
        if state is ProducerState.REQUESTING:
            self.last = Attempt(self.name, place, mode, self.plan.priority, instance, now)
            self.record.claims.attempts.append(self.last)
            return
        assert self.last is not None
        self.last.lines.append(self._life_of_topic())
        if state is ProducerState.WAITING:
            self.last.waits = now
            return
        self.last.opened, self._opened = now, self.last
        if mode is not AccessMode.SHARED:
            self.last.epoch = producer.topic_epoch
            self.last.stored_owner = self._stored_owner(producer.topic_epoch)
        self._session = self.record.new_session(self.name)
        self._note("connect", "ok", last_sequence_id=producer.last_sequence_id, topic_epoch=self.last.epoch)

    def _life_of_topic(self) -> object:
        broker = self.world.regions[self.region].broker
        return None if broker is None else broker.directory.serving.get(full(self.plan.topic))

    def _stored_owner(self, epoch: int | None) -> str | None:
        """Return the owner of the epoch as currently stored on the region's disk; None: no grant is stored."""
        values = self.world.regions[self.region].medium.values
        topic = full(self.plan.topic)
        row = None if epoch is None else values.get(GrantKey.of(topic, epoch).text)
        return (
            None if row is None or epoch is None else read_grant(self.region, topic, epoch, row.value).owner
        )

    # Publishing.

    def _send(self, producer: Producer) -> asyncio.Future[MessageId]:
        assert self._opened is not None
        number, self._requested = self._requested, self._requested + 1
        text = f"{self.name}/{number}"
        payload, session = text.encode(), self._session
        future = producer.send_nowait(payload, sequence_id=number)
        self._note_publish(number, text, session, "asked", payload_digest=payload_digest(payload))
        sent = Sent(self._opened, text, self.world.simulation.now)
        self.record.claims.sent.append(sent)
        future.add_done_callback(partial(self._answered, sent, number, session))
        return future

    def _answered(self, sent: Sent, number: int, session: str, done: asyncio.Future[MessageId]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None and not done.cancelled():
            sent.acknowledged = True
            place = done.result()
            reported = f"{place.ledger}:{place.entry}:{place.batch_index}"
            self._note_publish(number, sent.text, session, "ok", message_id=reported)
        else:
            self._note_publish(number, sent.text, session, "unknown", error=str(error))

    def _note_publish(self, number: int, text: str, session: str, outcome: Any, **fields: Any) -> None:
        fields |= {"origin_region": self.region, "sequence_id": number, "detail": text}
        self._note("publish", outcome, session=session, **fields)

    def _note(self, op: str, outcome: Any, **fields: Any) -> None:
        fields.setdefault("session", self._session)
        self.record.note(
            self.name, op, outcome, region=self.region, topic=self.plan.topic, producer=self.name, **fields
        )

    def _did(self, outcome: Any, began: float) -> None:
        self.record.operations.append(
            OperationResult(WORKLOAD, outcome, began, self.world.simulation.now, self.region)
        )
