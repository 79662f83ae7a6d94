"""Print the status of runs: tables with colours on a terminal, plain aligned lines elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from emulator.model.machine import HEALTHY, RIGHT_CLOCK
from emulator.model.reasons import Cause
from emulator.run.record import LinkStatus
from emulator.runtimes.contract import RunStatus

STYLES = {
    "running": "green",
    "starting": "yellow",
    "paused": "magenta",
    "killed": "bold red",
    "lost": "bold red",
    "stopped": "red",
}
_GONE = frozenset({"stopped", "killed", "lost"})


def show_status(
    status: RunStatus,
    conflicts: Sequence[Mapping[str, str]] = (),
    blocked: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Print the status of a run as text. `conflicts`: subscriptions whose position one region sends and another one
    does not apply. `blocked`: regions that prevent snapshots of replicated subscriptions in another one."""
    rows = [
        (
            region.name,
            region.cluster,
            region.state,
            region.service_url,
            region.admin_url,
            "" if region.pid is None else str(region.pid),
        )
        for region in status.regions
    ]
    show_table(("region", "cluster", "state", "clients", "admin", "process"), rows)
    for region in status.regions:
        if region.waiting_for:
            print(f"{region.name} waits: {region.waiting_for}")
        if region.disk != HEALTHY:
            print(f"the disk of {region.name} is {region.disk}")
        if region.clock != RIGHT_CLOCK:
            print(f"the clock of {region.name} is {region.clock}")
    for one in conflicts:
        reason = Cause.POSITION_NOT_APPLIED_THERE(region=one["region"])
        print(f"{one['source']}: subscription {one['topic']} {one['subscription']}: {reason}")
    for row in blocked:
        topics = "1 topic" if row["topics"] == 1 else f"{row['topics']} topics"
        print(
            f"{row['region']}: {row['blocked_by']} prevents snapshots of {topics}, {row['topic']}: {row['why']}"
        )
    if not status.ended:
        _show_links(status)
    print(f"{'ended run' if status.ended else 'run'} in {status.run_dir}")


def _show_links(status: RunStatus) -> None:
    """Print the links that are not up or not as declared, or else the regions that are down and reached by no link."""
    down = [region.name for region in status.regions if region.state in _GONE]
    disturbed = [link for link in status.links if link.state != "up" or not link.has_declared_speed]
    for link in disturbed:
        slow = "" if link.has_declared_speed else f", {_speed(link)}"
        route = f", over {', '.join(link.via)}" if link.via else ""
        print(f"{link.source} -> {link.target} is {link.state}{slow}{route}")
    if not disturbed:
        unreached = f", but none reaches {' or '.join(down)}" if down else ""
        print(f"all links are up{unreached}")
    profiles = Counter(link.profile for link in status.links if link.profile)
    if profiles:
        print(f"link profiles: {', '.join(f'{name} ({count})' for name, count in profiles.items())}")


def _speed(link: LinkStatus) -> str:
    shape = link.shape
    if link.profile:
        return f"profile {link.profile}"
    jitter = f" + up to {shape.jitter_ms:g} ms" if shape.jitter_ms else ""
    parts = [f"latency {shape.latency_ms:g} ms{jitter}"]
    if shape.bandwidth_bytes_per_second is not None:
        parts.append(f"bandwidth {shape.bandwidth_bytes_per_second} bytes/s")
    if shape.stall_ms:
        parts.append(f"stalls for {shape.stall_ms:g} ms every {shape.stall_every_ms:g} ms")
    if shape.flap_period_ms:
        parts.append(f"up {shape.flap_up * 100:g} % of every {shape.flap_period_ms:g} ms")
    parts += map(str, shape.frame_faults)
    return ", ".join(parts)


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. On a terminal, cells that are a region's state are coloured."""
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        for row in (headings, *rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    Console().print(table)
