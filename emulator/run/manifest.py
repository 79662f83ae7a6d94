"""The manifest of a run, `made_by.json`: the version, command and scenario that created it. The report shows the
command to repeat the run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MADE_BY_FILE = "made_by.json"


@dataclass(frozen=True, slots=True)
class MadeBy:
    """The version, command and scenario that created a run."""

    version: str
    """Version of geoemu."""
    command: str
    """Command that creates a run like this one when it is typed in `folder`."""
    folder: str = ""
    """Folder in which the command was typed."""
    scenario: str = ""
    """Name of the scenario; empty if there was none."""
    description: str = ""
    steps: tuple[str, ...] = ()
    """All steps of the scenario, as written in its file."""


def write_manifest(
    run_dir: Path,
    version: str,
    command: str,
    *,
    scenario: str = "",
    description: str = "",
    steps: Sequence[str] = (),
) -> None:
    made_by = MadeBy(version, command, os.getcwd(), scenario, description, tuple(steps))
    (run_dir / MADE_BY_FILE).write_text(json.dumps(asdict(made_by), indent=1) + "\n")


def read_made_by(run_dir: Path) -> MadeBy | None:
    """Read the manifest of a run; None if it is missing or damaged."""
    try:
        raw: dict[str, Any] = json.loads((run_dir / MADE_BY_FILE).read_text())
        return MadeBy(**{**raw, "steps": tuple(raw.get("steps", ()))})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
