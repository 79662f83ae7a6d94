"""`geoemu tap`: a port in front of each region's, until Ctrl-C."""

from __future__ import annotations

import asyncio
from pathlib import Path

from emulator.cli.interruption import interruption
from emulator.cli.output import show_table
from emulator.errors import Refused
from emulator.recording.tap.tap import Tap
from emulator.run.history import HistoryWriter
from emulator.runtimes.contract import Runtime

LOOK_SECONDS = 0.25


async def tap_run(run: Runtime, name: str) -> None:
    """Record on the wire until told to end, or until the run ends."""
    status = await run.status()
    if status.ended:
        raise Refused(f"the run in {run.run_dir} has ended: start a new one with `geoemu up`")
    with interruption() as told:
        tap = Tap(history_of(run.run_dir, name))
        try:
            opened = await tap.open((one.name, one.service_url) for one in status.regions)
            show_table(("region", "clients"), [(one.name, one.service_url) for one in opened])
            print(
                f"operations are recorded in {run.run_dir}/history/{name}.jsonl; Ctrl-C ends the tap",
                flush=True,
            )
            while not told.happened and not (await run.status()).ended:
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await tap.close()
            tap.history.close()


def history_of(run_dir: Path, name: str) -> HistoryWriter:
    """Refused when another tap writes it."""
    try:
        return HistoryWriter.in_run(run_dir, name, program="geoemu tap")
    except BlockingIOError as busy:
        raise Refused(f"{busy} (--name)") from None
