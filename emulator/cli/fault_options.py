"""Options and arguments of the verbs that inject faults of links, frames, clocks and disks."""

from __future__ import annotations

from typing import Annotated

import typer

from emulator.cli.completion import complete_region
from emulator.config.link_profiles import PROFILES
from emulator.model.frame_faults import COMMANDS, MARKERS
from emulator.model.values import bytes_per_second_in, fraction_in, ppm_in, seconds_in


def _milliseconds(text: str) -> float:
    try:
        return seconds_in(text) * 1000
    except ValueError as problem:
        raise typer.BadParameter(f"{text!r} {problem}") from None


def _signed_milliseconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    return sign * round(_milliseconds(text.removeprefix("-").removeprefix("+")))


def _bytes_per_second(text: str) -> int:
    """Return 0 for `unlimited`."""
    try:
        return bytes_per_second_in(text) or 0
    except ValueError as problem:
        raise typer.BadParameter(f"{text!r} {problem}") from None


def _fraction(text: str) -> float:
    try:
        return fraction_in(text)
    except ValueError as problem:
        raise typer.BadParameter(f"{text!r} {problem}") from None


def _drift(text: str) -> float:
    try:
        return ppm_in(text)
    except ValueError as problem:
        raise typer.BadParameter(f"{text!r} {problem}") from None


def _complete_frame(incomplete: str) -> list[str]:
    return [name for name in sorted((*COMMANDS, *MARKERS)) if name.startswith(incomplete)]


# Links.

_LINK_END = "A region, several with commas, a pattern like 'eu-*', or `clients`: those of the regions at the other end."
LinkEnd = Annotated[
    str, typer.Argument(metavar="A", help=_LINK_END, autocompletion=complete_region, show_default=False)
]
OtherLinkEnd = Annotated[
    str,
    typer.Argument(metavar="B", help="The other end.", autocompletion=complete_region, show_default=False),
]
OptionalLinkEnd = Annotated[
    str | None,
    typer.Argument(metavar="A", help=_LINK_END, autocompletion=complete_region, show_default=False),
]
OptionalOtherLinkEnd = Annotated[
    str | None,
    typer.Argument(metavar="B", help="The other end.", autocompletion=complete_region, show_default=False),
]
OneWay = Annotated[bool, typer.Option("--one-way", help="Affect only traffic from A to B.")]
Milliseconds = Annotated[
    float,
    typer.Argument(
        metavar="TIME",
        parser=_milliseconds,
        help="One-way latency, such as 200ms or 1.5s.",
        show_default=False,
    ),
]
JitterMilliseconds = Annotated[
    float | None,
    typer.Option(
        "--jitter",
        metavar="TIME",
        parser=_milliseconds,
        help=("Maximum of the additional random latency. Default: unchanged."),
    ),
]
BytesPerSecond = Annotated[
    int,
    typer.Argument(
        metavar="BANDWIDTH",
        parser=_bytes_per_second,
        help="Bandwidth in one direction, such as 500KB/s or 1MB/s, or `unlimited`.",
        show_default=False,
    ),
]
StallMilliseconds = Annotated[
    float,
    typer.Argument(
        metavar="TIME", parser=_milliseconds, help="Length of each stall, such as 500ms.", show_default=False
    ),
]
StallInterval = Annotated[
    float,
    typer.Option(
        "--every",
        metavar="TIME",
        parser=_milliseconds,
        help="Interval between the beginnings of two stalls.",
        show_default=False,
    ),
]
FlapPeriod = Annotated[
    float,
    typer.Option(
        "--period", metavar="TIME", parser=_milliseconds, help="Length of a period.", show_default=False
    ),
]
UpFraction = Annotated[
    float | None,
    typer.Option(
        "--up",
        metavar="PERCENT",
        parser=_fraction,
        help="Part of each period, at its beginning, in which the link is up. Default: 50%.",
        show_default=False,
    ),
]
NamedProfile = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE",
        help=f"A named link: {', '.join(PROFILES)} (docs/reference/topology.md).",
        autocompletion=lambda incomplete: [name for name in PROFILES if name.startswith(incomplete)],
        show_default=False,
    ),
]

# Frames of one direction of a link.

LinkDirection = Annotated[
    str,
    typer.Argument(
        metavar="LINK",
        help="One direction of a link, such as 'us-east->eu-central' or 'clients->us-east'; quote it.",
        show_default=False,
    ),
]
FrameName = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="Name of a command or marker, such as send, send_receipt or snapshot_response.",
        autocompletion=_complete_frame,
        show_default=False,
    ),
]
FrameDelay = Annotated[
    float,
    typer.Argument(
        metavar="TIME", parser=_milliseconds, help="Delay, such as 500ms or 2s.", show_default=False
    ),
]
FrameCount = Annotated[
    int, typer.Option("--count", metavar="N", help="Number of matching frames, in a row, that are affected.")
]
FirstFrame = Annotated[
    int,
    typer.Option("--nth", metavar="N", help="The first affected frame: the n-th matching one from now on."),
]

# Clocks and disks.

SignedMilliseconds = Annotated[
    int,
    typer.Argument(
        metavar="TIME",
        parser=_signed_milliseconds,
        help="Offset, such as +250ms or -2s; 0ms corrects the clock.",
        show_default=False,
    ),
]
Drift = Annotated[
    float | None,
    typer.Option(
        "--drift",
        metavar="PPM",
        parser=_drift,
        help="What the clock gains from now on, such as 200ppm, or loses (-200ppm). Default: none.",
        show_default=False,
    ),
]
DiskStateName = Annotated[
    str, typer.Argument(metavar="STATE", help="healthy, slow, full or failing.", show_default=False)
]
DiskDelay = Annotated[
    float | None,
    typer.Option(
        "--by",
        metavar="TIME",
        parser=_milliseconds,
        help="By how much each write to a slow disk takes longer, up to a minute. Default: 200ms.",
        show_default=False,
    ),
]
