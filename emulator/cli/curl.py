"""What a verb would ask of regions, as calls of curl that a person can read, change and paste."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from emulator.config.region import LinkShape
from emulator.errors import Refused
from emulator.run.directory import LinkStatus
from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.runtimes.regions import link_request


@dataclass(frozen=True, slots=True)
class CurlRequest:
    """One call of a region's HTTP port."""

    method: str
    target: str
    body: Any = None


def as_curl(admin_url: str, request: CurlRequest) -> str:
    """The command, for a shell."""
    words = ["curl", "--silent", "--show-error"]
    if request.method != "GET":
        words += ["--request", request.method]
    if request.body is not None:
        words += ["--header", "content-type: application/json", "--data", json.dumps(request.body)]
    return shlex.join([*words, f"{admin_url}{request.target}"])


async def as_curls(run: Runtime, request: CurlRequest, regions: Iterable[str] | None = None) -> list[str]:
    """One line for each of these regions; None: all of the run. ConfigurationError for a region that is not in it."""
    wanted = None if regions is None else {run.topology.region(name).name for name in regions}
    found = (await run.status()).regions
    return [_line(region, request) for region in found if wanted is None or region.name in wanted]


async def links_as_curls(
    run: Runtime, ends: tuple[str, str] | None, *, one_way: bool, shaped: Callable[[LinkStatus], LinkShape]
) -> list[str]:
    """Commands that change links: one for each end of each link. `ends` None: all links. Refused for a link that
    there is not."""
    status = await run.status()
    regions = {region.name: region for region in status.regions}
    wanted = None if ends is None else {ends} if one_way else {ends, ends[::-1]}
    links = [link for link in status.links if wanted is None or (link.source, link.target) in wanted]
    if not links:
        raise Refused(f"there is no link {' -> '.join(ends or ())} in this run")
    return [
        _line(regions[end], CurlRequest(*link_request((link.source, link.target), shaped(link))))
        for link in links
        for end in (link.source, link.target)
    ]


def _line(region: RegionStatus, request: CurlRequest) -> str:
    """A comment for a region that cannot be asked."""
    if not region.admin_url:
        return f"# {region.name} is {region.state} and has no address"
    return as_curl(region.admin_url, request)
