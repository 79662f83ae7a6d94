"""`pulsar.Client`, recorded."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pulsar  # type: ignore[import-untyped]

from emulator.errors import Refused
from emulator.recording.consumer import Receiving, RecordedConsumer, RecordedReader
from emulator.recording.context import ClientLocation, Delegate
from emulator.recording.journal import ActorJournal
from emulator.recording.producer import Publishing, RecordedProducer

NO_PROMISE = "non-persistent://"
"""Non-persistent topics guarantee nothing, so there is nothing to verify."""
PARTITION = "-partition-"


class RecordingClient(Delegate):
    """What both kinds of client have in common."""

    def __init__(self, inner: Any, journal: ActorJournal, whereabouts: ClientLocation) -> None:
        super().__init__(inner)
        self._journal = journal
        self._whereabouts = whereabouts
        self._leaving = threading.Lock()
        """Acquired by the first call that closes the client, and never released."""

    def _leave(self) -> None:
        if self._leaving.acquire(blocking=False):
            self._journal.let_go()

    def _connecting_failed(self, topic: str, given: dict[str, Any], refusal: Exception) -> None:
        place = {"region": self._whereabouts.region, "topic": topic}
        name = given.get("producer_name") or "(named by the region)"
        self._journal.write("connect", "unknown", **place, producer=name, error=str(refusal))

    def _receiving(self, topic: Any, subscription: str | None) -> Receiving:
        """`topic`: one, several, or a pattern."""
        topics = [topic] if isinstance(topic, str) else topic if isinstance(topic, list) else []
        return Receiving(self._journal, self._whereabouts, topics, subscription)


class RecordedClient(RecordingClient):
    """Like `pulsar.Client`."""

    def create_producer(self, *args: Any, **named: Any) -> Any:
        given = given_to(self._inner.create_producer, args, named)
        topic = given["topic"]
        self._check_partitions(topic)
        try:
            producer = self._inner.create_producer(**given)
        except pulsar.PulsarException as refusal:
            self._connecting_failed(topic, given, refusal)
            raise
        if topic.startswith(NO_PROMISE):
            return producer
        publishing = Publishing(self._journal, self._whereabouts, producer, topic)
        return RecordedProducer(producer, publishing, batching=bool(given.get("batching_enabled")))

    def subscribe(self, *args: Any, **named: Any) -> Any:
        given = given_to(self._inner.subscribe, args, named)
        topic, name = given["topic"], given["subscription_name"]
        if str(topic).startswith(NO_PROMISE):
            return self._inner.subscribe(**given)
        self._check_partitions(topic)
        receiving, told = self._receiving(topic, name), subscription_told(given)
        listener = given.get("message_listener")
        if listener is not None:
            given["message_listener"] = recorded_listener(listener, receiving, RecordedConsumer)
        receiving.subscribing("asked", **told)
        try:
            consumer = self._inner.subscribe(**given)
        except pulsar.PulsarException as refusal:
            receiving.subscribing("unknown", error=str(refusal), **told)
            raise
        receiving.subscribing("ok", **told)
        return RecordedConsumer(consumer, receiving)

    def create_reader(self, *args: Any, **named: Any) -> Any:
        given = given_to(self._inner.create_reader, args, named)
        if str(given["topic"]).startswith(NO_PROMISE):
            return self._inner.create_reader(**given)
        self._check_partitions(given["topic"])
        receiving = self._receiving(given["topic"], None)
        listener = given.get("reader_listener")
        if listener is not None:
            given["reader_listener"] = recorded_listener(listener, receiving, RecordedReader)
        return RecordedReader(self._inner.create_reader(**given), receiving)

    def _check_partitions(self, topic: Any) -> None:
        for one in single_topics(topic):
            with contextlib.suppress(pulsar.PulsarException):
                refuse_partitioned(one, self._inner.get_topic_partitions(one))

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._leave()

    def shutdown(self) -> None:
        try:
            self._inner.shutdown()
        finally:
            self._leave()


def single_topics(topic: Any) -> list[str]:
    """Those that a program names; none for a pattern."""
    named = [topic] if isinstance(topic, str) else topic if isinstance(topic, list) else []
    return [one for one in named if not one.startswith(NO_PROMISE)]


def refuse_partitioned(topic: str, partitions: Sequence[str]) -> None:
    """A client's library sends to each partition as a producer of its own, and tells the program of none of them: what
    was recorded could not be found in the logs again. Refused."""
    if len(partitions) > 1 or (partitions and PARTITION in partitions[0] and PARTITION not in topic):
        raise Refused(
            f"{topic} has {len(partitions)} partitions, and a recorded client does not know the partition of a "
            "message: record it with a tap instead (geoemu tap, geo.tap())"
        )


def given_to(function: Callable[..., Any], args: Any, named: Any) -> dict[str, Any]:
    """Arguments by name, including those passed in `**`. Raises the function's own TypeError."""
    bound = inspect.signature(function).bind(*args, **named)
    given = dict(bound.arguments)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
    return given


def subscription_told(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a subscription in the history."""
    initial = given.get("initial_position", pulsar.InitialPosition.Latest)
    return {
        "replicated": bool(given.get("replicate_subscription_state_enabled")),
        "initial": "earliest" if initial == pulsar.InitialPosition.Earliest else "latest",
        "compacted": bool(given.get("is_read_compacted")) or None,
    }


def recorded_listener(
    listener: Callable[[Any, Any], None], receiving: Receiving, wrap: Callable[[Any, Receiving], Any]
) -> Callable[[Any, Any], None]:
    """The program's listener, called with a recorded consumer after the delivery was written down."""

    def listen(consumer: Any, message: Any) -> None:
        receiving.received(message)
        listener(wrap(consumer, receiving), message)

    return listen
