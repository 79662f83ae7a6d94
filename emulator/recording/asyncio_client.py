"""`pulsar.asyncio.Client`, recorded."""

from __future__ import annotations

import contextlib
from typing import Any

import pulsar  # type: ignore[import-untyped]
from pulsar.asyncio import PulsarException  # type: ignore[import-untyped]

from emulator.recording.client import (
    NO_PROMISE,
    RecordingClient,
    given_to,
    refuse_partitioned,
    single_topics,
    subscription_told,
)
from emulator.recording.consumer import Receiving, seek_target
from emulator.recording.context import Delegate
from emulator.recording.producer import Publishing, tell


class AsyncRecordedClient(RecordingClient):
    """Like `pulsar.asyncio.Client`."""

    async def create_producer(self, *args: Any, **named: Any) -> Any:
        given = given_to(self._inner.create_producer, args, named)
        topic = given["topic"]
        await self._check_partitions(topic)
        try:
            producer = await self._inner.create_producer(**given)
        except PulsarException as refusal:
            self._connecting_failed(topic, given, refusal)
            raise
        if topic.startswith(NO_PROMISE):
            return producer
        return AsyncRecordedProducer(producer, Publishing(self._journal, self._whereabouts, producer, topic))

    async def subscribe(self, *args: Any, **named: Any) -> Any:
        given = given_to(self._inner.subscribe, args, named)
        topic, name = given["topic"], given["subscription_name"]
        if str(topic).startswith(NO_PROMISE):
            return await self._inner.subscribe(**given)
        await self._check_partitions(topic)
        receiving, told = self._receiving(topic, name), subscription_told(given)
        receiving.subscribing("asked", **told)
        try:
            consumer = await self._inner.subscribe(**given)
        except PulsarException as refusal:
            receiving.subscribing("unknown", error=str(refusal), **told)
            raise
        receiving.subscribing("ok", **told)
        return AsyncRecordedConsumer(consumer, receiving)

    async def create_reader(self, *args: Any, **named: Any) -> Any:
        given = given_to(self._inner.create_reader, args, named)
        await self._check_partitions(given["topic"])
        reader = await self._inner.create_reader(**given)
        return AsyncRecordedReader(reader, self._receiving(given["topic"], None))

    async def _check_partitions(self, topic: Any) -> None:
        for one in single_topics(topic):
            with contextlib.suppress(PulsarException):
                refuse_partitioned(one, await self._inner.get_topic_partitions(one))

    async def close(self) -> None:
        try:
            await self._inner.close()
        finally:
            self._leave()

    def shutdown(self) -> None:
        try:
            self._inner.shutdown()
        finally:
            self._leave()


class AsyncRecordedProducer(Delegate):
    """Like `pulsar.asyncio.Producer`. It is at home in one event loop, and its client has a message before `send` first
    waits: so numbers reach the region in order."""

    def __init__(self, inner: Any, publishing: Publishing) -> None:
        super().__init__(inner)
        self._publishing = publishing

    async def send(self, *args: Any, **named: Any) -> Any:
        given = self._publishing.given(*args, **named)
        try:
            described = self._publishing.described(given)
        except Exception:
            message_id = await self._inner.send(**given)  # which says best what is wrong with it
            self._publishing.journal.give_up("the recorder could not read a message that was sent")
            return message_id
        number, publish = self._publishing.asked(described, given.get("sequence_id"))
        try:
            message_id = await self._inner.send(**{**given, "sequence_id": number})
        except PulsarException as refusal:
            tell(publish, refusal.error(), None)
            raise
        except BaseException as problem:
            publish.unknown(repr(problem))  # cancelled while the publish was pending
            raise
        tell(publish, pulsar.Result.Ok, message_id)
        return message_id


class AsyncRecordedConsumer(Delegate):
    """Like `pulsar.asyncio.Consumer`."""

    def __init__(self, inner: Any, receiving: Receiving) -> None:
        super().__init__(inner)
        self._receiving = receiving

    async def receive(self) -> Any:
        message = await self._inner.receive()
        self._receiving.received(message)
        return message

    async def acknowledge(self, message: Any) -> None:
        await self._acknowledge(self._inner.acknowledge, message, "individual")

    async def acknowledge_cumulative(self, message: Any) -> None:
        await self._acknowledge(self._inner.acknowledge_cumulative, message, "cumulative")

    async def _acknowledge(self, acknowledge: Any, message: Any, how: str) -> None:
        self._receiving.acknowledging(message, how)
        try:
            await acknowledge(message)
        except PulsarException as refusal:
            self._receiving.acknowledging(message, how, "unknown", error=str(refusal))
            raise

    async def negative_acknowledge(self, message: Any) -> None:
        self._receiving.redelivering(message)
        await self._inner.negative_acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        self._receiving.redelivering()
        self._inner.redeliver_unacknowledged_messages()

    async def seek(self, messageid: Any) -> None:
        await self._move("seek", self._inner.seek, (messageid,), **seek_target(messageid))

    async def unsubscribe(self) -> None:
        await self._move("unsubscribe", self._inner.unsubscribe, ())

    async def _move(self, op: str, do: Any, arguments: tuple[Any, ...], **told: Any) -> None:
        self._receiving.moving(op, "asked", **told)
        try:
            await do(*arguments)
        except PulsarException as refusal:
            self._receiving.moving(op, "unknown", error=str(refusal), **told)
            raise
        self._receiving.moving(op, "ok", **told)


class AsyncRecordedReader(Delegate):
    """Like `pulsar.asyncio.Reader`."""

    def __init__(self, inner: Any, receiving: Receiving) -> None:
        super().__init__(inner)
        self._receiving = receiving

    async def read_next(self) -> Any:
        message = await self._inner.read_next()
        self._receiving.received(message)
        return message
