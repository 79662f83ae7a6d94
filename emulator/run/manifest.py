"""How a run was made: `made_by.json` in its folder. A report names it in its head, with the command to repeat the
run."""

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
    """Who made a run, and of what."""

    version: str
    """Of geoemu."""
    command: str
    """What makes another one like it, as it is typed in `folder`."""
    folder: str = ""
    scenario: str = ""
    """Its name; empty if there was none."""
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
    """Write it into the run directory."""
    made_by = MadeBy(version, command, os.getcwd(), scenario, description, tuple(steps))
    (run_dir / MADE_BY_FILE).write_text(json.dumps(asdict(made_by), indent=1) + "\n")


def read_made_by(run_dir: Path) -> MadeBy | None:
    """None where nothing of the kind is there, or can be read."""
    try:
        raw: dict[str, Any] = json.loads((run_dir / MADE_BY_FILE).read_text())
        return MadeBy(**{**raw, "steps": tuple(raw.get("steps", ()))})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
