"""The command `geoemu`.

Exit codes, of every verb:

    0     success; for `run` and `verify`: valid
    1     failure; for `run` and `verify`: invalid or a limit was missed; for `diff`: the runs differ; for `explain`: no
          region knows the name; for `simulate`: a seed failed
    2     wrong usage or a refused request, which changed nothing; for `run` and `verify`: unknown
    130   interrupted; what the command had started was stopped

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from emulator.compiled import problem_of_build
from emulator.errors import ConfigurationError, GeoemuError, Refused


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb and exit."""
    if (problem := problem_of_build()) is not None:
        sys.exit(_print_error(problem, 2))
    from emulator.cli.verbs import app

    if COMPLETION in os.environ:
        _complete(app)
    # A verb that has to stop regions installs its own handlers; SIGTERM ends any other one like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(arguments, prog_name="geoemu")
    except SystemExit as end:
        # Typer converts a KeyboardInterrupt that no verb handled to an exit without a message.
        if end.__context__ is not None and isinstance(end.__context__.__cause__, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
        raise
    except ConfigurationError as problems:
        sys.exit(_print_error(problems, 2))
    except Refused as refusal:
        sys.exit(_print_error(refusal, 2))
    except GeoemuError as failure:
        sys.exit(_print_error(failure, 1))


COMPLETION = "_GEOEMU_COMPLETE"
"""Variable in which a shell requests completions."""


def _complete(app: Callable[..., object]) -> None:
    """Print the completions that a shell requests, and exit. No error is printed: it would appear in the middle of the
    line that is typed."""
    with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing):
        try:
            app(prog_name="geoemu")
        except Exception:
            sys.exit(0)


def _print_error(problem: GeoemuError | str, exit_code: int) -> int:
    print(problem, file=sys.stderr)
    return exit_code
