"""Verbs that change links between regions, and the clocks of regions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import typer

from emulator.cli.application import Change, act, app
from emulator.cli.curl import CurlRequest, print_curl, print_link_curls
from emulator.cli.options import (
    AsCurl,
    JitterMilliseconds,
    LinkEnd,
    Milliseconds,
    OneWay,
    OptionalLinkEnd,
    OptionalOtherLinkEnd,
    OtherLinkEnd,
    Region,
    RunDir,
    SignedMilliseconds,
)
from emulator.config.region import LinkShape
from emulator.run.directory import LinkStatus
from emulator.run.history_events import latency_detail, skew_detail

NOT_RECORDED = "changes by curl are not recorded in the run's history and end when the region restarts"


@app.command(epilog="Example: geoemu cut us-east eu-central --one-way")
def cut(
    a: LinkEnd, b: OtherLinkEnd, one_way: OneWay = False, as_curl: AsCurl = False, run_dir: RunDir = None
) -> None:
    """Drop all traffic between two regions. New connections fail; open ones stall."""
    if as_curl:
        _print_curls(run_dir, (a, b), one_way, lambda link: replace(link.shape, state="cut"))
        return
    _change_link(run_dir, (a, b), one_way, "cut", lambda run: run.cut(a, b, one_way=one_way), "is cut")


@app.command(epilog="Example: geoemu hold us-east eu-central")
def hold(
    a: LinkEnd, b: OtherLinkEnd, one_way: OneWay = False, as_curl: AsCurl = False, run_dir: RunDir = None
) -> None:
    """Queue traffic between two regions until `heal`, then deliver it in order."""
    if as_curl:
        _print_curls(run_dir, (a, b), one_way, lambda link: replace(link.shape, state="held"))
        return
    _change_link(run_dir, (a, b), one_way, "hold", lambda run: run.hold(a, b, one_way=one_way), "is held")


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
    if as_curl:
        changes = {"latency_ms": time} | ({} if jitter is None else {"jitter_ms": jitter})
        _print_curls(run_dir, (a, b), one_way, lambda link: replace(link.shape, **changes))  # type: ignore[arg-type]
        return
    act(
        run_dir,
        "latency",
        lambda run: run.latency(a, b, time, jitter_ms=jitter, one_way=one_way),
        region=a,
        other_region=b,
        detail=latency_detail(time, one_way=one_way),
    )
    print(f"{a} {'->' if one_way else '<->'} {b} has a latency of {time:g} ms")


@app.command(epilog="Example: geoemu skew us-east +250ms", context_settings={"ignore_unknown_options": True})
def skew(region: Region, time: SignedMilliseconds, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """Offset a region's wall clock, ahead (+250ms) or behind (-250ms); `0ms` corrects it. Timers are
    unaffected."""
    if as_curl:
        print(NOT_RECORDED, file=sys.stderr)
        print_curl(run_dir, CurlRequest("PUT", "/geoemu/v1/clock", {"ahead_ms": time}), [region])
        return
    act(run_dir, "skew", lambda run: run.skew(region, time), region=region, detail=skew_detail(time))
    how = f"{abs(time)} ms {'behind' if time < 0 else 'ahead'}" if time else "right"
    print(f"the clock of {region} is {how}")


@app.command(epilog="Example: geoemu heal us-east eu-central; or everything: geoemu heal")
def heal(
    a: OptionalLinkEnd = None,
    b: OptionalOtherLinkEnd = None,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Undo `cut`, `hold` and `latency` between two regions, or everywhere, and wait until links are
    established."""
    if a is not None and b is None:
        raise typer.BadParameter("name two regions, or none to heal everything", param_hint="B")
    if as_curl:
        ends = None if a is None or b is None else (a, b)
        _print_curls(run_dir, ends, False, lambda link: replace(link.declared, state="up"))
        return
    if a is None or b is None:
        act(run_dir, "heal", lambda run: run.heal(), detail="everything")
        print("all links are up")
    else:
        _change_link(run_dir, (a, b), False, "heal", lambda run: run.heal(a, b), "is up")


def _change_link(
    run_dir: Path | None, ends: tuple[str, str], one_way: bool, verb: str, change: Change, outcome: str
) -> None:
    way = "one way" if one_way else "both ways"
    act(run_dir, verb, change, region=ends[0], other_region=ends[1], detail=way)
    print(f"{ends[0]} {'->' if one_way else '<->'} {ends[1]} {outcome}")


def _print_curls(
    run_dir: Path | None,
    ends: tuple[str, str] | None,
    one_way: bool,
    new_shape: Callable[[LinkStatus], LinkShape],
) -> None:
    print(NOT_RECORDED, file=sys.stderr)
    print_link_curls(run_dir, ends, one_way=one_way, new_shape=new_shape)
