"""The open connections of an HTTP server, in total and by host, with limits.

Above a limit, the connection that has waited longest for a request makes room for the new one: of the same host, or for
the limit of all hosts, of the host with the most connections. So clients that open connections without requests (slow
loris, connections left open) displace their own, and requests of other clients are served. Only while all of them
execute requests is a new connection refused.

The bytes of bodies and unread responses are bounded for all connections together: above the bound, the waiting
connections that have held theirs longest are closed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final, Protocol

from emulator.net.slow_senders import SlowSenders

HELD_BYTES_MAX: Final = 67_108_864


class WaitingConnection(Protocol):
    """A connection that waits for a request."""

    def abort(self) -> None: ...


class HttpConnections:
    """The connections of one server. Hosts without connections use no memory."""

    def __init__(self, count_max: int = 0, per_host_max: int = 0) -> None:
        """0: unlimited."""
        self._count_max = count_max
        self._per_host_max = per_host_max
        self._hosts: dict[WaitingConnection, str] = {}
        self._by_host: Counter[str] = Counter()
        self._waiting: defaultdict[str, dict[WaitingConnection, None]] = defaultdict(dict)
        """Host -> its connections that wait for a request, the longest wait first."""
        self._held: dict[WaitingConnection, int] = {}
        """Connection -> bytes of its request's body, or of its response that are not sent; the oldest first."""
        self.held_bytes = 0
        """Invariant: the sum of `_held`."""
        self.displaced = 0
        """Number of connections that were closed to make room."""
        self.refused = 0
        self.slow_senders = SlowSenders()

    def admit(self, connection: WaitingConnection, host: str) -> bool:
        """Count a new connection, which waits for a request. Return False, without counting it, if it is refused."""
        if not self._make_room(host):
            self.refused += 1
            return False
        self._hosts[connection] = host
        self._by_host[host] += 1
        self._waiting[host][connection] = None
        return True

    def _make_room(self, host: str) -> bool:
        if 0 < self._per_host_max <= self._by_host[host] and not self._displace(host):
            return False
        if 0 < self._count_max <= len(self):
            most = max(self._waiting, key=lambda one: self._by_host[one], default="")
            return self._displace(most)
        return True

    def _displace(self, host: str) -> bool:
        """Close the connection of a host that has waited longest. Return False if none waits."""
        longest = next(iter(self._waiting.get(host, ())), None)
        if longest is None:
            return False
        self._close(longest)
        return True

    def _close(self, connection: WaitingConnection) -> None:
        self.release(connection)
        self.displaced += 1
        connection.abort()

    def hold(self, connection: WaitingConnection, size_bytes: int) -> None:
        """Set the bytes that are held for a connection, for which others may be closed, not itself. No effect for one
        that is not counted."""
        if connection not in self._hosts:
            return
        self.held_bytes += size_bytes - self._held.get(connection, 0)
        if size_bytes:
            self._held[connection] = size_bytes
        else:
            self._held.pop(connection, None)
        for oldest in list(self._held) if self.held_bytes > HELD_BYTES_MAX else ():
            if self.held_bytes <= HELD_BYTES_MAX:
                break
            if oldest is not connection and oldest in self._waiting.get(self._hosts[oldest], ()):
                self._close(oldest)

    def executes(self, connection: WaitingConnection) -> None:
        """Record that a connection executes a request. No effect for one that is not counted."""
        host = self._hosts.get(connection)
        if host is not None:
            self._end_wait(host, connection)

    def waits(self, connection: WaitingConnection) -> None:
        """Record that a connection waits for the next request. No effect for one that is not counted."""
        host = self._hosts.get(connection)
        if host is not None:
            self._waiting[host][connection] = None

    def release(self, connection: WaitingConnection) -> None:
        """Stop counting a connection. A second call has no effect."""
        host = self._hosts.pop(connection, None)
        if host is None:
            return
        self.held_bytes -= self._held.pop(connection, 0)
        self._end_wait(host, connection)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _end_wait(self, host: str, connection: WaitingConnection) -> None:
        waiting = self._waiting.get(host)
        if waiting is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[host]

    def __len__(self) -> int:
        return len(self._hosts)
