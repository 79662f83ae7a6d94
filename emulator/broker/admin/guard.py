"""Rejects changing requests of other web sites: Host, and Origin if present, must name this region.

A browser lets any page send requests to any address, but it sends the page's origin (Origin) and the address that the
page uses (Host). Host reveals a page that points its own name at this region's address (DNS rebinding); Origin reveals
a form or script of another site.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from emulator.broker.admin.http import HttpError, RequestHead
from emulator.config.region import RegionConfig
from emulator.net.addresses import is_loopback, is_wildcard

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_AUTHORITY = re.compile(r"(?:\[(?P<address>[^\[\]\s,]*)\]|(?P<name>[^\[\]\s,:/@]*))(?::\d*)?")


class AdminGuard:
    """Checks requests against the host names of one region."""

    def __init__(self, region: str, names: Iterable[str]) -> None:
        self._region = region
        self._names = frozenset(name.lower() for name in names if name and not is_wildcard(name))

    @classmethod
    def of(cls, config: RegionConfig) -> AdminGuard:
        names = (config.advertised_host, config.bind_host, config.internal_host, *config.admin_hosts)
        return cls(config.region, names)

    def check(self, head: RequestHead) -> None:
        """Raise HttpError for a changing request whose Host (421) or Origin (403) is not this region."""
        if head.method in SAFE_METHODS:
            return
        host = host_in(head.host)
        if not self._is_this_region(host, head.local_address):
            raise HttpError(
                421,
                f"Host {head.host!r} is not a name of region {self._region}, which accepts changes addressed to "
                f"{self._accepted_names(head.local_address)}; add other names to admin_hosts in the topology",
            )
        origin = head.headers.get("origin")
        if origin is not None and not self._is_this_region(
            host_in(origin.partition("://")[2]), head.local_address
        ):
            raise HttpError(
                403,
                f"a web page of {origin!r} may not change anything in region {self._region}: allowed origins are "
                f"{self._accepted_names(head.local_address)}",
            )

    def _accepted_names(self, local_address: str) -> str:
        return ", ".join(sorted({*self._names, "localhost", local_address} - {""}))

    def _is_this_region(self, host: str, local_address: str) -> bool:
        """Whether a host is one of the region's names, loopback, or `local_address`: an address and not a name, so no
        other site can point it at this region."""
        return host in self._names or is_loopback(host) or (host != "" and host == local_address)


def host_in(authority: str) -> str:
    """Return the host of `host`, `host:port` or `[address]:port`, in lower case; empty for any other text."""
    found = _AUTHORITY.fullmatch(authority.strip().lower())
    return (found["address"] or found["name"] or "").removesuffix(".") if found else ""
