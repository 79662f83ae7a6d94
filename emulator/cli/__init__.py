"""The command `geoemu`.

Exit codes, of every verb:

    0     what the verb says has happened; for `check`: the files are fine; for `run` and `verify`: valid
    1     it was tried and failed; for `run` and `verify`: invalid
    2     what was typed or written cannot be done, and nothing was; for `run` and `verify`: unknown
    130   interrupted; what had been started was taken down

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from emulator.errors import ConfigurationError, GeoemuError, Refused


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb and exit."""
    from emulator.cli.verbs import app

    # A verb that must tidy up first listens itself; any other one ends as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(arguments, prog_name="geoemu")
    except SystemExit as end:
        # Typer turns an interruption that no verb took care of into a silent exit.
        if end.__context__ is not None and isinstance(end.__context__.__cause__, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
        raise
    except ConfigurationError as problems:
        sys.exit(_complain(problems, 2))
    except Refused as refusal:
        sys.exit(_complain(refusal, 2))
    except GeoemuError as failure:
        sys.exit(_complain(failure, 1))


def _complain(problem: GeoemuError | str, exit_code: int) -> int:
    print(problem, file=sys.stderr)
    return exit_code
