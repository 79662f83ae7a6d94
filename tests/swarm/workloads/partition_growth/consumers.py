"""Consumers of the workload `partition-growth`, of a partitioned topic, a list, a pattern or one topic; and its table
views."""

from __future__ import annotations

import asyncio
import contextlib

from emulator.client import Client, ClientError, Consumer, ConsumerType, InitialPosition, Message, TableView
from tests.swarm.record import received_fields
from tests.swarm.topics import DELETED
from tests.swarm.workloads.partition_growth.environment import AGAIN_SECONDS, PATTERN, Reading, Scene
from tests.swarm.workloads.partition_growth.ledger import Standing


class Follower:
    """One consumer of a subscription, which subscribes again after every error until its program ends."""

    def __init__(self, scene: Scene, reading: Reading, number: int) -> None:
        self._scene = scene
        self._reading = reading
        self._subscription = f"{scene.context.name}-{reading.subscription}"
        self._name = f"{self._subscription}-{number}"
        self._standing = scene.ledger.standing.setdefault(
            self._subscription,
            Standing(lambda topic: scene.fits(reading.of, topic), reading.type_ != "SHARED"),
        )

    async def follow(self) -> None:
        client = self._scene.client(self._scene.reading, asks_seconds=self._reading.asks_seconds)
        try:
            while True:
                with contextlib.suppress(ClientError):
                    consumer = await self._subscribed(client)
                    try:
                        await self._pause(consumer)
                        await self._consume(consumer)
                    finally:
                        await consumer.close()
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            await client.close()

    async def _subscribed(self, client: Client) -> Consumer:
        """Subscribe. A returning consumer starts at the latest message, because its subscription holds the earlier
        ones; except for a pattern, which may match topics that were created meanwhile."""
        reading, standing = self._reading, self._standing
        is_new = standing.since is None or reading.of == PATTERN
        consumer = await client.subscribe(
            self._scene.topics(reading.of),
            self._subscription,
            type_=ConsumerType[reading.type_],
            initial_position=InitialPosition.EARLIEST if is_new else InitialPosition.LATEST,
            name=self._name,
            receiver_queue_size=reading.queue,
            start_paused=bool(reading.paused_seconds),
        )
        if standing.since is None:
            standing.since = self._scene.now
        return consumer

    async def _pause(self, consumer: Consumer) -> None:
        if not self._reading.paused_seconds:
            return
        await asyncio.sleep(self._reading.paused_seconds)
        if consumer.waiting:
            sentence = f"{self._name} received {len(consumer.waiting)} messages while it was paused"
            self._scene.ledger.early.append(sentence)
        consumer.resume()

    async def _consume(self, consumer: Consumer) -> None:
        """Consume until the planned leave, close the consumer, and sleep until its return."""
        away = self._reading.away
        leaves = away is not None and self._scene.now < away[0]
        until = self._scene.loop_time(away[0]) if away is not None and leaves else None
        try:
            async with asyncio.timeout_at(until):
                while True:
                    message = await consumer.receive()
                    self._given(consumer, message)
                    await consumer.acknowledge(message)
        except TimeoutError:
            await consumer.close()
            await asyncio.sleep(0.0 if away is None else away[1])

    def _given(self, consumer: Consumer, message: Message) -> None:
        key = message.key or ""
        self._standing.give(message.topic, message.producer_name, message.sequence_id, key)
        if not self._reading.queue and any(one.id[:2] != message.id[:2] for one in consumer.waiting):
            # The messages of one entry arrive together.
            sentence = f"{self._name} received {len(consumer.waiting)} messages that it did not request"
            self._scene.ledger.early.append(sentence)
        if message.topic.startswith(DELETED):
            return  # No other check covers these topics.
        self._scene.context.record.note(
            self._scene.context.name,
            "receive",
            "ok",
            region=self._scene.reading,
            topic=message.topic,
            subscription=consumer.subscription,
            **received_fields(message, self._scene.reading),
        )


class Table:
    """A table view of the partitioned topic that stays open until the program ends."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._view: TableView | None = None

    async def keep(self) -> None:
        client = self._scene.client(self._scene.reading, asks_seconds=1.0)
        try:
            while self._view is None:
                try:
                    self._view = await client.table_view(self._scene.base)
                except ClientError:
                    await asyncio.sleep(AGAIN_SECONDS)
            await asyncio.get_running_loop().create_future()
        finally:
            await client.close()

    @property
    def disagreement(self) -> str:
        """A difference between the table view and the published messages; empty: none."""
        table = {} if self._view is None else dict(self._view)
        return self._scene.ledger.disagreement(self._scene.base, table)
