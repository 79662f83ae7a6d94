"""What a broker does not own (time, chance, the network, its store), and what its parts may ask of the region.

Whoever starts a broker hands these over; `broker.main` gives real ones, the simulation its own. Monotonic time and
timers come from the running asyncio loop, which the simulation replaces as a whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from emulator.broker.components import SHIPPED, Components
from emulator.config.region import RegionConfig
from emulator.net.network import Network
from emulator.storage.configuration.contract import ConfigurationMedium
from emulator.storage.contract import Store

if TYPE_CHECKING:
    from emulator.broker.metadata.schemas import Schemas
    from emulator.broker.replication.entry_forms import ReplicatedEntryCache
    from emulator.broker.topic.entry_cache import TailPool
    from emulator.broker.topic.metrics import AccessFigures
    from emulator.broker.transactions.contract import TransactionAuthority


class ShiftedClock:
    """A wall clock in milliseconds since 1970 that can be set wrong (`geoemu skew`); timers are unaffected."""

    def __init__(self, base: Callable[[], int], ahead_ms: int = 0) -> None:
        self._base = base
        self.ahead_ms = ahead_ms
        """How far it is ahead of the machine's; behind if negative."""

    def __call__(self) -> int:
        return self._base() + self.ahead_ms


@dataclass(frozen=True, slots=True)
class Environment:
    """The world as one region sees it."""

    wall_clock_ms: Callable[[], int]
    """This region's idea of the time; may be skewed and may jump. Only for stamps that people read."""
    random: random.Random
    network: Network
    """For clients and the admin port."""
    peer_network: Network
    """For links to other regions: shaped in a real process, the same as `network` in a simulation."""
    store: Store
    """Opened; the broker closes it."""
    configuration: ConfigurationMedium
    """Of the region's cluster; opened; the broker closes it."""
    components: Components = SHIPPED
    """What the broker is assembled from."""


class PoliciesObserver(Protocol):
    """The region's housekeeper, as topics see it."""

    def policies_changed(self, topic_name: str) -> None:
        """A topic follows other policies."""
        ...


class RegionServices(Protocol):
    """What topics, links and connections may ask of the region they belong to. They know no more of it."""

    config: RegionConfig
    environment: Environment
    store: Store
    tails: TailPool
    """Memory for the newest entries of all topics."""
    forms: ReplicatedEntryCache
    """What was sent to other regions last."""
    access_figures: AccessFigures
    """Of exclusive producers, for metrics."""
    schemas: Schemas
    """Of all topics of the cluster."""

    @property
    def housekeeper(self) -> PoliciesObserver: ...

    @property
    def transactions(self) -> TransactionAuthority:
        """Its coordinators, as those see them who take part in transactions."""
        ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run work that nobody waits for; it ends with the region."""
        ...

    def topic_failed(self, full_name: str, failure: BaseException) -> None:
        """The store did not keep something of a topic: load it again from what the store really has."""
        ...

    def is_linked_from(self, region: str) -> bool:
        """Whether a connection is open that was proven to come from that region."""
        ...

    def links_changed(self) -> None:
        """A link to another region came up or went down."""
        ...
