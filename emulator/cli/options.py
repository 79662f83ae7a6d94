"""Options and arguments that several verbs have, and their completion in the shell."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer

from emulator.cli.completion import complete_cluster, complete_object, complete_region, complete_topic
from emulator.model.conditions import CONDITIONS
from emulator.model.protocol_events import MORE, PROTOCOL_EVENTS, ProtocolState
from emulator.model.units import seconds_in
from emulator.net.addresses import HOST_RULE, is_host
from emulator.run.directory import find_run
from emulator.runtimes.opening import RUNTIMES


def _complete_runtime(incomplete: str) -> list[str]:
    return [runtime for runtime in RUNTIMES if runtime.startswith(incomplete)]


DEFAULT_TOPOLOGY = Path("topology.yaml")
TopologyFile = Annotated[
    Path, typer.Option("-f", "--file", "--topology", metavar="FILE", help="The topology.")
]
RunDir = Annotated[
    Path | None,
    typer.Option(
        "--run-dir", metavar="DIR", help="The run directory. Default: the latest run of this folder."
    ),
]
NewRunDir = Annotated[
    Path | None,
    typer.Option("--run-dir", metavar="DIR", help="Run directory. Default: a new one in .geoemu/runs."),
]
RuntimeName = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        metavar="NAME",
        help=f"Runtime of the regions: {' or '.join(RUNTIMES)}. Default: the topology's.",
        autocompletion=_complete_runtime,
    ),
]


def _address(text: str) -> str:
    if not is_host(text):
        raise typer.BadParameter(f"{text!r} {HOST_RULE}")
    return text


Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="ADDRESS",
        parser=_address,
        help="Address of this machine that all regions listen on. Default: the topology's, or 127.0.0.1.",
    ),
]
HostNames = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        parser=_address,
        help="A further host name or address of the regions; may be repeated. Names of this machine and of all "
        "regions of the topology are always included.",
    ),
]


_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_LIFETIME_DAYS_MAX = 36_500


def _lifetime(text: str) -> timedelta:
    """Return the time for which a certificate or token is valid."""
    found = re.fullmatch(r"([0-9]{1,10})([smhd])", text)
    lifetime = timedelta(seconds=int(found[1]) * _SECONDS_PER_UNIT[found[2]] if found else 0)
    if not timedelta(0) < lifetime <= timedelta(days=_LIFETIME_DAYS_MAX):
        rule = f"must be a duration like 30s, 10m, 1h or 365d, above 0 and at most {_LIFETIME_DAYS_MAX}d"
        raise typer.BadParameter(f"{text!r} {rule}")
    return lifetime


Expires = Annotated[
    timedelta | None,
    typer.Option(
        "--expires",
        metavar="DURATION",
        parser=_lifetime,
        help="Time until it expires, such as 1h or 30d. Default: a year for certificates, never for tokens.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow addresses that other machines can reach, of regions without authentication or TLS.",
    ),
]
Region = Annotated[
    str, typer.Argument(metavar="REGION", help="A region of the run.", autocompletion=complete_region)
]
Regions = Annotated[
    list[str] | None,
    typer.Argument(metavar="REGION...", help="Regions of the run.", autocompletion=complete_region),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="NAME", help="All regions of a cluster.", autocompletion=complete_cluster
    ),
]
WithStore = Annotated[
    bool,
    typer.Option(
        "--with-store",
        help=(
            "With --cluster: lose its configuration store as well. "
            "If the cluster is started again, it begins with an empty one."
        ),
    ),
]


def seconds(text: str) -> float:
    """Return the seconds of a duration; a number without a unit is seconds."""
    try:
        return float(text) if text.replace(".", "", 1).isdigit() else seconds_in(text)
    except ValueError as problem:
        raise typer.BadParameter(f"{text!r} {problem}") from None


def chaos_seconds(text: str) -> float:
    """Return the seconds of a duration that random faults may have."""
    from emulator.scenarios.chaos.plan import SECONDS_MAX, SECONDS_MIN

    given = seconds(text)
    if not SECONDS_MIN <= given <= SECONDS_MAX:
        raise typer.BadParameter(
            f"{text!r} must be between {SECONDS_MIN:g}s and {SECONDS_MAX / 60:g}m (7 days)"
        )
    return given


def _complete_state(incomplete: str) -> list[str]:
    """Return the names of protocol states that match, for a number after them."""
    names = [f"{event}{suffix}=" for event in PROTOCOL_EVENTS for suffix in ("", MORE)]
    return [name for name in names if name.startswith(incomplete)]


def protocol_state(text: str) -> ProtocolState:
    """Return the state in a text such as `snapshot_round=2`."""
    name, _, number = text.partition("=")
    try:
        return ProtocolState.of({name: int(number) if re.fullmatch(r"-?[0-9]{1,30}", number) else number})
    except ValueError as problem:
        raise typer.BadParameter(f"{text[:60]!r}: {problem}") from None


def _complete_awaited(context: typer.Context, incomplete: str) -> list[str]:
    """Return the conditions and regions that match."""
    conditions = [condition for condition in CONDITIONS if condition.startswith(incomplete)]
    return [*conditions, *complete_region(context, incomplete)]


Awaited = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="A region of the run; or "
        + "; ".join(f"{name}: {definition}" for name, definition in CONDITIONS.items()),
        autocompletion=_complete_awaited,
    ),
]


def _complete_awaited_word(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics and subscriptions that may follow a condition, or the states that may follow a region."""
    words = [str(word) for word in context.params.get("words") or ()]
    if context.params.get("what") not in CONDITIONS:
        return _complete_state(incomplete)
    return complete_object(context, "subscription" if words else "topic", words[:1], incomplete)


AwaitedWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME...",
        help="After a region, NAME=NUMBER: a protocol event and its number, such as snapshot_round=2 "
        "(docs/SCENARIOS.md lists the names). After a condition, a topic, or a topic and a subscription.",
        autocompletion=_complete_awaited_word,
    ),
]
OnlyTopic = Annotated[
    str | None,
    typer.Option(
        "--topic", metavar="TOPIC", help="Count events of this topic only.", autocompletion=complete_topic
    ),
]
Within = Annotated[
    float | None,
    typer.Option("--within", "--timeout", metavar="TIME", parser=seconds, help="Maximum time. Default: 30s."),
]
OnlyRegion = Annotated[
    str | None,
    typer.Option(
        "--region", metavar="REGION", help="Query this region only.", autocompletion=complete_region
    ),
]
LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option("--log-format", help="Format of the regions' logs: text lines or JSON objects."),
]
AsCurl = Annotated[
    bool, typer.Option("--curl", help="Print the equivalent curl commands and change nothing.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _limits(text: str) -> str:
    from emulator.run.limits import parse_limits

    try:
        parse_limits(text)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    return text


Expect = Annotated[
    str | None,
    typer.Option(
        "--expect",
        metavar="LIMITS",
        parser=_limits,
        help=(
            "Limits, such as unrecovered=0,redelivered<=500,gap<=5s; exit code 1 if one is missed "
            "(docs/LIMITS.md)."
        ),
    ),
]
ContractFile = Annotated[
    Path | None,
    typer.Option(
        "--contract",
        metavar="FILE",
        help=(
            "YAML file with `contract` and `expect` as in a scenario. They are stored with the run, so later verdicts "
            "check them too (docs/OWN_SERVICE.md)."
        ),
    ),
]
JunitFile = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Also write the checks as JUnit XML.")
]
MarkdownFile = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Also write the checks as Markdown.")
]
VerifiedRun = Annotated[
    Path | None,
    typer.Argument(metavar="RUN_DIR", help="The run directory. Default: the latest run of this folder."),
]
VerifiedRunOption = Annotated[
    Path | None, typer.Option("--run-dir", metavar="DIR", help=("The run directory, instead of RUN_DIR."))
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="URL of a Spark cluster. Default: as Spark is configured, or a local Spark.",
    ),
]
InNetwork = Annotated[
    bool,
    typer.Option(
        "--in-network", help=("Verify in a container beside the regions; this machine needs no Java.")
    ),
]
FollowRun = Annotated[
    bool,
    typer.Option("--follow", help="Print lags and violations while the run is running, then the verdict."),
]
Followed = Annotated[
    list[str] | None,
    typer.Option(
        "--message",
        metavar="PRODUCER:NUMBER",
        help="Print the journey of one message, by producer and sequence id. Repeatable.",
    ),
]
EngineName = Annotated[
    Literal["spark", "embedded"] | None,
    typer.Option(
        "--engine",
        help=(
            "Engine that computes the verdict: Spark, or DuckDB in the verifier, without Java. Default:"
            " spark, or embedded if there is no Java."
        ),
    ),
]
ReportDir = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="DIR", help="Folder of the report. Default: report/ in the run directory."
    ),
]


def verified_run(directory: Path | None, run_dir: Path | None) -> Path:
    """Return the run directory that a command names in one of two ways, by default the latest run of this folder.
    Raises BadParameter for two different ones, Refused if there is none."""

    if directory and run_dir and directory != run_dir:
        raise typer.BadParameter("name one run directory only", param_hint="--run-dir")
    return directory or run_dir or find_run(None).path
