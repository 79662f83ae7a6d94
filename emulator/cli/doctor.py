"""`geoemu doctor`: find what would make a run fail on this machine, and print how to fix it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import typer

from emulator.cli.application import app
from emulator.cli.details import wrap_line
from emulator.cli.diagnosis.finding import Finding
from emulator.cli.options import DEFAULT_TOPOLOGY, AsJson, RuntimeName, TopologyFile

COLUMNS = 100
_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


@app.command(epilog="Example: geoemu doctor; for a run in containers: geoemu doctor --runtime compose")
def doctor(
    file: TopologyFile = DEFAULT_TOPOLOGY, runtime: RuntimeName = None, as_json: AsJson = False
) -> None:
    """Check this machine, the topology and the runs of this folder; print each problem with its fix. Exit code 1 if a
    run would fail."""
    findings: list[Finding] = []
    for finding in diagnose(file, runtime, Path.cwd()):
        findings.append(finding)
        if not as_json:
            _print(finding)
    problems = sum(one.level == "problem" for one in findings)
    if as_json:
        print(json.dumps({"healthy": not problems, "findings": list(map(asdict, findings))}, indent=1))
    else:
        print(f"\n{problems or 'no'} problem{'' if problems == 1 else 's'}")
    raise typer.Exit(1 if problems else 0)


def diagnose(file: Path, runtime: str | None, folder: Path) -> Iterator[Finding]:
    """Yield the findings for runs of a topology in a folder. `runtime` None: that of the topology."""
    from emulator.cli.diagnosis.engines import check_engines
    from emulator.cli.diagnosis.machine import check_machine
    from emulator.cli.diagnosis.runs import check_runs, is_up
    from emulator.cli.diagnosis.topology import check_ports, load_checked

    yield from check_machine(folder)
    topology, findings = load_checked(file, is_default=file == DEFAULT_TOPOLOGY)
    yield from findings
    if topology is not None and not is_up(folder):
        yield from check_ports(topology)
    yield from check_runs(folder)
    yield from check_engines(runtime or (topology.runtime if topology else "process"), topology)


def _print(finding: Finding) -> None:
    lines = wrap_line(f"  {finding.subject:<11}{finding.sentence}", COLUMNS)
    lines += wrap_line(f"  {'':<11}fix: {finding.fix}", COLUMNS) if finding.fix else []
    levels = [f"{finding.level if number == 0 else '':<8}" for number in range(len(lines))]
    if not sys.stdout.isatty():
        print("\n".join(map("".join, zip(levels, lines, strict=True))), flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    for level, line in zip(levels, lines, strict=True):
        text = Text(level, _STYLES[finding.level]).append(line, style="default")
        Console(soft_wrap=True, highlight=False).print(text)
