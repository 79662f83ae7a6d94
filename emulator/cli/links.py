"""Verbs that change links between regions, and links of clients."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from emulator.cli.application import app, inject, open_run_of
from emulator.cli.curl import NOT_RECORDED, print_break_curls, print_link_curls
from emulator.cli.fault_options import (
    BytesPerSecond,
    FirstFrame,
    FlapPeriod,
    FrameCount,
    FrameDelay,
    FrameName,
    JitterMilliseconds,
    LinkDirection,
    LinkEnd,
    Milliseconds,
    NamedProfile,
    OneWay,
    OptionalLinkEnd,
    OptionalOtherLinkEnd,
    OtherLinkEnd,
    StallInterval,
    StallMilliseconds,
    UpFraction,
)
from emulator.cli.options import AsCurl, RunDir
from emulator.config.link_shape import LinkShape
from emulator.model.frame_faults import FrameAction
from emulator.run.record import LinkStatus
from emulator.runtimes.contract import BREAKS, Runtime
from emulator.runtimes.faults import LinkFault, link_fault, link_pairs
from emulator.runtimes.frame_faults import frame_changes, link_of
from emulator.runtimes.operator import heal_everything


@app.command(
    epilog="Example: geoemu cut us-east eu-central --one-way; several: geoemu cut us-east,us-west 'eu-*'"
)
def cut(
    a: LinkEnd, b: OtherLinkEnd, one_way: OneWay = False, as_curl: AsCurl = False, run_dir: RunDir = None
) -> None:
    """Drop all traffic of a link. New connections fail; open ones stall."""
    _change_link(run_dir, "cut", (a, b), one_way, as_curl, "is cut")


@app.command(epilog="Example: geoemu hold us-east eu-central")
def hold(
    a: LinkEnd, b: OtherLinkEnd, one_way: OneWay = False, as_curl: AsCurl = False, run_dir: RunDir = None
) -> None:
    """Queue traffic of a link until `heal`, then deliver it in order."""
    _change_link(run_dir, "hold", (a, b), one_way, as_curl, "is held")


@app.command(epilog="Example: geoemu latency us-east eu-central 200ms --jitter 20ms")
def latency(
    a: LinkEnd,
    b: OtherLinkEnd,
    time: Milliseconds,
    jitter: JitterMilliseconds = None,
    one_way: OneWay = False,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Set the one-way latency of a link; `heal` restores what the topology declares."""
    outcome = f"has a latency of {time:g} ms"
    _change_link(run_dir, "latency", (a, b), one_way, as_curl, outcome, latency_ms=time, jitter_ms=jitter)


@app.command(
    epilog="Example: geoemu bandwidth us-east eu-central 500KB/s; slow readers: geoemu bandwidth us-east clients 9KB/s"
)
def bandwidth(
    a: LinkEnd,
    b: OtherLinkEnd,
    limit: BytesPerSecond,
    one_way: OneWay = False,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Limit the bandwidth of a link; `heal` restores what the topology declares."""
    outcome = f"has a bandwidth of {limit} bytes/s" if limit else "has no limit of bandwidth"
    _change_link(run_dir, "bandwidth", (a, b), one_way, as_curl, outcome, bytes_per_second=limit or None)


@app.command(epilog="Example: geoemu stall us-east eu-central 500ms --every 5s")
def stall(
    a: LinkEnd,
    b: OtherLinkEnd,
    time: StallMilliseconds,
    every: StallInterval,
    one_way: OneWay = False,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Stall a link at regular intervals, as packet loss does to TCP; `heal` ends it."""
    outcome = f"stalls for {time:g} ms every {every:g} ms"
    _change_link(run_dir, "stall", (a, b), one_way, as_curl, outcome, every_ms=every, stall_ms=time)


@app.command(epilog="Example: geoemu flap us-east eu-central --period 4s --up 50%")
def flap(
    a: LinkEnd,
    b: OtherLinkEnd,
    period: FlapPeriod,
    up: UpFraction = None,
    one_way: OneWay = False,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Cut a link for a part of each period; `heal` ends it."""
    fraction = 0.5 if up is None else up
    outcome = f"is up {fraction * 100:g} % of every {period:g} ms"
    _change_link(run_dir, "flap", (a, b), one_way, as_curl, outcome, period_ms=period, up=fraction)


@app.command(
    epilog="Example: geoemu profile us-east eu-central satellite; of clients: geoemu profile us-east clients lossy-wifi"
)
def profile(
    a: LinkEnd,
    b: OtherLinkEnd,
    name: NamedProfile,
    one_way: OneWay = False,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Give a link the latency, jitter, bandwidth and stalls of a named profile; `heal` restores what the topology
    declares."""
    _change_link(run_dir, "profile", (a, b), one_way, as_curl, f"has the profile {name}", profile=name)


@app.command(
    epilog="Example: geoemu reset us-east eu-central; the clients of a region: geoemu reset clients us-east"
)
def reset(a: LinkEnd, b: OtherLinkEnd, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """Reset all open connections of a link (TCP RST); new ones work."""
    _change_link(run_dir, "reset", (a, b), False, as_curl, "was reset")


def _frame_command(action: FrameAction, summary: str) -> None:
    """Define the command of one fault of single frames without a duration."""

    @app.command(
        name=action.value,
        help=summary,
        epilog=f"Example: geoemu {action.value} 'us-east->eu-central' snapshot_response --count 1",
    )
    def command(
        link: LinkDirection,
        what: FrameName,
        count: FrameCount = 1,
        nth: FirstFrame = 1,
        as_curl: AsCurl = False,
        run_dir: RunDir = None,
    ) -> None:
        _arm(run_dir, action, link, as_curl, what=what, count=count, nth=nth)


_frame_command(
    FrameAction.DROP, "Drop single commands, receipts or markers of a link, as a faulty peer does."
)
_frame_command(FrameAction.DUPLICATE, "Send single commands, receipts or markers of a link twice.")
_frame_command(FrameAction.REORDER, "Swap single commands, receipts or markers of a link with the next one.")


@app.command(epilog="Example: geoemu delay 'us-east->eu-central' snapshot_response 2s")
def delay(
    link: LinkDirection,
    what: FrameName,
    time: FrameDelay,
    count: FrameCount = 1,
    nth: FirstFrame = 1,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Delay single commands, receipts or markers of a link; later ones overtake them."""
    _arm(run_dir, FrameAction.DELAY, link, as_curl, what=what, count=count, nth=nth, by_ms=time)


def _arm(run_dir: Path | None, action: FrameAction, link: str, as_curl: bool, **values: Any) -> None:
    _, words = frame_changes(action, **values)
    _change_link(
        run_dir, action.value, link_of(link), True, as_curl, f"will {action.value} {words}", **values
    )


@app.command(name="half-open", epilog="Example: geoemu half-open clients us-east")
def half_open(a: LinkEnd, b: OtherLinkEnd, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """Let the open connections of a link stay open and carry nothing any more; new ones work. `heal` resets them."""
    _change_link(run_dir, "half_open", (a, b), False, as_curl, "has half-open connections")


@app.command(epilog="Example: geoemu heal us-east eu-central; or everything: geoemu heal")
def heal(
    a: OptionalLinkEnd = None,
    b: OptionalOtherLinkEnd = None,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Undo all faults of a link, or of all links, and wait until links are established."""
    if a is not None and b is None:
        raise typer.BadParameter("name two ends of a link, or none to heal everything", param_hint="B")
    if as_curl:
        links = (
            None if a is None or b is None else LinkFault("heal", _pairs(open_run_of(run_dir), a, b)).links
        )
        print(NOT_RECORDED, file=sys.stderr)
        print_link_curls(run_dir, links, new_shape=lambda link: replace(link.declared, state="up"))
        print_break_curls(run_dir, links, "normal")
    elif a is None or b is None:
        asyncio.run(heal_everything(open_run_of(run_dir)))
        print("all links are up")
    else:
        inject(run_dir, lambda run: LinkFault("heal", _pairs(run, a, b)))
        _print_healed(open_run_of(run_dir), a, b)


def _print_healed(run: Runtime, a: str, b: str) -> None:
    """Print that links are up, or which are not, because a link over which they are routed has a fault."""
    healed = LinkFault("heal", _pairs(run, a, b)).links
    known = asyncio.run(run.status()).links
    down = [link for link in known if (link.source, link.target) in healed and link.state != "up"]
    for link in down:
        route = " -> ".join((link.source, *link.via, link.target))
        print(f"{link.source} -> {link.target} is still {link.state}: a fault on its route {route} remains")
    if not down:
        print(f"{a} <-> {b} is up")


def _pairs(run: Runtime, a: str, b: str) -> tuple[tuple[str, str], ...]:
    return link_pairs(run.topology.region_names, a, b)


def _change_link(
    run_dir: Path | None,
    verb: str,
    ends: tuple[str, str],
    one_way: bool,
    as_curl: bool,
    outcome: str,
    **values: Any,
) -> None:
    def fault_of(run: Runtime) -> LinkFault:
        return link_fault(verb, run.topology.region_names, *ends, one_way=one_way, **values)

    if as_curl:
        _print_curls(run_dir, fault_of(open_run_of(run_dir)))
        return
    inject(run_dir, fault_of)
    print(f"{ends[0]} {'->' if one_way else '<->'} {ends[1]} {outcome}")


def _print_curls(run_dir: Path | None, fault: LinkFault) -> None:
    print(NOT_RECORDED, file=sys.stderr)
    if fault.verb in BREAKS:
        print_break_curls(run_dir, fault.links, fault.verb.replace("_", "-"))
        return
    change: Callable[[LinkStatus], LinkShape] = lambda link: link.shape.changed(fault.changes)  # noqa: E731
    print_link_curls(run_dir, fault.links, new_shape=change)
