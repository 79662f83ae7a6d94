"""The application of changed policies to loaded topics, in steps between which the region serves its clients."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from emulator.core.policies.topic_policies import TopicPolicies
from emulator.model.values import TopicName

OBJECTS_PER_STEP: Final = 50
"""Number of topics, subscriptions and producers to visit in one iteration of the event loop when policies change. The
last topic may exceed it, since a topic is applied at once. Each object takes up to about 20 µs."""


class PolicyFollower(Protocol):
    """A loaded topic, to which policies are applied."""

    @property
    def name(self) -> TopicName: ...
    @property
    def policies(self) -> TopicPolicies:
        """The policies that were applied last."""
        ...

    def apply(self, old: TopicPolicies | None, new: TopicPolicies) -> int:
        """Apply the policies `new`; `old` is None for the first ones. Return the number of visited objects, at least
        1."""
        ...


class PolicyRollout:
    """Applies changed policies to loaded topics: about OBJECTS_PER_STEP objects per iteration of the event loop.

    The policies of a topic are resolved when the topic is visited, so the latest change applies. Topics that are not in
    `_pending` have the current policies, unless `apply` failed.
    """

    def __init__(self, resolve: Callable[[TopicName], TopicPolicies]) -> None:
        self._resolve = resolve
        self._pending: OrderedDict[PolicyFollower, None] = OrderedDict()
        self._budget = OBJECTS_PER_STEP
        """Number of objects that may still be visited in this iteration of the loop."""
        self._refill: asyncio.Handle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self, topics: Iterable[PolicyFollower]) -> None:
        """Apply changed policies to these topics: now as far as the budget of this iteration allows, then in steps."""
        self._pending.update(dict.fromkeys(topics))
        if self._pending:
            self._idle.clear()
            self._apply_pending()

    def discard(self, topic: PolicyFollower) -> None:
        self._pending.pop(topic, None)

    async def finished(self) -> None:
        """Wait until no topic is pending."""
        await self._idle.wait()

    def _apply_pending(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending and self._budget > 0:
            topic, _ = self._pending.popitem(last=False)
            try:
                self._budget -= topic.apply(topic.policies, self._resolve(topic.name))
            except Exception as problem:  # any: the other topics must still get their policies
                self._budget -= 1
                message = f"policies of {topic.name} could not be applied"
                loop.call_exception_handler({"message": message, "exception": problem})
        if self._budget < OBJECTS_PER_STEP and self._refill is None:
            self._refill = loop.call_soon(self._continue)
        if not self._pending:
            self._idle.set()

    def _continue(self) -> None:
        self._refill, self._budget = None, OBJECTS_PER_STEP
        self._apply_pending()
