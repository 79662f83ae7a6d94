"""Rejects requests of other web sites to an HTTP server: Host, and Origin if present, must name this server.

A browser lets any page send requests to any address, but it sends the page's origin (Origin) and the address that the
page uses (Host). Host reveals a page that points its own name at this server's address (DNS rebinding); Origin reveals
a form or script of another site.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from emulator.net.addresses import is_loopback, is_wildcard
from emulator.net.http_server import HttpError, RequestHead

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_AUTHORITY = re.compile(r"(?:\[(?P<address>[^\[\]\s,]*)\]|(?P<name>[^\[\]\s,:/@]*))(?::\d*)?")


class HostGuard:
    """Checks requests against the host names of one server."""

    def __init__(
        self, server: str, names: Iterable[str] = (), *, remedy: str = "", guards_reads: bool = False
    ) -> None:
        """`server`: its name in error messages. `remedy`: what a user can do about a rejected Host, with a leading
        separator. `guards_reads`: also check requests that change nothing."""
        self._server = server
        self._names = frozenset(name.lower() for name in names if name and not is_wildcard(name))
        self._remedy = remedy
        self._guards_reads = guards_reads

    def check(self, head: RequestHead) -> None:
        """Raise HttpError for a guarded request whose Host (421) or Origin (403) is not this server."""
        if head.method in SAFE_METHODS and not self._guards_reads:
            return
        host, guarded = host_in(head.host), "requests" if self._guards_reads else "changes"
        if not self._is_this_server(host, head.local_address):
            raise HttpError(
                421,
                f"Host {head.host!r} is not a name of {self._server}, which accepts {guarded} addressed to "
                f"{self._accepted_names(head.local_address)}{self._remedy}",
            )
        origin = head.headers.get("origin")
        if origin is not None and not self._is_this_server(
            host_in(origin.partition("://")[2]), head.local_address
        ):
            raise HttpError(
                403,
                f"a web page of {origin!r} may not change anything in {self._server}: allowed origins are "
                f"{self._accepted_names(head.local_address)}",
            )

    def _accepted_names(self, local_address: str) -> str:
        return ", ".join(sorted({*self._names, "localhost", local_address} - {""}))

    def _is_this_server(self, host: str, local_address: str) -> bool:
        """Whether a host is one of the server's names, loopback, or `local_address`: an address and not a name, so no
        other site can point it at this server."""
        return host in self._names or is_loopback(host) or (host != "" and host == local_address)


def host_in(authority: str) -> str:
    """Return the host of `host`, `host:port` or `[address]:port`, in lower case; empty for any other text."""
    found = _AUTHORITY.fullmatch(authority.strip().lower())
    return (found["address"] or found["name"] or "").removesuffix(".") if found else ""
