"""A recording wrapper of `pulsar.asyncio.Client`."""

from __future__ import annotations

import contextlib
from typing import Any

import pulsar  # type: ignore[import-untyped]
from pulsar.asyncio import PulsarException  # type: ignore[import-untyped]

from emulator.recording.client import (
    RecordingClient,
    bind_arguments,
    persistent_topics,
    refuse_partitioned,
    subscription_fields,
)
from emulator.recording.consumer import Receiving
from emulator.recording.context import Delegate
from emulator.recording.producer import Publishing, record_result


class AsyncRecordedClient(RecordingClient):
    """Wraps `pulsar.asyncio.Client` and records its operations."""

    async def create_producer(self, *args: Any, **named: Any) -> Any:
        given = bind_arguments(self._inner.create_producer, args, named)
        await self._check_partitions(given["topic"])
        with self._connecting(given):
            producer = await self._inner.create_producer(**given)
        publishing = self._publishing(producer, given["topic"])
        return producer if publishing is None else AsyncRecordedProducer(producer, publishing)

    async def subscribe(self, *args: Any, **named: Any) -> Any:
        given = bind_arguments(self._inner.subscribe, args, named)
        receiving = self._receiving(given["topic"], given["subscription_name"])
        if receiving is None:
            return await self._inner.subscribe(**given)
        await self._check_partitions(given["topic"])
        with receiving.subscribing(**subscription_fields(given)):
            consumer = await self._inner.subscribe(**given)
        return AsyncRecordedConsumer(consumer, receiving)

    async def create_reader(self, *args: Any, **named: Any) -> Any:
        given = bind_arguments(self._inner.create_reader, args, named)
        receiving = self._receiving(given["topic"], None)
        if receiving is None:
            return await self._inner.create_reader(**given)
        await self._check_partitions(given["topic"])
        return AsyncRecordedReader(await self._inner.create_reader(**given), receiving)

    async def _check_partitions(self, topic: Any) -> None:
        for one in persistent_topics(topic):
            with contextlib.suppress(PulsarException):
                refuse_partitioned(one, await self._inner.get_topic_partitions(one))

    async def close(self) -> None:
        try:
            await self._inner.close()
        finally:
            self._release_once()


class AsyncRecordedProducer(Delegate):
    """Wraps `pulsar.asyncio.Producer` and records its publishes. The wrapped `send` passes a message to the client
    before it first awaits, so sequence ids reach the region in order."""

    def __init__(self, inner: Any, publishing: Publishing) -> None:
        super().__init__(inner)
        self._publishing = publishing

    async def send(self, *args: Any, **named: Any) -> Any:
        given = self._publishing.bind_arguments(*args, **named)
        try:
            fields = self._publishing.message_fields(given)
        except Exception:
            message_id = await self._inner.send(**given)  # the client raises the proper error
            self._publishing.journal.stop_recording("the recorder could not read a message that was sent")
            return message_id
        number, publish = self._publishing.record_request(fields, given.get("sequence_id"))
        try:
            message_id = await self._inner.send(**{**given, "sequence_id": number})
        except PulsarException as refusal:
            record_result(publish, refusal.error(), None)
            raise
        except BaseException as problem:
            publish.unknown(repr(problem))  # cancelled while the publish was pending
            raise
        record_result(publish, pulsar.Result.Ok, message_id)
        return message_id


class AsyncRecordedConsumer(Delegate):
    """Wraps `pulsar.asyncio.Consumer` and records its operations."""

    def __init__(self, inner: Any, receiving: Receiving) -> None:
        super().__init__(inner)
        self._receiving = receiving

    async def receive(self) -> Any:
        return self._receiving.received(await self._inner.receive())

    async def acknowledge(self, message: Any) -> None:
        with self._receiving.acknowledging(message, "individual"):
            await self._inner.acknowledge(message)

    async def acknowledge_cumulative(self, message: Any) -> None:
        with self._receiving.acknowledging(message, "cumulative"):
            await self._inner.acknowledge_cumulative(message)

    async def negative_acknowledge(self, message: Any) -> None:
        self._receiving.redelivering(message)
        await self._inner.negative_acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        self._receiving.redelivering()
        self._inner.redeliver_unacknowledged_messages()

    async def seek(self, messageid: Any) -> None:
        with self._receiving.seeking(messageid):
            await self._inner.seek(messageid)

    async def unsubscribe(self) -> None:
        with self._receiving.request("unsubscribe"):
            await self._inner.unsubscribe()


class AsyncRecordedReader(Delegate):
    """Wraps `pulsar.asyncio.Reader` and records its deliveries."""

    def __init__(self, inner: Any, receiving: Receiving) -> None:
        super().__init__(inner)
        self._receiving = receiving

    async def read_next(self) -> Any:
        return self._receiving.received(await self._inner.read_next())
