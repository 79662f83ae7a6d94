"""Recording wrappers of the consumer and the reader of `pulsar.Client`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from emulator.model.values import TopicName
from emulator.recording.context import NON_PERSISTENT_PREFIX, ClientLocation, Delegate
from emulator.recording.journal import ActorJournal
from emulator.recording.responses import message_id_text, recording_error
from emulator.run.history_events import Outcome, payload_digest


class RecordedConsumer(Delegate):
    """Wraps `pulsar.Consumer` and records its operations."""

    def __init__(self, inner: Any, recorder: ReceiveRecorder) -> None:
        super().__init__(inner)
        self._recorder = recorder

    def receive(self, *args: Any, **named: Any) -> Any:
        return self._recorder.record_delivery(self._inner.receive(*args, **named))

    def batch_receive(self) -> Any:
        messages = self._inner.batch_receive()
        for message in messages:
            self._recorder.record_delivery(message)
        return messages

    def acknowledge(self, message: Any) -> None:
        with self._recorder.record_acknowledge(message, "individual"):
            self._inner.acknowledge(message)

    def acknowledge_cumulative(self, message: Any) -> None:
        with self._recorder.record_acknowledge(message, "cumulative"):
            self._inner.acknowledge_cumulative(message)

    def negative_acknowledge(self, message: Any) -> None:
        self._recorder.record_redeliver(message)
        self._inner.negative_acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        self._recorder.record_redeliver()
        self._inner.redeliver_unacknowledged_messages()

    def seek(self, messageid: Any) -> None:
        with self._recorder.record_seek(messageid):
            self._inner.seek(messageid)

    def unsubscribe(self) -> None:
        with self._recorder.record_request("unsubscribe"):
            self._inner.unsubscribe()


class RecordedReader(Delegate):
    """Wraps `pulsar.Reader` and records its deliveries."""

    def __init__(self, inner: Any, recorder: ReceiveRecorder) -> None:
        super().__init__(inner)
        self._recorder = recorder

    def read_next(self, *args: Any, **named: Any) -> Any:
        return self._recorder.record_delivery(self._inner.read_next(*args, **named))


_PARTITION = re.compile(r"-partition-\d+$")


class ReceiveRecorder:
    """Records the operations of one consumer or reader on its persistent topics."""

    def __init__(
        self,
        journal: ActorJournal,
        location: ClientLocation,
        topics: Iterable[str],
        subscription: str | None,
    ) -> None:
        """`topics` are the names that the program uses; empty for a pattern. `subscription` None: a reader."""
        self.journal = journal
        self._location = location
        self._topics = {_full_name(topic): topic for topic in topics}
        self._single_topic = next(iter(self._topics.values())) if len(self._topics) == 1 else None
        self._subscription = subscription
        self._subscribed: dict[str, Any] | None = None
        self._topic_of_message: dict[str, str] = {}
        """Topic of each message, by message id, until it is acknowledged individually. Used only with several
        topics."""

    @contextmanager
    def record_subscribe(self, **fields: Any) -> Iterator[None]:
        """Record a subscribe request and its outcome, both with these fields."""
        with self.record_request("subscribe", **fields):
            yield
        self._subscribed = fields

    def record_delivery(self, message: Any) -> Any:
        """Record a delivery and return the message. If the client has switched its service URL, end the recording."""
        new_url = self._location.switched_url()
        if new_url is not None:
            self.journal.stop_recording(f"its client switched to {new_url} by itself")
            return message
        topic, message_id = self._topic_of(message), message_id_text(message.message_id())
        op = "read" if self._subscription is None else "receive"
        self._write(op, "ok", topic, message_id=message_id, payload_digest=_digest(message))
        if self._single_topic is None and message_id is not None:
            self._topic_of_message[message_id] = topic
        return message

    @contextmanager
    def record_acknowledge(self, message: Any, how: str) -> Iterator[None]:
        """Record an acknowledgement, and an error of the client's call. Success is not recorded, because the call
        returns before the region has received the acknowledgement."""
        message_id, topic = message_id_text(_message_id(message)), self._topic_of(message)
        if how == "individual":
            self._topic_of_message.pop(message_id or "", None)
        line: dict[str, Any] = {"message_id": message_id, "how": how}
        self._write("acknowledge", "asked", topic, **line)
        with recording_error(lambda error: self._write("acknowledge", "unknown", topic, error=error, **line)):
            yield

    def record_redeliver(self, message: Any = None) -> None:
        """Record that the program requests the redelivery of a message, or of all unacknowledged messages."""
        if message is not None:
            message_id = message_id_text(_message_id(message))
            self._write("redeliver", "asked", self._topic_of(message), message_id=message_id)
        else:
            self._write_each("redeliver", "asked")

    def record_seek(self, target: Any) -> AbstractContextManager[None]:
        """Record a seek to a message id or a time, and its outcome."""
        if isinstance(target, int):
            return self.record_request("seek", detail=f"to publish time {target} ms")
        message_id = message_id_text(target)
        return self.record_request(
            "seek", message_id=message_id, detail=None if message_id else "to the beginning or the end"
        )

    @contextmanager
    def record_request(self, op: str, **fields: Any) -> Iterator[None]:
        """Record a request before it is passed to the client, and its outcome."""
        self._write_each(op, "asked", **fields)
        with recording_error(lambda error: self._write_each(op, "unknown", error=error, **fields)):
            yield
        self._write_each(op, "ok", **fields)

    def _write_each(self, op: str, outcome: Outcome, **fields: Any) -> None:
        for topic in self._topics.values():
            self._write(op, outcome, topic, **fields)

    def _topic_of(self, message: Any) -> str:
        if self._single_topic is not None:
            return self._single_topic
        name = message.topic_name() if hasattr(message, "message_id") else ""
        if not name:
            message_id = message_id_text(_message_id(message))
            return self._topic_of_message.get(message_id or "", next(iter(self._topics.values()), ""))
        whole = _PARTITION.sub("", name)
        known = self._topics.get(whole) or self._topics.get(name)
        return known or self._add_matched_topic(whole)

    def _add_matched_topic(self, topic: str) -> str:
        """Add a topic that matches the program's pattern, record its subscription, and return it."""
        self._topics[topic] = topic
        if self._subscribed is not None:
            self._write("subscribe", "ok", topic, **self._subscribed)
        return topic

    def _write(self, op: str, outcome: Outcome, topic: str, **fields: Any) -> None:
        if topic.startswith(NON_PERSISTENT_PREFIX):
            return
        location = {"region": self._location.region, "topic": topic, "subscription": self._subscription}
        self.journal.write(op, outcome, **location, **fields)


def _full_name(topic: str) -> str:
    with suppress(ValueError):
        return str(TopicName.parse(topic))
    return topic


def _message_id(message: Any) -> Any:
    """Return the message id of a message; a message id is returned unchanged."""
    return message.message_id() if hasattr(message, "message_id") else message


def _digest(message: Any) -> str | None:
    get_context = getattr(message, "encryption_context", None)
    context = get_context() if get_context else None
    if context is not None and context.is_decryption_failed():
        return None  # the program receives the encrypted payload, not the published one
    return payload_digest(message.data())
