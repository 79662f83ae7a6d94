"""Limits of the connections of clients, and of the producers and consumers of one connection.

Reaching a limit is an error to the client that asks for more. Clients that are connected notice nothing, and other
regions do not count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Final, Literal, Protocol

from emulator.config.broker_settings import BrokerSettings
from emulator.errors import ProtocolError, ServerError
from emulator.net.addresses import in_url

HANDSHAKES_MIN: Final = 64


class ConnectionCounts:
    """The connections of clients that were admitted, in total and by the host of the client."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._max = settings.connections_max
        self._per_host_max = settings.connections_per_host_max
        self._by_host: Counter[str] = Counter()

    def admit(self, address: str) -> None:
        """Count the connection of a client at `host:port`. ProtocolError, which ends the connection, above a limit."""
        host = address.rpartition(":")[0]
        if 0 < self._max <= self._by_host.total():
            raise _refusal(f"Reached the maximum number of connections: {self._max}")
        if 0 < self._per_host_max <= self._by_host[host]:
            raise _refusal(f"Reached the maximum number of connections of {host}: {self._per_host_max}")
        self._by_host[host] += 1

    def release(self, address: str) -> None:
        """Stop counting an admitted connection."""
        host = address.rpartition(":")[0]
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def of_host(self, host: str) -> int:
        return self._by_host[in_url(host)]

    def __len__(self) -> int:
        return self._by_host.total()


class Handshake(Protocol):
    """A connection that is in its TLS handshake."""

    def abort(self) -> None: ...


class PendingHandshakes:
    """The connections in their TLS handshake, which count in the same limits as those that were admitted.

    Above a limit, the handshake that has lasted longest ends: of the same host, or for the limit of all hosts, of the
    host with the most. HANDSHAKES_MIN are always possible, for other regions, and for clients that then receive the
    error of the limit.
    """

    def __init__(self, settings: BrokerSettings, admitted: ConnectionCounts) -> None:
        self._max = settings.connections_max
        self._per_host_max = settings.connections_per_host_max
        self._admitted = admitted
        self._hosts: dict[Handshake, str] = {}
        self._by_host: defaultdict[str, dict[Handshake, None]] = defaultdict(dict)
        """Host -> its handshakes, the longest first."""

    def admit(self, handshake: Handshake, host: str) -> Literal[True]:
        """Count a handshake, and end others that exceed a limit with it."""
        self._hosts[handshake] = host
        self._by_host[host][handshake] = None
        per_host_max = max(self._per_host_max - self._admitted.of_host(host), HANDSHAKES_MIN)
        if self._per_host_max > 0 and len(self._by_host[host]) > per_host_max:
            self._end_longest(host)
        if self._max > 0 and len(self) > max(self._max - len(self._admitted), HANDSHAKES_MIN):
            self._end_longest(max(self._by_host, key=lambda one: len(self._by_host[one])))
        return True

    def _end_longest(self, host: str) -> None:
        longest = next(iter(self._by_host[host]))
        self.release(longest)
        longest.abort()

    def release(self, handshake: Handshake) -> None:
        """Stop counting a handshake. A second call has no effect."""
        host = self._hosts.pop(handshake, None)
        if host is not None:
            del self._by_host[host][handshake]
            if not self._by_host[host]:
                del self._by_host[host]

    def __len__(self) -> int:
        return len(self._hosts)


def _refusal(sentence: str) -> ProtocolError:
    return ProtocolError(ServerError.NotAllowedError, sentence, closes_connection=True)


def check_count(kind: str, number: int, present: Collection[Collection[int]], count_max: int) -> None:
    """Raise ProtocolError if producer or consumer `number` would exceed the limit of its connection. `present`: ids of
    those that are open or being opened; an id that occurs several times counts once."""
    if 0 < count_max <= sum(map(len, present)) and len(set().union(*present) - {number}) >= count_max:
        raise ProtocolError(
            ServerError.NotAllowedError,
            f"Reached the maximum number of {kind} of one connection: {count_max}",
        )
