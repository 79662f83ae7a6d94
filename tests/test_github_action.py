"""The composite action and the workflow that uses it: they fit the command line, and the steps do what they promise."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from emulator.cli.verbs import app
from tests.howto.drills import CLUSTERS, TOPOLOGY

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
WORKFLOW = yaml.safe_load((ROOT / "examples" / "github-actions.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
"""How GitHub runs a step with `shell: bash`."""
INPUT = re.compile(r"\$\{\{ inputs\.(\w+) \}\}")


def shell_steps() -> list[dict[str, Any]]:
    return [step for step in STEPS if "run" in step]


def use_of_the_action() -> dict[str, str]:
    """Return the inputs that the example workflow sets."""
    (used,) = (step["with"] for step in WORKFLOW["jobs"]["scenario"]["steps"] if "geoemu" in step["uses"])
    return dict(used)


def test_every_input_is_used_and_declared() -> None:
    text = (ROOT / "action.yml").read_text()
    assert set(re.findall(r"inputs\.(\w+)", text)) == ACTION["inputs"].keys()
    assert use_of_the_action().keys() <= ACTION["inputs"].keys()
    required = {name for name, one in ACTION["inputs"].items() if one.get("required")}
    assert required <= use_of_the_action().keys()


def test_shells_get_inputs_as_variables_only() -> None:
    """Text that is inserted into a script would be executed."""
    assert not [step["name"] for step in shell_steps() if "${{" in step["run"]]
    assert {step["shell"] for step in shell_steps()} == {"bash"}


def test_the_options_exist() -> None:
    command = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    offered = {option for parameter in command.params for option in parameter.opts}
    (script,) = (step["run"] for step in shell_steps() if "bin/geoemu" in step["run"])
    used = set(re.findall(r"(?<= |\()--[a-z]+", script))
    assert {"--junit", "--markdown", "--report", "--expect"} <= used <= offered
    (setup,) = (step["run"] for step in shell_steps() if "scripts/setup" in step["run"])
    goals = (ROOT / "scripts" / "setup.py").read_text().partition("\nGOALS = {\n")[2].partition("}")[0]
    assert setup.split()[-1] in re.findall(r'^    "(\w+)":', goals, re.MULTILINE)


def test_the_scenarios_of_the_workflow_are_a_shipped_one_and_a_file() -> None:
    shipped, own = WORKFLOW["jobs"]["scenario"]["strategy"]["matrix"]["scenario"]
    assert (ROOT / "emulator" / "scenarios" / f"{shipped}.yaml").exists()
    assert own.endswith(".yaml")


@pytest.mark.parametrize("step", shell_steps(), ids=lambda step: str(step["name"]))
def test_each_script_is_valid_bash(step: dict[str, Any]) -> None:
    done = subprocess.run(["bash", "-n"], input=step["run"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


class Job:
    """Runs the shell steps of the action as GitHub does, in a workspace with a topology."""

    def __init__(self, folder: Path, action: Path, **inputs: str) -> None:
        self.workspace = folder / "workspace"
        (self.workspace / "clusters").mkdir(parents=True)
        (self.workspace / "topology.yaml").write_text(TOPOLOGY)
        for name, regions in CLUSTERS.items():
            (self.workspace / "clusters" / f"{name}.yaml").write_text(f"regions:\n  {regions}\n")
        self.summary = folder / "step-summary.md"
        self._action = action
        self._inputs = {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | inputs
        self.seconds: dict[str, float] = {}

    def run(self) -> dict[str, subprocess.CompletedProcess[str]]:
        """Return the outcome of every shell step; a failed step does not prevent those with `!cancelled()`."""
        done: dict[str, subprocess.CompletedProcess[str]] = {}
        for step in shell_steps():
            failed = any(one.returncode for one in done.values())
            if not failed or "!cancelled()" in step.get("if", ""):
                done[step["name"]] = self._run(step)
        return done

    def _run(self, step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        variables = {
            name: INPUT.sub(lambda found: self._inputs[found[1]], text)
            for name, text in step.get("env", {}).items()
        }
        script = self.workspace.parent / "step.sh"
        script.write_text(step["run"])
        began = time.monotonic()
        done = subprocess.run(
            [*SHELL, str(script)],
            cwd=self.workspace,
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": str(Path.home()),
                "CI": "true",
                "GITHUB_ACTION_PATH": str(self._action),
                "GITHUB_STEP_SUMMARY": str(self.summary),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=600,
        )
        self.seconds[step["name"]] = time.monotonic() - began
        return done


@pytest.fixture(scope="module")
def action(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone, as GitHub makes of the action."""
    clone = tmp_path_factory.mktemp("action") / "geoemu"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    return clone


@pytest.mark.real
@pytest.mark.slow
def test_the_steps_run_a_scenario_and_leave_summary_junit_and_report(tmp_path: Path, action: Path) -> None:
    job = Job(tmp_path, action, scenario="region-failover", expect="unrecovered=0")
    done = job.run()
    assert [one.stderr for one in done.values() if one.returncode] == []
    report = job.workspace / "geoemu-report"
    assert {"junit.xml", "summary.md", "report.html", "report.json"} <= {one.name for one in report.iterdir()}
    assert job.summary.read_text() == (report / "summary.md").read_text()
    assert "INV-1" in job.summary.read_text()
    print({name: round(seconds, 1) for name, seconds in job.seconds.items()})


@pytest.mark.real
@pytest.mark.slow
def test_a_missed_limit_fails_the_step_and_the_summary_is_still_shown(tmp_path: Path, action: Path) -> None:
    """The name of a scenario that looks like an option, or a command, is only a name."""
    job = Job(tmp_path / "missed", action, scenario="region-failover", expect="redelivered<=0")
    done = job.run()
    assert done["Run the scenario"].returncode == 1
    assert "redelivered" in job.summary.read_text()
    odd = Job(tmp_path / "odd", action, scenario="--help; touch broken")
    assert odd.run()["Run the scenario"].returncode == 2
    assert not (odd.workspace / "broken").exists()
