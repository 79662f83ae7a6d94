"""What went in or out somewhere: counted by groups of entries, and how fast that is."""

from __future__ import annotations

from emulator.core.flow.meters import Rate


class Traffic:
    """Of a topic, a producer, a subscription or a consumer; since it is in memory."""

    __slots__ = ("_byte_rate", "_message_rate", "bytes", "messages")

    def __init__(self, now_seconds: float) -> None:
        self.messages = 0
        self.bytes = 0
        self._message_rate = Rate(now_seconds)
        self._byte_rate = Rate(now_seconds)

    def add(self, messages: int, bytes_: int) -> None:
        self.messages += messages
        self.bytes += bytes_

    def message_rate(self, now_seconds: float) -> float:
        """Messages per second."""
        return self._message_rate.per_second(self.messages, now_seconds)

    def byte_rate(self, now_seconds: float) -> float:
        """Bytes per second."""
        return self._byte_rate.per_second(self.bytes, now_seconds)
