"""A consumer and a reader of `pulsar.Client` whose deliveries are written down."""

from __future__ import annotations

from typing import Any

import pulsar  # type: ignore[import-untyped]

from emulator.recording.delegate import Delegate
from emulator.recording.receiving import Receiving, seek_target


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
