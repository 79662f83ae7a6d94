"""The verifier as a program of its own."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spark_jobs.engines.starting import Interrupted, Interruptible, choose, started, why_not
from spark_jobs.verdict import EXIT_CODES
from spark_jobs.verify import main, warm_up

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-m", "spark_jobs.verify"]
HOME = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 180


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=HOME,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.mark.real
def test_a_verifier_started_early_waits_for_the_ready_signal(drill_template: Path, tmp_path: Path) -> None:
    """The verifier starts before the run exists, in another folder. It prints nothing before a line arrives on its
    standard input, and then only the verdict."""
    target = tmp_path / "run"
    process = subprocess.Popen(
        [*COMMAND, str(target), "--wait", "--json", "--report", str(tmp_path / "report")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HOME)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    target.symlink_to(drill_template)
    output, errors = process.communicate("now\n", timeout=DEADLINE_SECONDS)
    assert errors == ""
    assert process.returncode == 0
    told = json.loads(output)
    assert told["verdict"] == "valid"
    assert [check["invariant"] for check in told["checks"]][1:7] == [
        f"INV-{number}" for number in range(1, 7)
    ]
    assert json.loads((tmp_path / "report" / "report.json").read_text()) == told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "run"]


def test_a_warm_up_can_be_interrupted_at_any_step() -> None:
    """An interrupt between two concurrent queries works too, and later queries can use the engine."""
    with started("embedded") as engine:
        steps = itertools.count()
        warm_up(Interruptible(engine, lambda: next(steps) < 0))
        all_of_them = next(steps)
        for last in (0, all_of_them // 3, all_of_them - 2):
            steps = itertools.count()
            with pytest.raises(Interrupted):
                warm_up(Interruptible(engine, lambda last=last, steps=steps: next(steps) >= last))
        assert warm_up(engine).verdict == "valid"


@pytest.mark.real
def test_without_a_ready_signal_the_verifier_ends(tmp_path: Path) -> None:
    told = run(tmp_path, "--wait")
    assert (told.returncode, told.stdout, told.stderr) == (2, "", "")


def test_without_java_spark_fails_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    told = run(tmp_path, "--engine", "spark", JAVA_HOME=str(tmp_path))
    assert told.returncode == 2
    assert told.stdout == ""
    assert told.stderr.count("\n") == 1
    assert "openjdk-17-jre-headless" in told.stderr
    assert "--engine embedded" in told.stderr


def test_without_java_the_embedded_engine_is_used_and_a_note_printed(
    drill_template: Path, tmp_path: Path
) -> None:
    told = run(drill_template, "--report", tmp_path, "--json", JAVA_HOME=str(tmp_path))
    assert (told.returncode, json.loads(told.stdout)["verdict"]) == (0, "valid")
    assert told.stderr.count("\n") == 1
    assert told.stderr.endswith("The embedded engine computes the verdict.\n")


def test_before_spark_is_installed_the_embedded_engine_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is the state in the first minutes after `make run`."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert choose(None) == (
        "embedded",
        "Spark is not installed: make setup GOAL=run, or pip install 'geoemu[spark]'. "
        "The embedded engine computes the verdict.",
    )
    assert choose("spark") == ("spark", None)
    refusal = why_not("spark")
    assert refusal is not None
    assert refusal.endswith("Or use --engine embedded.")


def test_the_embedded_engine_needs_neither_java_nor_spark(drill_template: Path, tmp_path: Path) -> None:
    """The program cannot import PySpark, and JAVA_HOME has no Java."""
    program = (
        "import sys; sys.modules['pyspark'] = None; from spark_jobs.verify import main; sys.exit(main())"
    )
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            str(drill_template),
            "--engine",
            "embedded",
            "--report",
            str(tmp_path),
        ],
        cwd=HOME,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("VALID")


def test_names_with_lone_surrogates_are_written_to_every_report(drill_template: Path, tmp_path: Path) -> None:
    """The path of a run may have bytes that are not UTF-8, and neither UTF-8 nor XML has lone surrogates."""
    path = tmp_path / "run-\udcff"
    shutil.copytree(drill_template, path)
    (path / "run.json").unlink()
    xml, table = tmp_path / "junit.xml", tmp_path / "table.md"
    done = run(path, "--engine", "embedded", "--junit", xml, "--markdown", table)
    assert done.returncode == EXIT_CODES["unknown"], done.stderr
    assert f"run.json is missing from {tmp_path}/run-" in xml.read_text()
    ElementTree.parse(xml)
    for text in (done.stdout, (path / "report/report.html").read_text(), table.read_text()):
        assert rf"run.json is missing from {tmp_path}/run-\udcff" in text


def test_a_cluster_is_not_the_embedded_engines(tmp_path: Path) -> None:
    told = run(tmp_path, "--engine", "embedded", "--master", "spark://127.0.0.1:1")
    assert told.returncode == 2
    assert "--master requires Spark" in told.stderr


def test_no_such_folder(tmp_path: Path) -> None:
    told = run(tmp_path / "nowhere")
    assert told.returncode == 2
    assert told.stderr.count("\n") == 1
    assert "is not a run directory" in told.stderr


def test_help_has_an_example() -> None:
    told = run("--help")
    assert told.returncode == 0
    assert "example:" in told.stdout
    assert "--master" in told.stdout


@pytest.mark.parametrize("limits", [b"gap<<5s", b"\xff\xfe", b"gap"])
def test_limits_that_cannot_be_read_give_no_verdict(
    drill_template: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], limits: bytes
) -> None:
    target = shutil.copytree(drill_template, tmp_path / "run")
    (target / "limits").write_bytes(limits)
    assert main([str(target), "--engine", "embedded"]) == EXIT_CODES["unknown"]
    assert f"the limits in {target / 'limits'} cannot be read: " in capsys.readouterr().err
