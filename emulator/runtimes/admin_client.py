"""HTTP requests of runtimes and commands to the admin ports of regions, on real sockets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from emulator.config.link_shape import LinkShape
from emulator.net import http
from emulator.net.control import read_control
from emulator.net.http import RESPONSE_SECONDS, HttpResponse, NoHttpResponse
from emulator.net.tls import Certificates, network_with
from emulator.run.record import RegionRecord

__all__ = ["RESPONSE_SECONDS", "AdminExchange", "HttpResponse", "NoHttpResponse", "call"]


class AdminAddress(Protocol):
    """A region with an admin port, such as a RegionRecord or a RegionStatus."""

    @property
    def admin_url(self) -> str: ...

    @property
    def tls(self) -> Certificates | None: ...

    @property
    def control(self) -> str: ...


class AdminExchange(http.HttpExchange):
    """One request and its response, on a separate socket."""

    def __init__(self, region: AdminAddress) -> None:
        host, port = _host_and_port(region.admin_url)
        super().__init__(network_with(region.tls), host, port, _authorization(region))


async def call(
    region: AdminAddress, method: str, target: str, body: Any = None, *, seconds: float = RESPONSE_SECONDS
) -> HttpResponse:
    """Send one request to a region and return its response. Raises NoHttpResponse if there is none within `seconds`, or
    the region has no address."""
    host, port = _host_and_port(region.admin_url)
    return await http.call(
        network_with(region.tls),
        host,
        port,
        method,
        target,
        body,
        seconds=seconds,
        authorization=_authorization(region),
    )


async def call_url(
    admin_url: str, method: str, target: str, body: Any = None, *, seconds: float = RESPONSE_SECONDS
) -> HttpResponse:
    """Send one request to an admin URL without TLS, `http://host:port`. Raises NoHttpResponse if there is no response
    within `seconds`, or the URL has no host or port."""
    host, port = _host_and_port(admin_url)
    return await http.call(network_with(None), host, port, method, target, body, seconds=seconds)


def _authorization(region: AdminAddress) -> str:
    """Return the credential with which geoemu controls a region. Raises NoHttpResponse if it cannot be read."""
    try:
        return read_control(region.control)
    except OSError as failure:
        raise NoHttpResponse(f"the credential {region.control} cannot be read: {failure.strerror}") from None


def _host_and_port(admin_url: str) -> tuple[str, int]:
    url = urlsplit(admin_url)
    if url.hostname is None or url.port is None:
        raise NoHttpResponse("it has no address")
    return url.hostname, url.port


@dataclass(frozen=True, slots=True)
class RegionReport:
    """The state that a region reports about itself."""

    ready: bool
    waiting_for: str
    """What the region waits for until it is ready, as a sentence; empty if nothing."""


async def query_status(region: RegionRecord, expected_peers: Iterable[str]) -> RegionReport:
    """Return the state that a region reports, given the peers that it must be linked with.

    Raises NoHttpResponse if there is no valid response, or if another process than the recorded one listens on its
    port.
    """
    target = f"/geoemu/v1/status?expect={quote(','.join(expected_peers))}"
    answer = await call(region, "GET", target)
    try:
        raw = answer.json()
        if region.process is not None and raw["pid"] != region.process.pid:
            raise NoHttpResponse(f"process {raw['pid']} listens at its port")
        return RegionReport(raw["ready"], "; ".join(raw["waiting_for"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise NoHttpResponse(describe(answer)) from problem


def link_request(link: tuple[str, str], shape: LinkShape) -> tuple[str, str, dict[str, Any]]:
    """Return method, target and body of the request that sets one direction of a link; the region responds with 204."""
    source, target = (quote(end, safe="") for end in link)
    return "PUT", f"/geoemu/v1/links/{source}/{target}", asdict(shape)


def break_request(link: tuple[str, str], connections: str) -> tuple[str, str, dict[str, str]]:
    """Return method, target and body of the request that breaks the open connections of a link (`reset`, `half-open`)
    or ends half-open ones (`normal`); the region responds with 204."""
    _, target, _ = link_request(link, LinkShape())
    return "PUT", f"{target}/connections", {"connections": connections}


def describe(answer: HttpResponse) -> str:
    """Describe an unexpected response, for an error message."""
    return f"it answered {answer.status} {answer.body[:200].decode(errors='replace')}"
