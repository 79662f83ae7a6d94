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
from emulator.recording.consumer import ReceiveRecorder
from emulator.recording.context import Delegate
from emulator.recording.producer import PublishRecorder, record_result


class AsyncRecordedClient(RecordingClient):
    """Wraps `pulsar.asyncio.Client` and records its operations."""

    async def create_producer(self, *args: Any, **named: Any) -> Any:
        arguments = bind_arguments(self._inner.create_producer, args, named)
        await self._check_partitions(arguments["topic"])
        with self._record_connect_error(arguments):
            producer = await self._inner.create_producer(**arguments)
        recorder = self._new_publish_recorder(producer, arguments["topic"])
        return producer if recorder is None else AsyncRecordedProducer(producer, recorder)

    async def subscribe(self, *args: Any, **named: Any) -> Any:
        arguments = bind_arguments(self._inner.subscribe, args, named)
        recorder = self._new_receive_recorder(arguments["topic"], arguments["subscription_name"])
        if recorder is None:
            return await self._inner.subscribe(**arguments)
        await self._check_partitions(arguments["topic"])
        with recorder.record_subscribe(**subscription_fields(arguments)):
            consumer = await self._inner.subscribe(**arguments)
        return AsyncRecordedConsumer(consumer, recorder)

    async def create_reader(self, *args: Any, **named: Any) -> Any:
        arguments = bind_arguments(self._inner.create_reader, args, named)
        recorder = self._new_receive_recorder(arguments["topic"], None)
        if recorder is None:
            return await self._inner.create_reader(**arguments)
        await self._check_partitions(arguments["topic"])
        return AsyncRecordedReader(await self._inner.create_reader(**arguments), recorder)

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

    def __init__(self, inner: Any, recorder: PublishRecorder) -> None:
        super().__init__(inner)
        self._recorder = recorder

    async def send(self, *args: Any, **named: Any) -> Any:
        arguments = self._recorder.bind_arguments(*args, **named)
        try:
            fields = self._recorder.message_fields(arguments)
        except Exception:
            message_id = await self._inner.send(**arguments)  # the client raises the proper error
            self._recorder.journal.stop_recording("the recorder could not read a message that was sent")
            return message_id
        number, publish = self._recorder.record_request(fields, arguments.get("sequence_id"))
        try:
            message_id = await self._inner.send(**{**arguments, "sequence_id": number})
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

    def __init__(self, inner: Any, recorder: ReceiveRecorder) -> None:
        super().__init__(inner)
        self._recorder = recorder

    async def receive(self) -> Any:
        return self._recorder.record_delivery(await self._inner.receive())

    async def acknowledge(self, message: Any) -> None:
        with self._recorder.record_acknowledge(message, "individual"):
            await self._inner.acknowledge(message)

    async def acknowledge_cumulative(self, message: Any) -> None:
        with self._recorder.record_acknowledge(message, "cumulative"):
            await self._inner.acknowledge_cumulative(message)

    async def negative_acknowledge(self, message: Any) -> None:
        self._recorder.record_redeliver(message)
        await self._inner.negative_acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        self._recorder.record_redeliver()
        self._inner.redeliver_unacknowledged_messages()

    async def seek(self, messageid: Any) -> None:
        with self._recorder.record_seek(messageid):
            await self._inner.seek(messageid)

    async def unsubscribe(self) -> None:
        with self._recorder.record_request("unsubscribe"):
            await self._inner.unsubscribe()


class AsyncRecordedReader(Delegate):
    """Wraps `pulsar.asyncio.Reader` and records its deliveries."""

    def __init__(self, inner: Any, recorder: ReceiveRecorder) -> None:
        super().__init__(inner)
        self._recorder = recorder

    async def read_next(self) -> Any:
        return self._recorder.record_delivery(await self._inner.read_next())
