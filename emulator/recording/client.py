"""A recording wrapper of `pulsar.Client`."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pulsar  # type: ignore[import-untyped]

from emulator.errors import Refused
from emulator.recording.consumer import ReceiveRecorder, RecordedConsumer, RecordedReader
from emulator.recording.context import NON_PERSISTENT_PREFIX, ClientLocation, Delegate
from emulator.recording.journal import ActorJournal
from emulator.recording.producer import PublishRecorder, RecordedProducer
from emulator.recording.responses import recording_error

PARTITION_SUFFIX = "-partition-"


class RecordingClient(Delegate):
    """Common part of the synchronous and the asynchronous recording client."""

    def __init__(self, inner: Any, journal: ActorJournal, location: ClientLocation) -> None:
        super().__init__(inner)
        self._journal = journal
        self._location = location
        self._released = threading.Lock()
        """Acquired by the first call that closes the client, and never released."""

    def shutdown(self) -> None:
        try:
            self._inner.shutdown()
        finally:
            self._release_once()

    def _release_once(self) -> None:
        if self._released.acquire(blocking=False):
            self._journal.release()

    @contextlib.contextmanager
    def _record_connect_error(self, arguments: dict[str, Any]) -> Iterator[None]:
        """Record an error of the client that occurs while the producer is opened in the `with` block, if its topic is
        recorded."""
        if arguments["topic"].startswith(NON_PERSISTENT_PREFIX):
            yield
            return
        fields = {"region": self._location.region, "topic": arguments["topic"]}
        name = arguments.get("producer_name") or "(named by the region)"
        with recording_error(
            lambda error: self._journal.write("connect", "unknown", **fields, producer=name, error=error)
        ):
            yield

    def _new_publish_recorder(self, producer: Any, topic: str) -> PublishRecorder | None:
        """Return the recorder of a producer's publishes; None if the topic is not recorded."""
        if topic.startswith(NON_PERSISTENT_PREFIX):
            return None
        return PublishRecorder(self._journal, self._location, producer, topic)

    def _new_receive_recorder(self, topic: Any, subscription: str | None) -> ReceiveRecorder | None:
        """Return the recorder of a consumer or reader; None if no named topic is recorded. `topic` is one topic, a
        list or a pattern."""
        named = _named_topics(topic)
        if named and not persistent_topics(topic):
            return None
        return ReceiveRecorder(self._journal, self._location, named, subscription)


class RecordedClient(RecordingClient):
    """Wraps `pulsar.Client` and records its operations."""

    def create_producer(self, *args: Any, **named: Any) -> Any:
        arguments = bind_arguments(self._inner.create_producer, args, named)
        self._check_partitions(arguments["topic"])
        with self._record_connect_error(arguments):
            producer = self._inner.create_producer(**arguments)
        recorder = self._new_publish_recorder(producer, arguments["topic"])
        if recorder is None:
            return producer
        return RecordedProducer(producer, recorder, batching=bool(arguments.get("batching_enabled")))

    def subscribe(self, *args: Any, **named: Any) -> Any:
        arguments = bind_arguments(self._inner.subscribe, args, named)
        recorder = self._new_receive_recorder(arguments["topic"], arguments["subscription_name"])
        if recorder is None:
            return self._inner.subscribe(**arguments)
        self._check_partitions(arguments["topic"])
        listener = arguments.get("message_listener")
        if listener is not None:
            arguments["message_listener"] = recorded_listener(listener, recorder, RecordedConsumer)
        with recorder.record_subscribe(**subscription_fields(arguments)):
            consumer = self._inner.subscribe(**arguments)
        return RecordedConsumer(consumer, recorder)

    def create_reader(self, *args: Any, **named: Any) -> Any:
        arguments = bind_arguments(self._inner.create_reader, args, named)
        recorder = self._new_receive_recorder(arguments["topic"], None)
        if recorder is None:
            return self._inner.create_reader(**arguments)
        self._check_partitions(arguments["topic"])
        listener = arguments.get("reader_listener")
        if listener is not None:
            arguments["reader_listener"] = recorded_listener(listener, recorder, RecordedReader)
        return RecordedReader(self._inner.create_reader(**arguments), recorder)

    def _check_partitions(self, topic: Any) -> None:
        for one in persistent_topics(topic):
            with contextlib.suppress(pulsar.PulsarException):
                refuse_partitioned(one, self._inner.get_topic_partitions(one))

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._release_once()


def _named_topics(topic: Any) -> list[str]:
    """Return the topics that a program names; empty for a pattern."""
    return [topic] if isinstance(topic, str) else topic if isinstance(topic, list) else []


def persistent_topics(topic: Any) -> list[str]:
    """Return the named persistent topics; empty for a pattern."""
    return [one for one in _named_topics(topic) if not one.startswith(NON_PERSISTENT_PREFIX)]


def refuse_partitioned(topic: str, partitions: Sequence[str]) -> None:
    """Raise Refused for a partitioned topic: the client has one producer per partition and does not report the
    partition of a message, so the recorded messages could not be compared with the logs. One partition by its name is
    accepted."""
    if len(partitions) > 1 or (
        partitions and PARTITION_SUFFIX in partitions[0] and PARTITION_SUFFIX not in topic
    ):
        raise Refused(
            f"{topic} has {len(partitions)} partitions, and a recorded client does not know the partition of a "
            "message: record it with a tap instead (geoemu tap, geo.tap())"
        )


def bind_arguments(function: Callable[..., Any], args: Any, named: Any) -> dict[str, Any]:
    """Return the arguments of a call by name, including those passed in `**`. Raises TypeError like the call itself."""
    bound = inspect.signature(function).bind(*args, **named)
    arguments = dict(bound.arguments)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= arguments.pop(name, {})
    return arguments


def subscription_fields(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with which the history records a subscription."""
    initial = arguments.get("initial_position", pulsar.InitialPosition.Latest)
    return {
        "replicated": bool(arguments.get("replicate_subscription_state_enabled")),
        "initial": "earliest" if initial == pulsar.InitialPosition.Earliest else "latest",
        "compacted": bool(arguments.get("is_read_compacted")) or None,
    }


def recorded_listener(
    listener: Callable[[Any, Any], None],
    recorder: ReceiveRecorder,
    wrap: Callable[[Any, ReceiveRecorder], Any],
) -> Callable[[Any, Any], None]:
    """Return a listener that records each delivery, then calls the program's listener with a recorded consumer."""

    def listen(consumer: Any, message: Any) -> None:
        recorder.record_delivery(message)
        listener(wrap(consumer, recorder), message)

    return listen
