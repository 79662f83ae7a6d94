"""Import all verbs of the command line. `--help` lists them in the order of these imports. A verb imports slow modules
itself when it runs."""

# ruff: noqa: F401, I001

from __future__ import annotations

from emulator.cli import (
    init,
    token,
    certs,
    run,
    client_environment,
    graph,
    doctor,
    top,
    regions,
    links,
    machines,
    explain,
    dashboard,
    failover,
    region,
    tools,
    verdicts,
    evidence,
    chaos,
    record,
    simulate,
)
from emulator.cli.application import app

__all__ = ["app"]
