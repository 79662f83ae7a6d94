"""HTTP requests of runtimes and commands to the admin ports of regions, on real sockets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from emulator.config.region import LinkShape
from emulator.net import http
from emulator.net.http import RESPONSE_SECONDS, HttpResponse, NoHttpResponse
from emulator.net.network import SocketNetwork
from emulator.run.directory import RegionRecord

__all__ = ["RESPONSE_SECONDS", "AdminExchange", "HttpResponse", "NoHttpResponse", "call"]

_NETWORK = SocketNetwork()


class AdminExchange(http.HttpExchange):
    """One request on a socket of its own."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(_NETWORK, host, port)


async def call(
    host: str, port: int, method: str, target: str, body: Any = None, *, seconds: float = RESPONSE_SECONDS
) -> HttpResponse:
    """Send one request and return its response. NoHttpResponse when there is none."""
    return await http.call(_NETWORK, host, port, method, target, body, seconds=seconds)


async def call_url(
    admin_url: str, method: str, target: str, body: Any = None, *, seconds: float = RESPONSE_SECONDS
) -> HttpResponse:
    """The same for the `http://host:port` of a region; NoHttpResponse also when that is empty."""
    url = urlsplit(admin_url)
    if url.hostname is None or url.port is None:
        raise NoHttpResponse("it has no address")
    return await call(url.hostname, url.port, method, target, body, seconds=seconds)


@dataclass(frozen=True, slots=True)
class RegionReport:
    """A region's own answer to how it is."""

    ready: bool
    waiting_for: str
    """What it lacks, as a sentence; empty when it lacks nothing."""


async def ask(region: RegionRecord, expected_peers: Iterable[str]) -> RegionReport:
    """Return the state of a region, given the peers to which it has to be linked.

    NoHttpResponse when there is no response, or when another process than the recorded one uses its port.
    """
    target = f"/geoemu/v1/status?expect={quote(','.join(expected_peers))}"
    answer = await call(region.host, region.admin_port, "GET", target)
    try:
        raw = answer.json()
        if region.process is not None and raw["pid"] != region.process.pid:
            raise NoHttpResponse(f"process {raw['pid']} listens at its port")
        return RegionReport(raw["ready"], "; ".join(raw["waiting_for"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise NoHttpResponse(describe(answer)) from problem


def link_request(link: tuple[str, str], shape: LinkShape) -> tuple[str, str, dict[str, Any]]:
    """Method, target and body that set one direction of a link in a region, which returns 204."""
    source, target = (quote(end, safe="") for end in link)
    return "PUT", f"/geoemu/v1/links/{source}/{target}", asdict(shape)


def describe(answer: HttpResponse) -> str:
    """An answer that was not expected, for an error message."""
    return f"it answered {answer.status} {answer.body[:200].decode(errors='replace')}"
