"""Start several regions as forks of one process, which imports the broker once:

    python -m emulator.broker.fork_server RUN_DIR

Imports take most of the processor time of a start. The program prints READY when they are done. Then it reads a JSON
list per line, a region.json and the file for the region's output, starts that region as `python -m emulator.broker`
does, and prints the id of its process. It ends at the end of its input; the regions go on. Its argument only shows in
lists of processes whose regions they are; `geoemu status` shows which process is which region.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from emulator.compiled import problem_of_build

READY = "ready"


def main() -> int:
    """Serve until the end of input. Returns the exit code of a region in its process, or 2 if the server cannot
    start."""
    gc.disable()  # the program of a region enables it
    if (problem := problem_of_build()) is not None:
        print(problem, flush=True)
        return 2
    from emulator.broker.main import import_default_backend
    from emulator.broker.main import main as serve

    import_default_backend()
    gc.freeze()  # so that a collection in a region does not copy the pages that all share
    print(READY, flush=True)
    while line := sys.stdin.readline():
        config, output = json.loads(line)
        process_id = os.fork()
        if process_id == 0:
            _detach(Path(config).parent, output)
            return serve([config])
        print(process_id, flush=True)
    os._exit(0)  # the runtime waits for it, and there is nothing to tidy up


def _detach(folder: Path, output: str) -> None:
    """Give the process of a region its own session, directory and output, and no input."""
    os.setsid()
    os.chdir(folder)
    for target, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, output, os.O_WRONLY | os.O_APPEND | os.O_CREAT),
    ):
        opened = os.open(path, flags, 0o666)
        os.dup2(opened, target)
        os.close(opened)
    os.dup2(1, 2)


if __name__ == "__main__":
    sys.exit(main())
