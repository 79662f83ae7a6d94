"""One consumer of a subscription, and what its connection must be able to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.core.cursor import Cursor
from emulator.core.dispatch import ConsumerState, Dispatcher, SubscriptionType

if TYPE_CHECKING:
    from emulator.broker.topic.view import SubscriptionHost


class SubscriptionOfConsumer(Protocol):
    """A subscription, as the connections of its consumers see it. How each is done stands in `Subscription`."""

    @property
    def topic(self) -> SubscriptionHost: ...
    @property
    def name(self) -> str: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def dispatcher(self) -> Dispatcher: ...
    @property
    def consumers(self) -> Mapping[ConsumerState, Consumer]: ...

    def attach(self, consumer: Consumer, type_: SubscriptionType) -> None: ...

    def detach(self, consumer: Consumer) -> None: ...

    def close_consumers(self) -> None: ...

    def flow(self, consumer: Consumer, permits: int) -> None: ...

    def set_blocked(self, consumer: Consumer, *, blocked: bool) -> None: ...

    def acknowledge(
        self, consumer: Consumer, ids: Sequence[tuple[int, int, tuple[int, ...] | None]], *, cumulative: bool
    ) -> None: ...

    def redeliver(
        self, consumer: Consumer, ids: Sequence[tuple[int, int]] | None, epoch: int | None
    ) -> None: ...

    def backlog(self) -> int: ...

    async def seek(self, next_entry_id: int) -> None: ...

    async def persisted(self) -> None: ...

    async def flush(self) -> None: ...

    async def delete(self) -> None: ...


class ConsumerConnection(Protocol):
    """A client's connection, as its consumers see it."""

    address: str
    client_version: str

    def write(self, data: bytes) -> None: ...

    def send_active_consumer_change(self, consumer_id: int, is_active: bool) -> None: ...

    def close_consumer(self, consumer: Consumer) -> None: ...

    def forget_consumer(self, consumer: Consumer) -> None: ...

    async def is_alive(self) -> bool: ...

    def abort(self) -> None: ...


class Consumer:
    """One consumer on one connection."""

    def __init__(
        self,
        connection: ConsumerConnection,
        consumer_id: int,
        subscription: SubscriptionOfConsumer,
        state: ConsumerState,
        epoch: int | None,
    ) -> None:
        self.connection = connection
        self.consumer_id = consumer_id
        self.subscription = subscription
        self.state = state
        self.metadata: dict[str, str] = {}
        """What the client says about its consumer; shown in stats."""
        self.epoch = epoch
        """Told by the client; MESSAGEs carry it so that it can drop older ones after a redelivery."""
