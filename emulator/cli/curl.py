"""What a verb would ask of regions, as calls of curl that a person can read, change and paste."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from emulator.runtimes.contract import RegionStatus, Runtime


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a region's HTTP port."""

    method: str
    target: str
    body: Any = None


def as_curl(admin_url: str, request: Request) -> str:
    """The command, for a shell."""
    words = ["curl", "--silent", "--show-error"]
    if request.method != "GET":
        words += ["--request", request.method]
    if request.body is not None:
        words += ["--header", "content-type: application/json", "--data", json.dumps(request.body)]
    return shlex.join([*words, f"{admin_url}{request.target}"])


async def as_curls(run: Runtime, request: Request, regions: Iterable[str] | None = None) -> list[str]:
    """One line for each of these regions; None: all of the run. ConfigurationError for a region that is not in it."""
    wanted = None if regions is None else {run.topology.region(name).name for name in regions}
    found = (await run.status()).regions
    return [_line(region, request) for region in found if wanted is None or region.name in wanted]


def _line(region: RegionStatus, request: Request) -> str:
    """A comment for a region that cannot be asked."""
    if not region.admin_url:
        return f"# {region.name} is {region.state} and has no address"
    return as_curl(region.admin_url, request)
