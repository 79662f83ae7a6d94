"""Check the pinned packages against security advisories, without a network.

    python -m scripts.audit ADVISORIES

ADVISORIES: a folder with records in the OSV format (JSON), or the zip file with all records of PyPI that osv.dev
publishes. Prints one line for each advisory that affects a package of requirements.lock. Exit codes: 0 none, 1 at least
one, 2 the advisories cannot be read, or there are none.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from scripts.lock import read_lock


class Unreadable(Exception):
    """The advisories cannot be read."""


class Finding(NamedTuple):
    """An advisory that affects a pinned package."""

    package: str
    version: str
    advisory: str
    summary: str
    fixed: str
    """The lowest version without the defect that is higher than the pinned one; empty: none is known."""

    def line(self) -> str:
        remedy = f"fixed in {self.fixed}" if self.fixed else "no fixed version"
        return f"{self.package} {self.version}: {self.advisory}, {remedy}: {self.summary}"


def pinned_versions() -> dict[str, set[str]]:
    """Return the versions of each package in requirements.lock."""
    return {
        canonicalize_name(name): set(re.findall(r"^[\w.-]+==([^\s;]+)", block, re.MULTILINE))
        for name, block in read_lock().items()
    }


def read_advisories(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a folder or zip file. Raises Unreadable."""
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*.json")):
                yield _parse(file.read_bytes(), file.name)
        else:
            with zipfile.ZipFile(path) as archive:
                for name in sorted(archive.namelist()):
                    yield _parse(archive.read(name), name)
    except (OSError, zipfile.BadZipFile) as failure:
        raise Unreadable(f"{path}: {failure}") from failure


def _parse(content: bytes, name: str) -> Mapping[str, Any]:
    try:
        record = json.loads(content)
    except ValueError as problem:
        raise Unreadable(f"{name} is not JSON: {problem}") from problem
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        raise Unreadable(f"{name} is no record in the OSV format: it has no id")
    return record


def _findings_of(record: Mapping[str, Any], pinned: Mapping[str, set[str]]) -> list[Finding]:
    try:
        return list(findings(record, pinned))
    except (AttributeError, KeyError, TypeError, InvalidVersion) as problem:
        raise Unreadable(f"{record['id']} is no record in the OSV format: {problem!r}") from problem


def findings(record: Mapping[str, Any], pinned: Mapping[str, set[str]]) -> Iterator[Finding]:
    """Yield what one record says of the pinned packages. Withdrawn records say nothing."""
    if "withdrawn" in record:
        return
    for affected in record.get("affected", ()):
        package = affected.get("package", {})
        if package.get("ecosystem") != "PyPI":
            continue
        name = canonicalize_name(package.get("name", ""))
        for version in sorted(pinned.get(name, ())):
            if is_affected(affected, version):
                summary = record.get("summary") or record.get("details", "").strip().partition("\n")[0]
                yield Finding(name, version, record["id"], summary, _fixed_version(affected, version))


def is_affected(affected: Mapping[str, Any], version: str) -> bool:
    """Whether a version is listed, or in one of the ranges. A version in an advisory that is none of PEP 440 is
    ignored, because no published package has it."""
    if version in affected.get("versions", ()):
        return True
    return any(_is_in(one["events"], Version(version)) for one in _ranges(affected))


def _ranges(affected: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (one for one in affected.get("ranges", ()) if one.get("type") in ("ECOSYSTEM", "SEMVER"))


def _is_in(events: list[Mapping[str, str]], version: Version) -> bool:
    """Evaluate the events of a range in the order of their versions, as the OSV specification says."""
    inside = False
    for at, kind in sorted(_parsed(events), key=lambda event: event[0]):
        if at <= version:
            inside = kind == "introduced" or (kind == "last_affected" and at == version and inside)
    return inside


def _parsed(events: list[Mapping[str, str]]) -> Iterator[tuple[Version, str]]:
    for event in events:
        for kind, text in event.items():
            try:
                yield Version(text), kind
            except InvalidVersion:
                continue


def _fixed_version(affected: Mapping[str, Any], version: str) -> str:
    fixes = [
        at
        for one in _ranges(affected)
        for at, kind in _parsed(one["events"])
        if kind == "fixed" and at > Version(version)
    ]
    return str(min(fixes)) if fixes else ""


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m scripts.audit ADVISORIES", file=sys.stderr)
        return 2
    pinned = pinned_versions()
    try:
        records = list(read_advisories(Path(arguments[0])))
        if not records:
            raise Unreadable(f"{arguments[0]} has no records")
        found = [finding for record in records for finding in _findings_of(record, pinned)]
    except Unreadable as problem:
        print(f"audit: {problem}", file=sys.stderr)
        return 2
    for finding in found:
        print(finding.line())
    print(f"{len(pinned)} packages, {len(records)} advisories: {len(found)} affect a pinned version")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
