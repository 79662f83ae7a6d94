"""Record the requests of a user's own program to Pulsar and their results, with one added line (docs/OWN_SERVICE.md).

    client = recorded(pulsar.Client("pulsar://127.0.0.1:15437"))

The returned object behaves like the wrapped client. All operations that the verdict needs are written to
`history/<actor>.jsonl` of the run: one line before a request is passed to the client, and one if the client reports
its outcome.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from emulator.recording.context import ClientLocation, actor_name, run_directory
from emulator.recording.journal import open_journal

_Client = TypeVar("_Client")

__all__ = ["recorded"]


def recorded(
    client: _Client, run: str | Path | None = None, *, actor: str | None = None, region: str | None = None
) -> _Client:
    """Return a client that behaves like `client` and records its operations. `client` is a `pulsar.Client` or a
    `pulsar.asyncio.Client`.

    `run`: the run directory; None: the environment variable GEOEMU_RUN_DIR, or else the latest run of the current
    folder. `actor`: the name of the history file; None: GEOEMU_ACTOR, or else the program's name. `region`: the region
    to which the client connects; None: the region of the run with the client's service URL.

    Raises Refused if there is no such run, if the region is not in the run or cannot be determined from the service
    URL, or if another process writes the history of `actor`.
    """
    directory = run_directory(run)
    location = ClientLocation.of(client, directory, region)
    journal = open_journal(directory, actor or actor_name(), named=actor is not None)
    if type(client).__module__ == "pulsar.asyncio":
        from emulator.recording.asyncio_client import AsyncRecordedClient

        return AsyncRecordedClient(client, journal, location)  # type: ignore[return-value]
    from emulator.recording.client import RecordedClient

    return RecordedClient(client, journal, location)  # type: ignore[return-value]
