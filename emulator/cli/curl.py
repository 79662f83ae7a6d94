"""Print the requests of a verb to regions as curl commands, which a user can read, change and paste."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.cli.application import open_run_of
from emulator.config.region import LinkShape
from emulator.errors import Refused
from emulator.run.directory import LinkStatus
from emulator.runtimes.admin_client import link_request
from emulator.runtimes.contract import RegionStatus, Runtime


@dataclass(frozen=True, slots=True)
class CurlRequest:
    """One request to a region's HTTP port."""

    method: str
    target: str
    body: Any = None


def as_curl(admin_url: str, request: CurlRequest) -> str:
    words = ["curl", "--silent", "--show-error"]
    if request.method != "GET":
        words += ["--request", request.method]
    if request.body is not None:
        words += ["--header", "content-type: application/json", "--data", json.dumps(request.body)]
    return shlex.join([*words, f"{admin_url}{request.target}"])


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
    run_dir: Path | None,
    ends: tuple[str, str] | None,
    *,
    one_way: bool,
    new_shape: Callable[[LinkStatus], LinkShape],
) -> None:
    """Print the commands that change links: one for each end of each link. `ends` None: all links. Raises Refused if
    there is no such link."""
    status = asyncio.run(open_run_of(run_dir).status())
    regions = {region.name: region for region in status.regions}
    wanted = None if ends is None else {ends} if one_way else {ends, ends[::-1]}
    links = [link for link in status.links if wanted is None or (link.source, link.target) in wanted]
    if not links:
        raise Refused(f"there is no link {' -> '.join(ends or ())} in this run")
    for link in links:
        request = CurlRequest(*link_request((link.source, link.target), new_shape(link)))
        for end in (link.source, link.target):
            print(_line(regions[end], request))


def _line(region: RegionStatus, request: CurlRequest) -> str:
    """Return the command for a region; for one without an address, a comment."""
    if not region.admin_url:
        return f"# {region.name} is {region.state} and has no address"
    return as_curl(region.admin_url, request)
