"""Limits of the connections of clients, and of the producers and consumers of one connection.

Reaching a limit is an error to the client that asks for more. Clients that are connected notice nothing, and other
regions do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from emulator.config.broker_settings import BrokerSettings
from emulator.errors import ProtocolError, ServerError


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

    def __len__(self) -> int:
        return self._by_host.total()


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
