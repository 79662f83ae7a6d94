"""Run scenarios on a service as a user would: `geoemu run` in a folder of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.runtimes.fixtures import end_all

ROOT = Path(__file__).parents[2]
TOPOLOGY = """\
name: howto
clusters: [americas, europe]
links: {defaults: {latency_ms: 1}}
tenants: [public]
namespaces: {public/default: {regions: all, deduplication: true}}
"""
CLUSTERS = {"americas": "us-east: {}\n  us-west: {}", "europe": "eu-central: {}"}


def on_the_page(page: str, what: str) -> str:
    """Return the code below a comment of a page in docs/."""
    text = (ROOT / "docs" / page).read_text()
    found = re.search(rf"<!-- {re.escape(what)} -->\n```\w*\n(.*?)```", text, re.DOTALL)
    assert found is not None, what
    return found[1]


def make_folder(folder: Path, scenario: str) -> None:
    """Create a folder with three regions and a scenario `billing.yaml`."""
    (folder / "clusters").mkdir()
    (folder / "topology.yaml").write_text(TOPOLOGY)
    for name, regions in CLUSTERS.items():
        (folder / "clusters" / f"{name}.yaml").write_text(f"regions:\n  {regions}\n")
    (folder / "billing.yaml").write_text(scenario)


def end_runs(folder: Path) -> None:
    for run in (folder / ".geoemu" / "runs").glob("*"):
        end_all(run)


def run_scenario(folder: Path) -> dict[str, Any]:
    """Return the output of `geoemu run`."""
    done = subprocess.run(
        [sys.executable, "-m", "emulator.cli", "run", "billing.yaml", "--engine", "embedded", "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == {"valid": 0, "invalid": 1}.get(report["verdict"], 2), done.stderr
    return report


def failing(report: dict[str, Any]) -> dict[str, str]:
    """Return the messages of invalid or unknown checks, by invariant."""
    checks = report["checks"]
    return {
        check["invariant"]: check["sentence"]
        for check in checks
        if check["verdict"] in ("invalid", "unknown")
    }
