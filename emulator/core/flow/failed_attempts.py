"""A limit of failed attempts per source, such as wrong passwords from one host.

Each source has a budget of failures that grows again steadily. While it is used up, attempts of that source are not
executed; other sources are not affected. Sources are forgotten when their budget is whole. If there are SOURCES_MAX,
the one whose last failure is oldest is forgotten, so that the memory is bounded.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final

SOURCES_MAX: Final = 10_000
PERIOD_SECONDS: Final = 60.0
IPV6_PREFIX_BITS: Final = 64
"""A network of this size is one source: one machine may use all its addresses."""


class FailedAttempts:
    """The failures of all sources. Times are seconds of any clock that does not go back."""

    def __init__(self, failures_max: int) -> None:
        """`failures_max`: failures of a source in PERIOD_SECONDS, which may be used at once; 0: unlimited."""
        self._failures_max = failures_max
        self._whole_at: dict[str, float] = {}
        """Source -> time at which its budget is whole again, in the order of their last failures."""

    def wait_seconds(self, source: str, now: float) -> float:
        """Return the time until the next attempt of a source is executed; 0: at once."""
        missing = self._whole_at.get(source, now) - now
        return max(0.0, missing - PERIOD_SECONDS + self._seconds_per_failure)

    def note(self, source: str, now: float) -> None:
        """Count a failure of a source."""
        if not self._failures_max:
            return
        whole_at = max(self._whole_at.pop(source, now), now)
        while self._whole_at and (len(self._whole_at) >= SOURCES_MAX or self._is_oldest_whole(now)):
            del self._whole_at[next(iter(self._whole_at))]
        self._whole_at[source] = whole_at + self._seconds_per_failure

    def _is_oldest_whole(self, now: float) -> bool:
        return self._whole_at[next(iter(self._whole_at))] <= now

    @property
    def _seconds_per_failure(self) -> float:
        return PERIOD_SECONDS / self._failures_max if self._failures_max else 0.0

    def __len__(self) -> int:
        return len(self._whole_at)


def source_of(host: str) -> str:
    """Return the source of a client's address: the address, or its network of IPV6_PREFIX_BITS."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> IPV6_PREFIX_BITS << IPV6_PREFIX_BITS))
