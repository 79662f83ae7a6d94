"""Verbs that change links between regions, and their clocks."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

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
from emulator.cli.verbs.acting import Change, act, print_curl
from emulator.cli.verbs.application import app


@app.command(epilog="Example: geoemu cut us-east eu-central --one-way")
def cut(a: LinkEnd, b: OtherLinkEnd, one_way: OneWay = False, run_dir: RunDir = None) -> None:
    """Let nothing pass between two regions: connecting fails, and who is connected hears nothing any more."""
    _change_link(run_dir, (a, b), one_way, "cut", lambda run: run.cut(a, b, one_way=one_way), "is cut")


@app.command(epilog="Example: geoemu hold us-east eu-central")
def hold(a: LinkEnd, b: OtherLinkEnd, one_way: OneWay = False, run_dir: RunDir = None) -> None:
    """Let what two regions send each other wait; `heal` delivers it in order."""
    _change_link(run_dir, (a, b), one_way, "hold", lambda run: run.hold(a, b, one_way=one_way), "is held")


@app.command(epilog="Example: geoemu latency us-east eu-central 200ms --jitter 20ms")
def latency(
    a: LinkEnd,
    b: OtherLinkEnd,
    time: Milliseconds,
    jitter: JitterMilliseconds = None,
    one_way: OneWay = False,
    run_dir: RunDir = None,
) -> None:
    """Let what two regions send each other take so long; `heal` goes back to what the topology declares."""
    from emulator.history import latency_detail

    act(
        run_dir,
        "latency",
        lambda run: run.latency(a, b, time, jitter_ms=jitter, one_way=one_way),
        region=a,
        other_region=b,
        detail=latency_detail(time, one_way=one_way),
    )
    print(f"{a} {'->' if one_way else '<->'} {b} takes {time:g} ms")


@app.command(epilog="Example: geoemu skew us-east +250ms", context_settings={"ignore_unknown_options": True})
def skew(region: Region, time: SignedMilliseconds, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """Set a region's wall clock so far ahead, or behind (-250ms); `0ms` sets it right. Its timers go on as they did."""
    from emulator.cli.curl import Request
    from emulator.history import skew_detail

    if as_curl:
        print(
            "what curl does is not in the run's history, and is over when the region restarts",
            file=sys.stderr,
        )
        print_curl(run_dir, Request("PUT", "/geoemu/v1/clock", {"ahead_ms": time}), [region])
        return
    act(run_dir, "skew", lambda run: run.skew(region, time), region=region, detail=skew_detail(time))
    how = f"{abs(time)} ms {'behind' if time < 0 else 'ahead'}" if time else "right"
    print(f"the clock of {region} is {how}")


@app.command(epilog="Example: geoemu heal us-east eu-central; or everything: geoemu heal")
def heal(a: OptionalLinkEnd = None, b: OptionalOtherLinkEnd = None, run_dir: RunDir = None) -> None:
    """Undo `cut`, `hold` and `latency` between two regions, or everywhere, and wait until regions are linked again."""
    if a is None or b is None:
        if a is not None:
            raise typer.BadParameter("name two regions, or none to heal everything", param_hint="B")
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
