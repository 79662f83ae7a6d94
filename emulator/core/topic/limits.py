"""How many may use a topic at once. What is refused is refused with Pulsar's codes, so that clients know whether to try
again."""

from __future__ import annotations

from typing import Final, NamedTuple

from emulator.errors import ProtocolError, ServerError


class Caps(NamedTuple):
    """0: any number."""

    producers: int = 0
    consumers: int = 0
    consumers_per_subscription: int = 0
    subscriptions: int = 0

    def check_producers(self, present: int, topic: str) -> None:
        """ProtocolError when one more is too many; so do the others."""
        if 0 < self.producers <= present:
            raise ProtocolError(
                ServerError.ProducerBusy, f"Topic {topic!r} reached max producers limit: {self.producers}"
            )

    def check_consumers(self, of_topic: int, of_subscription: int, topic: str) -> None:
        if 0 < self.consumers <= of_topic:
            raise ProtocolError(
                ServerError.ConsumerBusy, f"Topic {topic!r} reached max consumers limit: {self.consumers}"
            )
        if 0 < self.consumers_per_subscription <= of_subscription:
            raise ProtocolError(
                ServerError.ConsumerBusy,
                f"Subscription reached max consumers limit: {self.consumers_per_subscription}",
            )

    def check_subscriptions(self, present: int, topic: str) -> None:
        if 0 < self.subscriptions <= present:
            raise ProtocolError(
                ServerError.NotAllowedError,
                f"Exceed the maximum number of subscriptions of the topic: {topic} ({self.subscriptions})",
            )


NO_CAPS: Final = Caps()
