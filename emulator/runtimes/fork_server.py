"""Start the regions of a run as forks of one process (`emulator.broker.fork_server`), where the system can.

Three regions then import the broker once instead of three times. Where no server can be started, or it does not respond
in time, each region is started as a program of its own, which also reports what is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

PROGRAM = (sys.executable, "-m", "emulator.broker.fork_server")
READY = b"ready\n"
READY_SECONDS = 30.0
"""Time for the imports; also on a busy machine they take a few seconds."""
FORK_SECONDS = 10.0


class ForkServer:
    """A running server that has imported the broker."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def fork(self, config: Path, output: Path) -> int | None:
        """Start a region with its region.json and the file for its output. Return the id of its process; None: the
        server has ended, or does not respond, and is killed."""
        requests, responses = self._process.stdin, self._process.stdout
        assert requests is not None
        assert responses is not None
        try:
            requests.write(json.dumps([str(config), str(output)]).encode() + b"\n")
        except OSError:
            return None
        if not select.select([responses], [], [], FORK_SECONDS)[0]:
            self._process.kill()
        line = responses.readline()
        return int(line) if line.strip().isdigit() else None


@contextlib.asynccontextmanager
async def open_fork_server(
    run_dir: Path, regions: int, environment: Mapping[str, str]
) -> AsyncIterator[ForkServer | None]:
    """Start a server for a number of regions of a run, and end it afterwards; the regions go on. None: a single region
    gains nothing, the system cannot fork such a process, or the server did not start."""
    if regions < 2 or sys.platform != "linux":
        yield None
        return
    process = subprocess.Popen(
        [*PROGRAM, str(run_dir)],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,  # or closing the input of an ended server would raise an error
        start_new_session=True,  # Ctrl-C must reach the program only that stops regions
    )
    with process:  # closes its input, at whose end it ends, and waits for it
        assert process.stdout is not None
        try:
            is_ready = False
            with contextlib.suppress(TimeoutError):
                response = asyncio.to_thread(process.stdout.readline)
                is_ready = await asyncio.wait_for(response, READY_SECONDS) == READY
            if not is_ready:
                process.kill()
            yield ForkServer(process) if is_ready else None
        except BaseException:
            process.kill()
            raise
