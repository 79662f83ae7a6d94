"""Every verb of the command line: what it takes and what it says. Whatever takes work is elsewhere, and imported
only by the verb that needs it. `--help` lists them in the order in which the families are imported here."""

# ruff: noqa: I001

from __future__ import annotations

from emulator.cli import run, regions, links, explain, tools, verdicts, record, simulate
from emulator.cli.application import app

FAMILIES = (run, regions, links, explain, tools, verdicts, record, simulate)

__all__ = ["FAMILIES", "app"]
