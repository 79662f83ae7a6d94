"""Start the program of one region, `emulator.broker.main`: `python -m emulator.broker region.json`.

Disables garbage collection before the modules of the broker are imported; the program enables it once it is ready. The
objects that an import creates live until the end, and Python's default thresholds traverse them more than a hundred
times: a tenth of the time in which a region starts.
"""

from __future__ import annotations

import gc
import sys

from emulator.compiled import problem_of_build


def start(arguments: list[str]) -> int:
    """Import and run the program; return its exit code."""
    gc.disable()
    if (problem := problem_of_build()) is not None:
        print(problem, file=sys.stderr)
        return 2
    from emulator.broker.main import main

    return main(arguments)


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
