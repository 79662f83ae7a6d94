"""`geoemu explain` and `geoemu diff`: the state of a topic, subscription or link in every region, and the differences
between the configurations of two runs."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import typer

from emulator.cli.application import LOST, app, open_run_of
from emulator.cli.curl import CurlRequest, print_curl
from emulator.cli.details import details_as_lines, wrap_line
from emulator.cli.options import AsCurl, AsJson, OnlyRegion, RunDir
from emulator.config.topology import Topology
from emulator.errors import ConfigurationError, GeoemuError, Problem, Refused
from emulator.model.explanations import KINDS, Explanation, with_conflicts
from emulator.model.suggestions import nearest
from emulator.run.directory import RunDirectory
from emulator.runtimes.admin_client import NoHttpResponse, call_url
from emulator.runtimes.contract import RegionStatus, RunStatus, Runtime
from emulator.runtimes.opening import open_run

NEW_LINE = "\n" + " " * 13
"""Indentation of continued lines."""


@dataclass(frozen=True, slots=True)
class RegionResponse:
    region: str
    explanation: Explanation | None
    problem: str = ""
    """Why there is no explanation."""
    is_unknown: bool = False
    """The region responded that it does not know the name."""


async def explain_in_regions(
    run: Runtime, kind: str, words: Sequence[str], only: str | None
) -> list[RegionResponse]:
    """Return the explanations of every region, or of `only` one. Raises ConfigurationError if the kind or the region is
    unknown, or if no region knows the name."""
    _check(kind, words)
    status = await run.status()
    if only is not None:
        run.topology.region(only)
    queried = [region for region in status.regions if kind == "subscription" or only in (None, region.name)]
    explained = await asyncio.gather(*(_explain_in(region, kind, " ".join(words)) for region in queried))
    responses = [one for one in _with_conflicts(explained) if only in (None, one.region)]
    unknown = [one for one in responses if one.is_unknown]
    if unknown and not any(one.explanation for one in responses):
        raise _refused(" ".join(words), "; ".join(_merge_equal_problems(unknown)))
    return [one for one in responses if _is_about(kind, words, one)]


def _is_about(kind: str, words: Sequence[str], response: RegionResponse) -> bool:
    """Return whether to show a response: for a link those of its source and, if it knows the link, its target; for a
    replication not that of a target that does not know it."""
    if kind == "link":
        return response.region == words[0] or (response.region == words[1] and not response.is_unknown)
    return kind != "replication" or response.region != words[1] or not response.is_unknown


def _with_conflicts(responses: Sequence[RegionResponse]) -> list[RegionResponse]:
    explained = with_conflicts([one.explanation for one in responses if one.explanation is not None])
    by_region = {one.region: one for one in explained}
    return [replace(one, explanation=by_region.get(one.region)) for one in responses]


def _merge_equal_problems(refusals: Sequence[RegionResponse]) -> list[str]:
    """Return the problems of regions, equal ones of several regions once."""
    by_words: dict[str, list[RegionResponse]] = {}
    for one in refusals:
        by_words.setdefault(one.problem.removeprefix(f"region {one.region} has "), []).append(one)
    return [
        several[0].problem
        if len(several) == 1
        else f"regions {', '.join(one.region for one in several)} have {words}"
        for words, several in by_words.items()
    ]


def _check(kind: str, words: Sequence[str]) -> None:
    if kind not in KINDS:
        raise _refused(kind, f"is not a kind; there are {', '.join(KINDS)}", nearest(kind, KINDS))
    shape = KINDS[kind].words
    if len(words) != len(shape):
        raise _refused(" ".join(words), f"the name of a {kind} is {' '.join(shape)}")


def _refused(value: str, rule: str, suggestion: str | None = None) -> ConfigurationError:
    return ConfigurationError([Problem("explain", None, "", value, rule, suggestion)])


def request_of(kind: str, words: Sequence[str]) -> CurlRequest:
    """Return the request to each region. Raises ConfigurationError if the kind or the form of the name is invalid."""
    _check(kind, words)
    return CurlRequest("GET", _target(kind, " ".join(words)))


def _target(kind: str, name: str) -> str:
    return f"/geoemu/v1/explain/{quote(kind, safe='')}/{quote(name, safe='')}"


async def _explain_in(region: RegionStatus, kind: str, name: str) -> RegionResponse:
    try:
        answer = await call_url(region.admin_url, "GET", _target(kind, name))
    except NoHttpResponse as failure:
        return RegionResponse(region.name, None, _describe_no_response(region, str(failure)))
    raw = answer.json()
    if answer.status != 200:
        return RegionResponse(region.name, None, raw["reason"], is_unknown=answer.status == 404)
    return RegionResponse(region.name, Explanation.from_json(raw))


def _describe_no_response(region: RegionStatus, failure: str) -> str:
    if region.state == "lost":
        return f"it is {LOST}"
    return f"it is {region.state} and does not respond ({failure})"


CONFLICTS = "/geoemu/v1/replication-conflicts"
BLOCKED = "/geoemu/v1/blocked-snapshots"


async def replication_conflicts(status: RunStatus) -> list[dict[str, str]]:
    """Return the subscriptions whose position one region sends and another one does not apply, as the running regions
    report them."""
    return await _rows_of(status, CONFLICTS)


async def blocked_snapshots(status: RunStatus) -> list[dict[str, Any]]:
    """Return the regions that prevent snapshots of replicated subscriptions, as the running regions report them."""
    return await _rows_of(status, BLOCKED)


async def _rows_of(status: RunStatus, target: str) -> list[dict[str, Any]]:
    """Return the rows that all running regions return; none for a region without a response."""
    running = [region for region in status.regions if region.state == "running"]
    found = await asyncio.gather(*(_rows_in(region, target) for region in running))
    return [row for rows in found for row in rows]


async def _rows_in(region: RegionStatus, target: str) -> list[dict[str, Any]]:
    try:
        answer = await call_url(region.admin_url, "GET", target)
    except NoHttpResponse:
        return []
    return list(answer.json()) if answer.status == 200 else []


def explanations_as_json(kind: str, words: Sequence[str], responses: Sequence[RegionResponse]) -> str:
    """Return the responses as JSON."""
    return json.dumps(
        {
            "kind": kind,
            "name": " ".join(words),
            "regions": [
                {"region": one.region, "problem": one.problem}
                if one.explanation is None
                else one.explanation.to_json()
                for one in responses
            ],
        },
        indent=1,
    )


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


def complete_name(run_dir: Path | None, kind: str, typed: Sequence[str], incomplete: str) -> list[str]:
    """Return the words that may follow `typed` in a name that a region of the run knows. Raises Refused if there is no
    run."""

    async def query() -> list[list[str]]:
        status = await open_run(run_dir).status()
        found: list[list[str]] = []
        for region in status.regions:
            try:
                target = f"/geoemu/v1/explain/{quote(kind, safe='')}"
                answer = await call_url(region.admin_url, "GET", target)
            except NoHttpResponse:
                continue
            if answer.status == 200:
                found += [name.split(" ") for name in answer.json()]
        return found

    at = len(typed)
    names = asyncio.run(query())
    fitting = {name[at] for name in names if name[:at] == list(typed) and len(name) > at}
    return sorted(word for word in fitting if word.startswith(incomplete))


def _complete_kind(incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


def _complete_name(context: typer.Context, incomplete: str) -> list[str]:
    kind, typed = context.params.get("kind"), context.params.get("name") or ()
    try:
        return complete_name(context.params.get("run_dir"), kind or "", list(typed), incomplete)
    except GeoemuError:
        return []


ExplainedKind = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="; ".join(f"{name}: {kind.doc}" for name, kind in KINDS.items()),
        autocompletion=_complete_kind,
        show_default=False,
    ),
]
ExplainedName = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="; ".join(f"{name}: {' '.join(kind.words)}" for name, kind in KINDS.items()),
        autocompletion=_complete_name,
        show_default=False,
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
    text = (
        explanations_as_json(kind, name, responses) if as_json else explanations_as_text(responses, columns)
    )
    print(text)
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
