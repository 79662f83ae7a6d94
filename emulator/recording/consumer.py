"""A consumer and a reader of `pulsar.Client` whose deliveries are written down."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pulsar  # type: ignore[import-untyped]

from emulator.model.values import TopicName
from emulator.recording.context import ClientLocation, Delegate
from emulator.recording.journal import ActorJournal
from emulator.recording.responses import message_id_text
from emulator.run.history_events import Outcome, payload_digest


class RecordedConsumer(Delegate):
    """Like `pulsar.Consumer`."""

    def __init__(self, inner: Any, receiving: Receiving) -> None:
        super().__init__(inner)
        self._receiving = receiving

    def receive(self, *args: Any, **named: Any) -> Any:
        message = self._inner.receive(*args, **named)
        self._receiving.received(message)
        return message

    def batch_receive(self) -> Any:
        messages = self._inner.batch_receive()
        for message in messages:
            self._receiving.received(message)
        return messages

    def acknowledge(self, message: Any) -> None:
        self._acknowledge(self._inner.acknowledge, message, "individual")

    def acknowledge_cumulative(self, message: Any) -> None:
        self._acknowledge(self._inner.acknowledge_cumulative, message, "cumulative")

    def _acknowledge(self, acknowledge: Any, message: Any, how: str) -> None:
        self._receiving.acknowledging(message, how)
        try:
            acknowledge(message)
        except pulsar.PulsarException as refusal:
            self._receiving.acknowledging(message, how, "unknown", error=str(refusal))
            raise

    def negative_acknowledge(self, message: Any) -> None:
        self._receiving.redelivering(message)
        self._inner.negative_acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        self._receiving.redelivering()
        self._inner.redeliver_unacknowledged_messages()

    def seek(self, messageid: Any) -> None:
        self._move("seek", lambda: self._inner.seek(messageid), **seek_target(messageid))

    def unsubscribe(self) -> None:
        self._move("unsubscribe", self._inner.unsubscribe)

    def _move(self, op: str, do: Any, **told: Any) -> None:
        self._receiving.moving(op, "asked", **told)
        try:
            do()
        except pulsar.PulsarException as refusal:
            self._receiving.moving(op, "unknown", error=str(refusal), **told)
            raise
        self._receiving.moving(op, "ok", **told)


class RecordedReader(Delegate):
    """Like `pulsar.Reader`."""

    def __init__(self, inner: Any, receiving: Receiving) -> None:
        super().__init__(inner)
        self._receiving = receiving

    def read_next(self, *args: Any, **named: Any) -> Any:
        message = self._inner.read_next(*args, **named)
        self._receiving.received(message)
        return message


_PARTITION = re.compile(r"-partition-\d+$")


class Receiving:
    """The history of one subscriber, or of one reader."""

    def __init__(
        self,
        journal: ActorJournal,
        whereabouts: ClientLocation,
        topics: Iterable[str],
        subscription: str | None,
    ) -> None:
        """`topics`: as the program calls them; none when they are found by a pattern. `subscription` None: a reader."""
        self.journal = journal
        self._whereabouts = whereabouts
        self._topics = {_full(topic): topic for topic in topics}
        self._only = next(iter(self._topics.values())) if len(self._topics) == 1 else None
        self._subscription = subscription
        self._told: dict[str, Any] | None = None
        self._topic_of_message: dict[str, str] = {}
        """Of several topics: where each message came from that was not acknowledged yet."""

    def subscribing(self, outcome: Outcome, **told: Any) -> None:
        """Record the outcome of a subscribe request; `told`: further fields of its lines."""
        if outcome == "ok":
            self._told = told
        for topic in self._topics.values():
            self._write("subscribe", outcome, topic, **told)

    def received(self, message: Any) -> None:
        """Record a message before the program receives it."""
        elsewhere = self._whereabouts.moved_to()
        if elsewhere is not None:
            self.journal.give_up(f"its client switched to {elsewhere} by itself")
            return
        topic, place = self._topic_of(message), message_id_text(message.message_id())
        said = {
            "message_id": place,
            "payload_digest": _digest(message),
        }
        self._write("read" if self._subscription is None else "receive", "ok", topic, **said)
        if self._only is None and place is not None:
            self._topic_of_message[place] = topic

    def acknowledging(self, message: Any, how: str, outcome: Outcome = "asked", **told: Any) -> None:
        """Record an acknowledgement. On success only `asked` is recorded: the client returns before the region has
        received it."""
        place = message_id_text(_message_id(message))
        topic = self._topic_of(message)
        self._write("acknowledge", outcome, topic, message_id=place, how=how, **told)
        if outcome == "asked" and how == "individual":
            self._topic_of_message.pop(place or "", None)

    def redelivering(self, message: Any = None) -> None:
        """Note that the program requests the redelivery of a message, or of all unacknowledged ones."""
        if message is not None:
            place = message_id_text(_message_id(message))
            self._write("redeliver", "asked", self._topic_of(message), message_id=place)
        else:
            for topic in self._topics.values():
                self._write("redeliver", "asked", topic)

    def moving(self, op: str, outcome: Outcome, **told: Any) -> None:
        """A seek or an unsubscribe."""
        for topic in self._topics.values():
            self._write(op, outcome, topic, **told)

    def _topic_of(self, message: Any) -> str:
        if self._only is not None:
            return self._only
        name = message.topic_name() if hasattr(message, "message_id") else ""
        if not name:
            place = message_id_text(_message_id(message))
            return self._topic_of_message.get(place or "", next(iter(self._topics.values()), ""))
        whole = _PARTITION.sub("", name)
        known = self._topics.get(whole) or self._topics.get(name)
        return known or self._found(whole)

    def _found(self, topic: str) -> str:
        """A topic that fits the program's pattern."""
        self._topics[topic] = topic
        if self._told is not None:
            self._write("subscribe", "ok", topic, **self._told)
        return topic

    def _write(self, op: str, outcome: Outcome, topic: str, **told: Any) -> None:
        place = {"region": self._whereabouts.region, "topic": topic, "subscription": self._subscription}
        self.journal.write(op, outcome, **place, **told)


def seek_target(target: Any) -> dict[str, str | None]:
    """Return the fields of a seek target in the history: a message id, or a time."""
    if isinstance(target, int):
        return {"detail": f"to publish time {target} ms"}
    place = message_id_text(target)
    return {"message_id": place} if place else {"detail": "to the beginning or the end"}


def _full(topic: str) -> str:
    with suppress(ValueError):
        return str(TopicName.parse(topic))
    return topic


def _message_id(message: Any) -> Any:
    """Of a message, or a message id itself."""
    return message.message_id() if hasattr(message, "message_id") else message


def _digest(message: Any) -> str | None:
    tell = getattr(message, "encryption_context", None)
    context = tell() if tell else None
    if context is not None and context.is_decryption_failed():
        return None  # the program receives the encrypted payload, not the published one
    return payload_digest(message.data())
