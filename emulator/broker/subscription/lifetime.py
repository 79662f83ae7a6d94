"""The end of a subscription: by UNSUBSCRIBE, or because a non-durable one lost its last consumer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from emulator.errors import StorageError

if TYPE_CHECKING:
    from emulator.broker.subscription.consumer import SubscriptionView

RETURN_SECONDS = 60.0
"""Time for which a non-durable subscription is kept after a seek until its reader reconnects."""


class SubscriptionLifetime:
    """Ends one subscription, which owns this object."""

    def __init__(self, subscription: SubscriptionView) -> None:
        self._subscription = subscription
        self._return_timer: asyncio.TimerHandle | None = None
        """Timer that ends a non-durable subscription unless the reader that a seek disconnected reconnects."""
        self._ended = asyncio.Event()
        self._deletion: asyncio.Future[None] | None = None
        """Result of the deletion; None: the subscription is not being deleted."""

    def expect_return(self) -> None:
        """Keep a non-durable subscription for RETURN_SECONDS for the reader that a seek disconnects: the new position
        must survive."""
        subscription = self._subscription
        if not subscription.durable and not subscription.closed:
            self._cancel_return_timer()
            self._return_timer = asyncio.get_running_loop().call_later(RETURN_SECONDS, self.stop_waiting)

    def stop_waiting(self) -> None:
        """End the wait for a reader, because a consumer has connected or the time is over. In the second case the
        subscription ends."""
        if self._return_timer is not None:
            self._cancel_return_timer()
            self.end_if_abandoned()

    def end_if_abandoned(self) -> None:
        """End a non-durable subscription that has no consumer, unless it waits for its reader."""
        subscription = self._subscription
        if (
            not subscription.durable
            and not subscription.consumers
            and self._return_timer is None
            and not subscription.closed
        ):
            subscription.close()
            subscription.topic.subscriptions.remove(subscription.name)

    def _cancel_return_timer(self) -> None:
        if self._return_timer is not None:
            self._return_timer.cancel()
            self._return_timer = None

    async def delete(self) -> None:
        """Delete the subscription for good: see `Subscription.delete`."""
        if self._deletion is None:
            self._deletion = asyncio.get_running_loop().create_future()
            self._deletion.add_done_callback(lambda done: done.exception())
            self._subscription.close()
            self._subscription.topic.region.spawn(self._delete(self._deletion))
        await asyncio.shield(self._deletion)

    async def _delete(self, outcome: asyncio.Future[None]) -> None:
        subscription = self._subscription
        try:
            await subscription.settled()
            if subscription.durable:
                await subscription.delete_stored()
            subscription.topic.subscriptions.remove(subscription.name)
            outcome.set_result(None)
        except StorageError as failure:
            subscription.topic.failed(failure)
            outcome.set_exception(failure)
        except BaseException as failure:
            subscription.topic.failed(failure)
            sentence = f"the deletion of subscription {subscription.name} was interrupted: {failure!r}"
            outcome.set_exception(StorageError(sentence, definite=False))
            raise
        finally:
            self._ended.set()

    async def ended(self) -> None:
        """Wait until the subscription is closed, and its deletion, if any, has succeeded or failed."""
        await self._ended.wait()

    def close(self) -> None:
        """Stop waiting for a reader. A deletion continues."""
        self._cancel_return_timer()
        if self._deletion is None:
            self._ended.set()
