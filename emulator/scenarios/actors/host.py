"""A host that owns topics, and waits for others: with our own client, on whatever loop and network that has. Real
processes (`host_actor.py`) and simulated hosts run this same program."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from emulator.client import EARLIEST, AccessMode, Client, ClientError, Message, Producer, ProducerState
from emulator.scenarios.actor_models.specs import Counts, HostSpec
from emulator.scenarios.actors.replay import Reporting, State, heartbeat, introduction, key_of
from emulator.scenarios.actors.writer import HistoryRecorder, HostPublisher, PublishCounts


class HostAtWork:
    """All claims of one host, in one life."""

    def __init__(self, part: HostSpec, client: Client, notes: HistoryRecorder) -> None:
        self._part = part
        self._client = client
        self._notes = notes
        self._claims: dict[str, TopicClaim] = {}
        self._leaving = False

    @property
    def counts(self) -> Counts:
        claims = self._claims.values()
        holds = tuple(claim.topic for claim in claims if claim.holds)
        waits = sum(claim.in_line for claim in claims)
        return Counts(
            region=self._part.region,
            connected=bool(holds or waits),
            asked=sum(claim.tally.asked for claim in claims),
            ok=sum(claim.tally.ok for claim in claims),
            failed=sum(claim.tally.failed for claim in claims),
            unknown=sum(claim.tally.unknown for claim in claims),
            publishing=bool(claims) and not self._leaving,
            holds=holds,
            waits=waits,
        )

    async def begin(self) -> None:
        """Ask for its share. Ends when each topic of it is its own, or it waits for it."""
        await self._claim(self._part.own)

    async def join_queues(self) -> None:
        """Ask for all the others. Ends when it has a place in each line."""
        await self._claim(topic for topic in self._part.topics if topic not in self._claims)

    async def _claim(self, topics: Iterable[str]) -> None:
        claims = [TopicClaim(self._part, topic, self._client, self._notes) for topic in topics]
        self._claims.update((claim.topic, claim) for claim in claims)
        await asyncio.gather(*(claim.settled.wait() for claim in claims))

    async def finish(self) -> None:
        """Leave every wait queue first, so that it receives no further topic; then give up its topics."""
        self._leaving = True
        in_line = [claim for claim in self._claims.values() if not claim.holds]
        await asyncio.gather(*(claim.leave() for claim in in_line))
        await asyncio.gather(*(claim.leave() for claim in self._claims.values()))
        await self._client.close()


RETRY_SECONDS = 0.2


class TopicClaim:
    """Of one host to one topic."""

    def __init__(self, part: HostSpec, topic: str, client: Client, notes: HistoryRecorder) -> None:
        self.topic = topic
        self.settled = asyncio.Event()
        """It holds the topic, or has a place in line."""
        self.in_line = False
        self.tally = PublishCounts()
        self._part = part
        self._priority = part.priority_of(topic)
        self._client = client
        self._notes = notes
        self._producer: Producer | None = None
        self._introduced = False
        self._reporting = self._reports(client, notes)
        self._ending = asyncio.Event()
        self._writer: HostPublisher | None = None
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

    def _reports(self, client: Client, notes: HistoryRecorder) -> Reporting | None:
        if self._part.reports_to is None:
            return None
        name = f"{self._part.name}-reports-{self._part.topics.index(self.topic) + 1}"
        place = {"region": self._part.region, "topic": self._part.reports_to, "producer": name}
        return Reporting(client, place, notes, self.tally)

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
                on_state_change=self._state_changed,
            )
        except ClientError as refusal:
            self._notes.write("connect", "unknown", error=str(refusal), **self._place)
            raise
        finally:
            self.in_line = False
        self._writer = HostPublisher(self._producer, self._place, self._notes, self.tally)

    def _state_changed(self, _: Producer, state: ProducerState) -> None:
        self.in_line = state is ProducerState.WAITING
        if self.in_line:
            self.settled.set()

    async def _own(self) -> None:
        assert self._producer is not None
        assert self._writer is not None
        epoch, writer = self._producer.topic_epoch, self._writer
        state = await self._rebuilt() if self._part.rebuilds else State()
        await writer.publish(introduction(self._priority, epoch, state))
        self._introduced = True
        self.settled.set()
        while not await self._ends_within(1 / self._part.heartbeats_per_second):
            number = state.next_number
            if self._reporting is None:
                payload = await writer.publish(heartbeat(number), key_of(number))
            else:
                payload = await self._reporting.publish(number, epoch, writer)
            state.apply(payload)

    async def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        return self._ending.is_set()

    async def _rebuilt(self) -> State:
        """What the owners before wrote in this region. It is complete: no other producer may write any more."""
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
