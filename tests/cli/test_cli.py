"""The command line without any region: typing errors, help and completion."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emulator.cli.verbs import app
from emulator.errors import Refused
from tests.runtimes.fixtures import small_topology, write_topology
from tests.runtimes.test_run_directory import new_run

ROOT = Path(__file__).parents[2]
VERBS = sorted(
    command.name or command.callback.__name__ for command in app.registered_commands if command.callback
)


def geoemu(
    *arguments: str, folder: Path, environment: dict[str, str] | None = None, seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run the command as a person does in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "emulator.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def complaints(stderr: str) -> str:
    """Return what a command printed on standard error, without progress."""
    return "".join(line for line in stderr.splitlines(True) if not re.fullmatch(r"verifying, \d+ s\n", line))


def test_the_verbs_are_these() -> None:
    expected = (
        "await bandwidth certs chaos check cut dashboard delay diff disk doctor down drop duplicate env explain export "
        "failover-plan flap graph half-open heal hold init kill latency logs lose pause power-loss profile "
        "pulsar-admin render reorder reset restart resume run seal simulate skew stall start status stop sweep "
        "tap token top translate up verify"
    )
    assert " ".join(VERBS) == expected


@pytest.mark.parametrize(
    "line",
    [
        "flap us-east us-west --period 4s",
        "stall us-east us-west 500ms --every 4s",
        "bandwidth us-east us-west unlimited",
        "latency us-east us-west 200ms",
        "profile us-east us-west satellite",
        "skew us-east -250ms",
        "disk us-east slow",
        "drop us-east->us-west send_receipt",
        "delay us-east->us-west message 2s",
        "half-open clients us-east",
        "power-loss us-east",
    ],
)
def test_options_of_faults_may_be_left_out(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, line.split())
    assert isinstance(result.exception, Refused), result.output
    assert "start one with `geoemu up`" in str(result.exception)


@pytest.mark.parametrize(
    "verb", [[], *([verb] for verb in VERBS)], ids=lambda verb: " ".join(verb) or "geoemu"
)
def test_every_help_has_an_example(verb: list[str]) -> None:
    result = CliRunner().invoke(app, [*verb, "--help"], prog_name="geoemu")
    assert result.exit_code == 0
    assert "Example: geoemu " in result.stdout
    assert (
        verb in ([], ["certs"], ["check"], ["diff"], ["doctor"], ["init"], ["render"], ["sweep"], ["token"])
        or "--run-dir" in result.stdout
    )


def test_what_is_not_needed_for_a_verb_is_not_imported() -> None:
    """The command has to be quick where it does little."""
    heavy = {
        "docker",
        "pydantic",
        "pyspark",
        "yaml",
        "emulator.scenarios",
        "emulator.config.loading",
    }
    program = f"import sys, emulator.cli.verbs; print(*sorted({heavy!r} & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == ""


def test_a_topology_without_fault_is_fine(tmp_path: Path) -> None:
    write_topology(tmp_path)
    done = geoemu("check", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "topology.yaml is fine: 3 regions in 2 clusters, 6 links, 1 namespace\n"


@pytest.mark.parametrize("verb", ["check", "up", "run"])
def test_every_error_of_a_topology_is_reported_on_a_line_and_nothing_starts(
    tmp_path: Path, verb: str
) -> None:
    topology = write_topology(tmp_path)
    topology.write_text(topology.read_text().replace("latency_ms: 1", "latency_ms: -1") + "colour: blue\n")
    done = geoemu(verb, *(["example.yaml"] if verb == "run" else []), folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert "topology.yaml:3: links.defaults.latency_ms: -1:" in first
    assert "topology.yaml:6: colour:" in second
    assert not (tmp_path / ".geoemu").exists()


def test_a_topology_or_scenario_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = geoemu("up", "-f", "nowhere.yaml", folder=tmp_path)
    assert done.returncode == 2
    assert "nowhere.yaml" in done.stderr
    write_topology(tmp_path)
    done = geoemu("run", "example.yaml", folder=tmp_path)
    assert done.returncode == 2
    assert "example.yaml: no such file" in done.stderr
    assert not (tmp_path / ".geoemu").exists()


def test_a_scenario_about_a_region_that_is_not_there_starts_nothing(tmp_path: Path) -> None:
    write_topology(tmp_path)
    scenario = tmp_path / "example.yaml"
    scenario.write_text("name: example\ntopic: t\nsteps:\n  - kill: us-esat\n  - kill: mars\n")
    done = geoemu("run", "example.yaml", folder=tmp_path)
    assert done.returncode == 2
    assert "example.yaml:4: " in done.stderr
    assert "did you mean 'us-east'?" in done.stderr
    assert "example.yaml:5: " in done.stderr
    assert not (tmp_path / ".geoemu").exists()


@pytest.mark.parametrize(
    "typed",
    [
        *(["status"], ["down"], ["kill", "us-east"], ["cut", "us-east", "us-west"], ["heal"]),
        *(["logs", "us-east"], ["verify"]),
    ],
    ids=" ".join,
)
def test_a_command_without_a_run_prints_how_to_start_one(tmp_path: Path, typed: list[str]) -> None:
    done = geoemu(*typed, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"no run in {tmp_path}: start one with `geoemu up`, or name a --run-dir\n"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["kil", "us-east"], "Did you mean 'kill'?"),
        (["kill"], "name one or more regions, or --cluster and none"),
        (["lose", "us-east", "--cluster", "americas"], "name one or more regions, or --cluster and none"),
        (["heal", "us-east"], "name two ends of a link, or none to heal everything"),
        (["up", "--detatch"], "Possible options: --detach"),
        (["verify", "here", "--run-dir", "there"], "name one run directory only"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_explained(typed: list[str], said: str) -> None:
    result = CliRunner().invoke(app, typed, prog_name="geoemu")
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_a_runtime_that_is_not_there_is_refused(tmp_path: Path) -> None:
    write_topology(tmp_path)
    done = geoemu("up", "--runtime", "steam", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "this geoemu cannot run regions as 'steam': use --runtime process or compose\n"


def test_with_spark_and_without_java_a_scenario_does_not_begin(tmp_path: Path) -> None:
    write_topology(tmp_path)
    (tmp_path / "example.yaml").write_text(
        "name: example\ntopic: t\nactors: {}\nsteps:\n  - phase: nothing\n"
    )
    done = geoemu(
        *("run", "example.yaml", "--engine", "spark"),
        folder=tmp_path,
        environment={"JAVA_HOME": str(tmp_path)},
    )
    assert done.returncode == 2
    assert "Spark needs Java 17 or newer" in done.stderr
    assert "--engine embedded" in done.stderr
    assert not (tmp_path / ".geoemu").exists()


def test_the_verdict_on_a_folder_that_is_no_run_is_not_valid(tmp_path: Path) -> None:
    done = geoemu("verify", "nowhere", folder=tmp_path)
    assert done.returncode == 2
    assert "nowhere" in done.stderr


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("geoemu kill us", {"us-east", "us-west"}),
        ("geoemu cut us-east us", {"us-west"}),
        ("geoemu resume ", {"us-east", "us-west", "eu-central"}),
        ("geoemu re", {"region", "render", "reorder", "reset", "restart", "resume"}),
        ("geoemu up --runtime p", {"process"}),
        ("geoemu explain s", {"subscription", "snapshot"}),
        ("geoemu explain link us", set()),  # no region runs that could answer
    ],
)
def test_the_shell_completes_verbs_and_regions(tmp_path: Path, line: str, offered: set[str]) -> None:
    new_run(small_topology(tmp_path / "files"), None, tmp_path)
    words = line.split(" ")
    done = geoemu(
        folder=tmp_path,
        environment={
            "_GEOEMU_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
    )
    assert set(done.stdout.split()) == offered


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("await quite", "did you mean quiet?"),
        ("await us-east", "a region requires one NAME=NUMBER"),
        ("await us-east foo=1", "foo is none of"),
        ("await quiet a b c", "up to two words"),
        ("await quiet orders --topic orders", "up to two words"),
    ],
)
def test_a_wait_that_is_no_state_or_condition_is_refused(typed: str, said: str) -> None:
    result = CliRunner().invoke(app, typed.split(), prog_name="geoemu")
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())
