"""Options and arguments of the verbs that inject faults of links, frames, clocks and disks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from emulator.cli.completion import complete_region
from emulator.config.link_profiles import PROFILES
from emulator.model.frame_faults import COMMANDS, MARKERS
from emulator.model.units import bytes_per_second_in, fraction_in, ppm_in, seconds_in

T = TypeVar("T")


def _parser_of(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a parser for a parameter, which shows a ValueError of `parse` with the text that the user typed."""

    def parse_or_refuse(text: str) -> T:
        try:
            return parse(text)
        except ValueError as problem:
            raise typer.BadParameter(f"{text!r} {problem}") from None

    return parse_or_refuse


_milliseconds = _parser_of(lambda text: seconds_in(text) * 1000)
_bytes_per_second = _parser_of(lambda text: bytes_per_second_in(text) or 0)
"""Returns 0 for `unlimited`."""


def _signed_milliseconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    return sign * round(_milliseconds(text.removeprefix("-").removeprefix("+")))


def _complete_frame(incomplete: str) -> list[str]:
    return [name for name in sorted((*COMMANDS, *MARKERS)) if name.startswith(incomplete)]


# Links.

_LINK_END = "A region, several with commas, a pattern like 'eu-*', or `clients`: those of the regions at the other end."
LinkEnd = Annotated[str, typer.Argument(metavar="A", help=_LINK_END, autocompletion=complete_region)]
OtherLinkEnd = Annotated[
    str, typer.Argument(metavar="B", help="The other end.", autocompletion=complete_region)
]
OptionalLinkEnd = Annotated[
    str | None, typer.Argument(metavar="A", help=_LINK_END, autocompletion=complete_region)
]
OptionalOtherLinkEnd = Annotated[
    str | None, typer.Argument(metavar="B", help="The other end.", autocompletion=complete_region)
]
OneWay = Annotated[bool, typer.Option("--one-way", help="Affect only traffic from A to B.")]
Milliseconds = Annotated[
    float,
    typer.Argument(metavar="TIME", parser=_milliseconds, help="One-way latency, such as 200ms or 1.5s."),
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
    ),
]
StallMilliseconds = Annotated[
    float, typer.Argument(metavar="TIME", parser=_milliseconds, help="Length of each stall, such as 500ms.")
]
StallInterval = Annotated[
    float,
    typer.Option(
        "--every", metavar="TIME", parser=_milliseconds, help="Interval between the beginnings of two stalls."
    ),
]
FlapPeriod = Annotated[
    float, typer.Option("--period", metavar="TIME", parser=_milliseconds, help="Length of a period.")
]
UpFraction = Annotated[
    float | None,
    typer.Option(
        "--up",
        metavar="PERCENT",
        parser=_parser_of(fraction_in),
        help="Part of each period, at its beginning, in which the link is up. Default: 50%.",
    ),
]
NamedProfile = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE",
        help=f"A named link: {', '.join(PROFILES)} (docs/reference/topology.md).",
        autocompletion=lambda incomplete: [name for name in PROFILES if name.startswith(incomplete)],
    ),
]

# Frames of one direction of a link.

LinkDirection = Annotated[
    str,
    typer.Argument(
        metavar="LINK",
        help="One direction of a link, such as 'us-east->eu-central' or 'clients->us-east'; quote it.",
    ),
]
FrameName = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="Name of a command or marker, such as send, send_receipt or snapshot_response.",
        autocompletion=_complete_frame,
    ),
]
FrameDelay = Annotated[
    float, typer.Argument(metavar="TIME", parser=_milliseconds, help="Delay, such as 500ms or 2s.")
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
    ),
]
Drift = Annotated[
    float | None,
    typer.Option(
        "--drift",
        metavar="PPM",
        parser=_parser_of(ppm_in),
        help="What the clock gains from now on, such as 200ppm, or loses (-200ppm). Default: none.",
    ),
]
DiskStateName = Annotated[str, typer.Argument(metavar="STATE", help="healthy, slow, full or failing.")]
DiskDelay = Annotated[
    float | None,
    typer.Option(
        "--by",
        metavar="TIME",
        parser=_milliseconds,
        help="By how much each write to a slow disk takes longer, up to a minute. Default: 200ms.",
    ),
]
