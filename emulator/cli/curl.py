"""Print the requests of a verb to regions as curl commands, which a user can read, change and paste."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emulator.cli.application import open_run_of
from emulator.config.link_shape import LinkShape
from emulator.config.shapes import with_routes
from emulator.net.tls import Certificates
from emulator.run.record import LinkStatus, links_of
from emulator.runtimes.admin_client import break_request, link_request
from emulator.runtimes.contract import Link, RegionStatus, RunStatus, Runtime

NOT_RECORDED = "changes by curl are not recorded in the run's history and end when the region restarts"


@dataclass(frozen=True, slots=True)
class CurlRequest:
    """One request to a region's HTTP port."""

    method: str
    target: str
    body: Any = None


def as_curl(admin_url: str, request: CurlRequest, tls: Certificates | None = None) -> str:
    words = _curl(tls)
    if request.method != "GET":
        words += ["--request", request.method]
    if request.body is not None:
        words += ["--header", "content-type: application/json", "--data", json.dumps(request.body)]
    return shlex.join([*words, f"{admin_url}{request.target}"])


def _curl(tls: Certificates | None) -> list[str]:
    """Return the command without a request, with the files of TLS."""
    words = ["curl", "--silent", "--show-error"]
    if tls is not None:
        words += ["--cacert", tls.authority]
        words += ["--cert", tls.certificate, "--key", tls.key] if tls.certificate else []
    return words


def piped(first: str, second: str, tls: Certificates | None = None) -> str:
    """Return a command that sends the response to GET `first` as the body of a POST to `second`."""
    post = ["--request", "POST", "--header", "content-type: application/json", "--data", "@-"]
    command = shlex.join([*_curl(tls), *post, second])
    return f"{as_curl(first, CurlRequest('GET', ''), tls)} | {command}"


async def as_curls(run: Runtime, request: CurlRequest, regions: Iterable[str] | None = None) -> list[str]:
    """Return a line for each of these regions; None: all regions of the run. Raises ConfigurationError for an unknown
    region."""
    wanted = None if regions is None else {run.topology.region(name).name for name in regions}
    found = (await run.status()).regions
    return [_line(region, request) for region in found if wanted is None or region.name in wanted]


def print_curl(run_dir: Path | None, request: CurlRequest, regions: Iterable[str] | None = None) -> None:
    """Print the equivalent curl commands, a line for each region."""
    for line in asyncio.run(as_curls(open_run_of(run_dir), request, regions)):
        print(line)


def print_link_curls(
    run_dir: Path | None, links: Sequence[Link] | None, *, new_shape: Callable[[LinkStatus], LinkShape]
) -> None:
    """Print the commands that change these directions of links, or all that are changed, and the links that are routed
    over them: one for each end that is a region."""
    run = open_run_of(run_dir)
    status = asyncio.run(run.status())
    found = {(link.source, link.target): link for link in status.links}
    declared = links_of(run.topology)
    changed = list(found if links is None else links)
    before = declared | {link: known.shape for link, known in found.items()}
    own = before | {link: known.own for link, known in found.items() if known.own is not None}
    for link in changed:
        known = found.get(link) or LinkStatus(
            *link, declared[link], declared[link]
        )  # of clients, without a fault
        own[link] = new_shape(replace(known, shape=own[link]))
    after = with_routes(own, declared, run.topology.routes)
    routed = [link for link in after if after[link] != before[link] and link not in changed]
    for link in (*changed, *routed):
        _print_for_ends(status, link, CurlRequest(*link_request(link, after[link])))


def print_break_curls(run_dir: Path | None, links: Sequence[Link] | None, connections: str) -> None:
    """Print the commands that break the open connections of these links, or of all: one for each end that is a
    region."""
    run = open_run_of(run_dir)
    for link in {frozenset(link): link for link in links or links_of(run.topology)}.values():
        request = CurlRequest(*break_request(link, connections))
        _print_for_ends(asyncio.run(run.status()), link, request)


def _print_for_ends(status: RunStatus, link: Link, request: CurlRequest) -> None:
    regions = {region.name: region for region in status.regions}
    for end in link:
        if end in regions:
            print(_line(regions[end], request))


def _line(region: RegionStatus, request: CurlRequest) -> str:
    """Return the command for a region; for one without an address, a comment."""
    if not region.admin_url:
        return f"# {region.name} is {region.state} and has no address"
    return as_curl(region.admin_url, request, region.tls)
