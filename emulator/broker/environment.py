"""The environment of a broker (time, randomness, network, store), and the interface of the region for its components.

The starting program passes the environment: `broker.main` a real one, the simulation its own. Monotonic time and timers
come from the running asyncio loop, which the simulation replaces as a whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from emulator.broker.authentication.refusals import RefusedAuthentications
from emulator.broker.components import SHIPPED, Components
from emulator.broker.connection.client_memory import ClientMemory
from emulator.broker.links.emulation import EmulatedLink
from emulator.broker.memory_budgets import MemoryBudget
from emulator.broker.protocol_events import ProtocolEvents
from emulator.broker.replication.entry_forms import ReplicatedEntryCache
from emulator.broker.subscription.blocked_snapshots import BlockedSnapshots
from emulator.broker.topic.entry_cache import EntryCachePool
from emulator.broker.topic.metrics import AccessFigures
from emulator.broker.topic.pending_publish import IssuedAppends
from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.region import RegionConfig
from emulator.net.http_connections import HttpConnections
from emulator.net.network import Network
from emulator.net.slow_senders import SlowSenders
from emulator.storage.configuration.contract import ConfigurationMedium
from emulator.storage.contract import Store

if TYPE_CHECKING:
    from emulator.broker.metadata.schemas import Schemas
    from emulator.broker.transactions.contract import TransactionAuthority


class ShiftedClock:
    """A wall clock in milliseconds since 1970 that can be set wrong (`geoemu skew`); timers are unaffected."""

    def __init__(
        self,
        base: Callable[[], int],
        ahead_ms: int = 0,
        drift_ppm: float = 0.0,
        set_at_ms: int | None = None,
    ) -> None:
        """`set_at_ms`: time of `base` at which the clock was `ahead_ms` ahead; None: now."""
        self._base = base
        self.set(ahead_ms, drift_ppm, set_at_ms)

    def set(self, ahead_ms: int, drift_ppm: float = 0.0, set_at_ms: int | None = None) -> None:
        """Set the offset to the machine's clock (negative: behind), and the microseconds that it gains per second."""
        self._set_ms = ahead_ms
        self.drift_ppm = drift_ppm
        self._set_at_ms = self._base() if set_at_ms is None else set_at_ms

    @property
    def ahead_ms(self) -> int:
        """Current offset to the machine's clock; negative: behind."""
        return self() - self._base()

    def __call__(self) -> int:
        now = self._base()
        if not self.drift_ppm:
            return now + self._set_ms
        return now + self._set_ms + round((now - self._set_at_ms) * self.drift_ppm / 1_000_000)


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one region."""

    wall_clock_ms: Callable[[], int]
    """This region's wall clock in ms; may be skewed and may jump. Only for time stamps and what is computed from them,
    such as retention, TTL, delivery times and the order of metadata events; timers use the loop."""
    random: random.Random
    network: Network
    """The network of clients and of the admin port, without TLS."""
    peer_network: Network
    """The network of links to other regions: emulated links in a real process, `network` in a simulation."""
    store: Store
    """The region's store, already open; the broker closes it."""
    configuration: ConfigurationMedium
    """Configuration store of the region's cluster, already open; the broker closes it."""
    client_link: EmulatedLink = field(
        default_factory=lambda: EmulatedLink(LinkShape(), LinkShape(), random.Random(0), clients=True)
    )
    """The link between the region and its clients."""
    components: Components = SHIPPED
    """The replaceable components of the broker."""
    tls_network: Network | None = None
    """The network of the ports with TLS. None: there are no such ports."""
    lose_power: Callable[[], None] | None = None
    """Ends the program as a power loss of its machine does: without what is not synced. None: not supported."""


class RegionResources:
    """The memory budgets, caches and counters that all topics and clients of a region share."""

    def __init__(self, region: str, settings: BrokerSettings) -> None:
        self.memory = MemoryBudget("region")
        """Memory of the region; all other budgets are below it."""
        self.clients = ClientMemory(self.memory, settings.clients_bytes_max or None)
        """Memory of connections; 0 bytes once all clients are disconnected (FC1)."""
        self.entry_caches = EntryCachePool(
            MemoryBudget("newest entries", self.memory, settings.region_tail_bytes)
        )
        """Memory for the newest entries of all topics."""
        self.forms = ReplicatedEntryCache(region, MemoryBudget("replicated forms", self.memory))
        """The newest entries that were sent to other regions, in their replicated form."""
        self.access_figures = AccessFigures()
        """Counters of exclusive producers, for metrics."""
        self.protocol_events = ProtocolEvents()
        """Counters of protocol events, for requests that wait for a count."""
        self.blocked_snapshots = BlockedSnapshots()
        self.refused_authentications = RefusedAuthentications()
        self.http_connections = HttpConnections(
            settings.http_connections_max, settings.http_connections_per_host_max
        )
        self.slow_senders = SlowSenders()
        self.appends = IssuedAppends()
        """What replicators with a backlog let pass."""


class PoliciesObserver(Protocol):
    """The region's housekeeper, as topics see it."""

    def policies_changed(self, topic_name: str) -> None:
        """React to a change of a topic's policies."""
        ...


class RegionServices(Protocol):
    """The region, as its topics, links and connections see it."""

    config: RegionConfig
    environment: Environment
    store: Store
    resources: RegionResources
    schemas: Schemas
    """The schemas of all topics of the cluster."""

    @property
    def housekeeper(self) -> PoliciesObserver: ...

    @property
    def coordinators(self) -> TransactionAuthority:
        """The region's coordinators, as transaction participants see them."""
        ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine that no caller awaits; it ends with the region."""
        ...

    def topic_failed(self, full_name: str, failure: BaseException) -> None:
        """Unload a topic after one of its writes failed, and load it again from the store; if the log is fenced, end
        the region."""
        ...

    def is_linked_from(self, region: str) -> bool:
        """Whether a connection is open that is authenticated as that region."""
        ...

    def links_changed(self) -> None:
        """React to a link to another region that connected or disconnected."""
        ...
