"""The documentation site: every page is in it, every link within it leads somewhere, the tutorial works as written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.howto.drills import end_runs

ROOT = Path(__file__).parent.parent
TUTORIAL_SECONDS = 600


@pytest.mark.long
def test_the_site_is_built_without_a_warning_and_names_every_page(tmp_path: Path) -> None:
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-q",
            "-W",
            "--keep-going",
            "-b",
            "html",
            ROOT / "docs",
            tmp_path / "site",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr) == (0, "")
    home = (tmp_path / "site" / "index.html").read_text()
    listed = set(re.findall(r'href="([\w/.-]+)\.html', home))
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages - listed == {"index"}
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]+"', home)


def tutorial_without_installation() -> str:
    """Return the commands of the tutorial, with those of this environment instead of the installation."""
    page = (ROOT / "docs" / "TUTORIAL.md").read_text()
    install, *blocks = re.findall(r"^```bash\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert install.split("\n")[:2] == ["make run ENGINE=embedded", "source .venv/bin/activate"]
    return "\n".join(["set -euo pipefail", *blocks])


@pytest.mark.real
@pytest.mark.long
def test_the_tutorial_ends_with_a_valid_verdict(tmp_path: Path) -> None:
    shutil.copy(ROOT / "topology.yaml", tmp_path)
    shutil.copytree(ROOT / "clusters", tmp_path / "clusters")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        done = subprocess.run(
            ["bash", "-c", tutorial_without_installation()],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=TUTORIAL_SECONDS,
        )
    finally:
        end_runs(tmp_path / "tutorial")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "us-east: received and acknowledged 200 messages" in done.stdout
    plans = re.findall(r"redelivered +(.*)", done.stdout)
    assert plans[1] == "0 messages", "nothing is delivered again after the wait"
    assert re.search(r"^VALID ", done.stdout, re.MULTILINE)
    assert "400 acknowledged messages: each was received at least once" in done.stdout
