"""Asks one region of a run for its transaction keys."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from emulator.cli.curl import Request
from emulator.errors import RuntimeFailure
from emulator.runtimes.admin_client import NoAnswer, call
from emulator.runtimes.contract import Runtime

KEYS = "/admin/v2/transactions/transaction-keys"
ANSWER_SECONDS = 15.0
"""A key that is deleted waits until its transaction is aborted."""


def request_of(method: str, key: str | None) -> Request:
    """What the region is asked."""
    return Request(method, KEYS if key is None else f"{KEYS}/{quote(key, safe='')}")


async def ask(run: Runtime, region: str, method: str, key: str | None) -> Any:
    """The region's answer; None where it has nothing to say. ConfigurationError for a region that is not in the run,
    RuntimeFailure when the region refuses or gives no answer."""
    run.topology.region(region)
    status = await run.status()
    (found,) = [one for one in status.regions if one.name == region]
    url = urlsplit(found.admin_url)
    target = request_of(method, key).target
    try:
        if url.hostname is None or url.port is None:
            raise NoAnswer("it has no address")
        answer = await call(url.hostname, url.port, method, target, seconds=ANSWER_SECONDS)
    except NoAnswer as silence:
        raise RuntimeFailure(f"region {region} is {found.state} and does not respond ({silence})") from None
    if answer.status >= 400:
        raise RuntimeFailure(f"region {region}: {answer.json()['reason']}")
    return answer.json() if answer.body else None
