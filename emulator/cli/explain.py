"""`geoemu explain` and `geoemu diff`: the state of a topic, subscription or link in every region, and the differences
between the configurations of two runs."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from emulator.cli.application import app, open_run_of
from emulator.cli.completion import complete_object
from emulator.cli.curl import CurlRequest, print_curl
from emulator.cli.details import details_as_lines, wrap_line
from emulator.cli.options import AsCurl, AsJson, OnlyRegion, RunDir
from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.model.explanations import KINDS
from emulator.run.directory import RunDirectory
from emulator.runtimes.explain_queries import (
    RegionResponse,
    check_object_name,
    explain_in_regions,
    explain_target,
    explanations_to_json,
)

NEW_LINE = "\n" + " " * 13
"""Indentation of continued lines."""


def request_of(kind: str, words: Sequence[str]) -> CurlRequest:
    """Return the request to each region. Raises ConfigurationError if the kind or the form of the name is invalid."""
    check_object_name(kind, words)
    return CurlRequest("GET", explain_target(kind, " ".join(words)))


def explanations_as_text(responses: Sequence[RegionResponse], columns: int | None = None) -> str:
    """Return the responses as text, equal ones of several regions once. `columns`: width at which lines are wrapped;
    None: sentences are not wrapped."""
    by_words: dict[tuple[str, ...], list[str]] = {}
    for one in responses:
        by_words.setdefault(tuple(_lines(one)), []).append(one.region)
    return "\n".join(
        wrapped
        for (first, *others), regions in by_words.items()
        for line in (f"{', '.join(regions)}: {first}", *others)
        for wrapped in wrap_line(line, columns)
    )


def _lines(response: RegionResponse) -> list[str]:
    """Return the lines of a response, without the name of the region."""
    one = response.explanation
    if one is None:
        return [response.problem]
    lines = [f"{one.kind} {one.name}", f"  is         {one.what}"]
    if one.since_ms is not None:
        since = datetime.fromtimestamp(one.since_ms / 1000).astimezone()
        lines.append(f"  since      {since.isoformat(sep=' ', timespec='seconds')}")
    if one.why:
        # Several reasons are several lines.
        lines.append(f"  because    {one.why.replace('; ', f';{NEW_LINE}')}")
    lines += [f"  waits for  {waited}" for waited in one.waits_for]
    return lines + ([] if one.subscription is None else details_as_lines(one.subscription))


def _complete_kind(incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


def _complete_name(context: typer.Context, incomplete: str) -> list[str]:
    kind, typed = context.params.get("kind") or "", context.params.get("name") or ()
    return complete_object(context, kind, [str(word) for word in typed], incomplete)


ExplainedKind = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="; ".join(f"{name}: {kind.doc}" for name, kind in KINDS.items()),
        autocompletion=_complete_kind,
    ),
]
ExplainedName = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="; ".join(f"{name}: {' '.join(kind.words)}" for name, kind in KINDS.items()),
        autocompletion=_complete_name,
    ),
]


@app.command(epilog="Example: geoemu explain replication orders eu-central")
def explain(
    kind: ExplainedKind,
    name: ExplainedName,
    region: OnlyRegion = None,
    as_json: AsJson = False,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Show the state of a topic, subscription or link and why it is waiting."""
    if as_curl:
        print_curl(run_dir, request_of(kind, name), None if region is None else [region])
        return
    responses = asyncio.run(explain_in_regions(open_run_of(run_dir), kind, name, region))
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if as_json:
        print(json.dumps(explanations_to_json(kind, name, responses), indent=1))
    else:
        print(explanations_as_text(responses, columns))
    raise typer.Exit(0 if any(one.explanation for one in responses) else 1)


@app.command(epilog="Example: geoemu diff .geoemu/runs/1 .geoemu/runs/2")
def diff(
    one: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="Another run directory.")],
    as_json: AsJson = False,
) -> None:
    """Compare the configuration of two runs: regions, settings, links, policies. Exit code 1 if they
    differ."""
    found = differences(one, other)
    print(differences_as_json(found) if as_json else differences_as_text(found, one, other))
    raise typer.Exit(1 if found else 0)


ABSENT = "-"
POLICY_KINDS = ("tenant/", "namespace/", "topic-policies/", "broker-policies/", "partitioned-topic/")
"""Prefixes of the metadata paths that users change."""


class ConfigDifference(NamedTuple):
    what: str
    one: Any
    """Value in the first run; None: it has none."""
    other: Any
    """Value in the second run; None: it has none."""


def differences(one: Path, other: Path) -> list[ConfigDifference]:
    """Return the differences between the configurations of two runs, sorted by name. Raises Refused if a folder
    contains no run."""
    first, second = facts(one), facts(other)
    return [
        ConfigDifference(what, first.get(what), second.get(what))
        for what in sorted(first.keys() | second.keys())
        if first.get(what) != second.get(what)
    ]


def facts(run_dir: Path) -> dict[str, Any]:
    """Return the configuration of a run: name -> value."""
    directory = RunDirectory(run_dir)
    found: dict[str, Any] = {"runtime": directory.read().runtime}
    topology = _topology(run_dir / "topology.json")
    for switch, value in topology.compatibility.items():
        found[f"compatibility {switch}"] = value
    for region in topology.regions:
        found[f"region {region.name}: cluster"] = region.cluster
        found[f"region {region.name}: log"] = region.log.backend
        for setting, value in asdict(region.settings).items():
            found[f"region {region.name}: {setting}"] = value
        found.update(_policies(region.cluster, directory.region_dir(region.name) / "metadata.jsonl"))
    for link in topology.links:
        for field, value in asdict(link.shape).items():
            found[f"link {link.source} -> {link.target}: {field}"] = value
    return found


def _topology(file: Path) -> Topology:
    try:
        return Topology.from_json(file.read_text())
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise Refused(f"{file} cannot be read: {problem}") from None


def _policies(cluster: str, file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the policies in the changelog of a region: name, latest value."""
    for path, document in _last_values(file).items():
        kind, _, location = path.partition("/")
        policies = document.get("policies", {}) if isinstance(document, dict) else {}
        rest = {key: value for key, value in document.items() if key != "policies"} if policies else document
        what = f"cluster {cluster}: {kind} {location.replace('%2F', '/')}"
        yield what, rest or "is there"
        for policy, value in policies.items():
            yield f"{what}: {policy}", value


def _last_values(file: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    if not file.exists():
        return found
    for line in file.read_text(errors="replace").splitlines():
        try:
            change = json.loads(line)
            path = change.get("path", "")
            if not path.startswith(POLICY_KINDS):
                continue
            value = None if change["value"] is None else json.loads(change["value"])
        except (ValueError, KeyError, AttributeError, TypeError):
            continue  # the last line of a killed region may be incomplete
        if value is None:
            found.pop(path, None)
        else:
            found[path] = value
    return found


def differences_as_text(found: list[ConfigDifference], one: Path, other: Path) -> str:
    if not found:
        return f"{one} and {other} have the same configuration"
    return "\n".join(f"{each.what}: {_shown(each.one)} | {_shown(each.other)}" for each in found)


def _shown(value: Any) -> str:
    return ABSENT if value is None else value if isinstance(value, str) else json.dumps(value)


def differences_as_json(found: list[ConfigDifference]) -> str:
    return json.dumps([each._asdict() for each in found], indent=1)
