"""`geoemu diff`: what two runs were told differently: regions, settings, links as declared, policies as they were last.

Read from the folders of the runs, which may be over: `topology.json`, and what each region learned of its cluster's
configuration (`metadata.jsonl`). Ports and places on this machine differ from run to run and mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.run.directory import RunDirectory

ABSENT = "-"
POLICY_KINDS = ("tenant/", "namespace/", "topic-policies/", "broker-policies/", "partitioned-topic/")
"""What regions learn of, and a person decides."""


class Difference(NamedTuple):
    what: str
    one: Any
    """None: not there."""
    other: Any


def differences(one: Path, other: Path) -> list[Difference]:
    """Sorted by what differs. Refused when a folder holds no run."""
    first, second = facts(one), facts(other)
    return [
        Difference(what, first.get(what), second.get(what))
        for what in sorted(first.keys() | second.keys())
        if first.get(what) != second.get(what)
    ]


def facts(run_dir: Path) -> dict[str, Any]:
    """What a run was told, one value a name."""
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
    """As the region learned them last."""
    for path, document in _last_values(file).items():
        kind, _, place = path.partition("/")
        policies = document.get("policies", {}) if isinstance(document, dict) else {}
        rest = {key: value for key, value in document.items() if key != "policies"} if policies else document
        what = f"cluster {cluster}: {kind} {place.replace('%2F', '/')}"
        yield what, rest or "is there"
        for policy, value in policies.items():
            yield f"{what}: {policy}", value


def _last_values(file: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    if not file.exists():
        return found
    for line in file.read_text(errors="replace").splitlines():
        try:
            told = json.loads(line)
            path = told.get("path", "")
            if not path.startswith(POLICY_KINDS):
                continue
            value = None if told["value"] is None else json.loads(told["value"])
        except (ValueError, KeyError, AttributeError, TypeError):
            continue  # the last line of a region that was killed may be half a line
        if value is None:
            found.pop(path, None)
        else:
            found[path] = value
    return found


def as_text(found: list[Difference], one: Path, other: Path) -> str:
    """One line a difference."""
    if not found:
        return f"{one} and {other} have the same configuration"
    return "\n".join(f"{each.what}: {_shown(each.one)} | {_shown(each.other)}" for each in found)


def _shown(value: Any) -> str:
    return ABSENT if value is None else value if isinstance(value, str) else json.dumps(value)


def as_json(found: list[Difference]) -> str:
    return json.dumps([each._asdict() for each in found], indent=1)
