"""Recording what a program of one's own asks of Pulsar and is told, by one line in it (docs/OWN_SERVICE.md).

    client = recorded(pulsar.Client("pulsar://127.0.0.1:15437"))

What comes back behaves like the client that went in. Everything that the verdict needs goes to `history/<actor>.jsonl`
of the run: it is written before the client is told to do something, and again when the client tells what came of it.
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
    """The same client, whose operations are recorded. Of `pulsar.Client` and `pulsar.asyncio.Client`.

    `run`: the run directory; None: what GEOEMU_RUN_DIR says, or else the latest run of the current folder. `actor`: the
    name of the history file; None: what GEOEMU_ACTOR says, or else the program's name. `region`: where the client
    connects to; None: the region of the run whose service URL the client has.

    Refused when there is no such run, or when it has no region at the client's service URL.
    """
    directory = run_directory(run)
    whereabouts = ClientLocation.of(client, directory, region)
    journal = open_journal(directory, actor or actor_name(), named=actor is not None)
    asynchronous = type(client).__module__ == "pulsar.asyncio"
    if asynchronous:
        from emulator.recording.asyncio_client import AsyncRecordedClient

        return AsyncRecordedClient(client, journal, whereabouts)  # type: ignore[return-value]
    from emulator.recording.client import RecordedClient

    return RecordedClient(client, journal, whereabouts)  # type: ignore[return-value]
