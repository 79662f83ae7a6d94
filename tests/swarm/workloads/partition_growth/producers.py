"""Producers of the workload `partition-growth`: messages with keys, to the partitioned topic and to others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from emulator.client import Client, ClientError, MessageId, Producer
from emulator.client.partitioned_producer import PartitionedProducer
from emulator.run.history_events import payload_digest
from tests.swarm.topics import DELETED
from tests.swarm.workloads.partition_growth.environment import AGAIN_SECONDS, Life, Remaking, Scene
from tests.swarm.workloads.partition_growth.ledger import Published


class Writer:
    """The successive producers of one name, one for each `Life`."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._numbers = 0

    async def live(self, lives: Sequence[Life]) -> None:
        for life in lives:
            await self._scene.sleep_until(life.begins_seconds)
            await self.publish(life)

    async def publish(self, life: Life) -> None:
        """Publish all messages of one producer and wait for their outcomes, until the deadline of the scene."""
        client = self._scene.client(life.place, asks_seconds=AGAIN_SECONDS)
        try:
            async with asyncio.timeout_at(self._scene.loop_time(self._scene.give_up_at)):
                producer = await self._opened(client, life)
                under_way = []
                for _ in range(life.messages):
                    under_way.append(self._send(producer, life))
                    await asyncio.sleep(life.pause_seconds)
                await asyncio.gather(*under_way)
        except (ClientError, TimeoutError):
            return
        finally:
            await client.close()

    async def _opened(self, client: Client, life: Life) -> Producer:
        topic = self._scene.topic(life.topic)
        while True:
            try:
                return await client.producer(topic, name=self._name, batching=life.batching)
            except ClientError:
                await asyncio.sleep(AGAIN_SECONDS)

    def _send(self, producer: Producer, life: Life) -> asyncio.Future[None]:
        random, number = self._scene.context.random, self._numbers
        self._numbers += 1
        # The newest message of a key would be undefined if two regions published to it.
        key = f"{self._name}-{life.place}-{random.randrange(life.keys)}"
        value = b"" if random.random() < life.deletes else f"{self._name}/{number}".encode()
        topic, partition = producer.topic, -1
        if isinstance(producer, PartitionedProducer):
            partition = java_hash(key) % producer.partitions
            topic = f"{topic}-partition-{partition}"
        one = Published(topic, self._name, number, key, value, self._scene.now)
        self._scene.ledger.sent[one.name] = one
        self._note(one, life, "asked")
        receipt = producer.send_nowait(value, key=key, sequence_id=number)
        return asyncio.ensure_future(self._answered(one, life, partition, receipt))

    async def _answered(
        self, one: Published, life: Life, partition: int, receipt: asyncio.Future[MessageId]
    ) -> None:
        try:
            place = await receipt
        except ClientError as failure:
            self._note(one, life, "failed" if failure.definite else "unknown")
            return
        if place.partition != partition:
            sentence = f"{one} has the key {one.key}, and was acknowledged in partition {place.partition}"
            self._scene.ledger.astray.append(sentence)
        self._scene.ledger.taken.add(one.name)
        self._note(one, life, "ok", message_id=str(place))

    def _note(
        self,
        one: Published,
        life: Life,
        outcome: Literal["asked", "ok", "failed", "unknown"],
        **fields: str,
    ) -> None:
        if one.topic.startswith(DELETED):
            return  # No other check covers these topics.
        self._scene.context.record.note(
            self._scene.context.name,
            "publish",
            outcome,
            region=life.place,
            topic=one.topic,
            origin_region=life.place,
            producer=one.producer,
            sequence_id=one.number,
            session=f"{one.producer}#{life.begins_seconds}",
            payload_digest=payload_digest(one.value),
            detail=one.value.decode(),
            **fields,
        )


async def remake(scene: Scene, remaking: Remaking, number: int) -> None:
    """Delete a topic and publish to it again. Messages from before the deletion may be lost (INV-89)."""
    writer = Writer(scene, f"{scene.context.name}-r{number}")
    life = Life(remaking.at_seconds, scene.reading, f"gone{number}", remaking.messages, 0.02, 2, 0.0)
    await scene.sleep_until(remaking.at_seconds)
    await writer.publish(life)
    topic = scene.topic(life.topic)
    answer = await scene.call("DELETE", scene.reading, topic, "?force=true")
    if answer is None or answer.status != 204:
        # A frozen region may process the request later: messages published until then may be deleted.
        await scene.sleep_until(scene.faults_end_seconds)
        await scene.retry_until_done("DELETE", scene.reading, topic, "?force=true", None, done=(204, 404))
    scene.ledger.deleted[topic] = scene.now
    await writer.publish(life)


def java_hash(text: str) -> int:
    """Return Java's String.hashCode without its sign, for ASCII text; independent of the client's implementation."""
    hashed = 0
    for char in text:
        hashed = (hashed * 31 + ord(char)) % 2**32
    return hashed % 2**31
