"""`geoemu doctor`: what was broken is found, with its fix; nothing else is a problem."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.cli.diagnosis.engines import check_verdicts
from emulator.cli.diagnosis.finding import Finding
from emulator.cli.diagnosis.machine import check_clock
from emulator.cli.diagnosis.runs import check_runs
from emulator.run.processes import ProcessIdentity
from tests.cli.test_cli import ROOT
from tests.runtimes.fixtures import small_topology, write_topology
from tests.runtimes.test_run_directory import myself, new_run

GONE = ProcessIdentity(2**22 + 1, "never")


class Doctor:
    """Runs `geoemu doctor --json` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {}
        self.limits: tuple[int, int] | None = None

    def run(self, *options: str) -> tuple[int, list[Finding]]:
        done = subprocess.run(
            [sys.executable, "-m", "emulator.cli", "doctor", "--json", *options],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
            capture_output=True,
            text=True,
            preexec_fn=self._limit,
        )
        assert done.stderr == ""
        content: dict[str, Any] = json.loads(done.stdout)
        assert content["healthy"] == (done.returncode == 0)
        return done.returncode, [Finding(**one) for one in content["findings"]]

    def one(self, subject: str, *options: str) -> tuple[int, Finding]:
        code, findings = self.run(*options)
        (found,) = [one for one in findings if one.subject == subject]
        return code, found

    def _limit(self) -> None:
        if self.limits is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    write_topology(tmp_path)
    return Doctor(tmp_path)


@pytest.fixture
def taken() -> Iterator[int]:
    """Yield a port on which this program listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def executable(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


def test_a_folder_with_a_topology_has_no_problem(doctor: Doctor) -> None:
    code, findings = doctor.run()
    assert (code, [one for one in findings if one.level == "problem"]) == (0, [])
    assert {
        "python",
        "open files",
        "disk space",
        "folder",
        "clock",
        "topology",
        "ports",
        "runs",
        "spark",
    } <= {one.subject for one in findings}
    assert not list(doctor.folder.glob(".geoemu*")), "nothing is left behind"


def test_a_missing_java_is_replaced_by_the_embedded_engine(doctor: Doctor, tmp_path: Path) -> None:
    doctor.environment = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    code, spark = doctor.one("spark")
    assert (code, spark.level) == (0, "note")
    assert "needs Java 17 or newer" in spark.sentence
    assert "openjdk" in spark.fix


def test_no_engine_at_all_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.engines.starting.find_spec", lambda name: None)
    assert [(one.level, one.fix[:11]) for one in check_verdicts()] == [
        ("problem", "make setup "),
        ("problem", "pip install"),
    ]


def test_a_taken_port_is_named_with_its_setting(doctor: Doctor, taken: int) -> None:
    write_topology(doctor.folder, us_east_admin_port=taken)
    code, ports = doctor.one("ports")
    assert (code, ports.level) == (1, "problem")
    assert ports.sentence == f"admin_port of us-east: port {taken} is in use"
    assert "`admin_port` of region us-east" in ports.fix


def test_ports_of_a_run_that_is_up_are_not_taken(doctor: Doctor, taken: int) -> None:
    write_topology(doctor.folder, us_east_admin_port=taken)
    new_run(small_topology(doctor.folder / "files"), None, doctor.folder, owner=myself())
    code, findings = doctor.run()
    assert (code, [one for one in findings if one.subject == "ports"]) == (0, [])


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = Path("/proc")  # not even root can write there
    code, found = Doctor(folder).one("folder")
    assert (code, found.level) == (1, "problem")
    assert found.sentence.startswith("no run can be stored in /proc: ")
    assert "--run-dir" in found.fix


def test_too_few_file_descriptors(doctor: Doctor) -> None:
    doctor.limits = (256, 4096)
    assert doctor.one("open files") == (
        1,
        Finding(
            "open files",
            "problem",
            "a process may open 256 files; regions need 1024",
            "`ulimit -n 1024` in this shell",
        ),
    )
    doctor.limits = (256, 512)
    assert "raise the hard limit, 512" in doctor.one("open files")[1].fix


def test_without_docker_only_a_run_in_containers_has_a_problem(doctor: Doctor) -> None:
    doctor.environment = {"DOCKER_HOST": f"unix://{doctor.folder}/none.sock"}
    code, docker = doctor.one("docker")
    assert (code, docker.level, docker.sentence) == (0, "note", "no Docker engine responds")
    code, docker = doctor.one("docker", "--runtime", "compose")
    assert (code, docker.level) == (1, "problem")
    assert "start one" in docker.fix


@pytest.mark.real
def test_a_missing_image_is_named_with_the_command_that_builds_it(doctor: Doctor) -> None:
    doctor.environment = {"GEOEMU_REGION_IMAGE": "geoemu-doctor-none:local"}
    code, images = doctor.one("images", "--runtime", "compose")
    assert code == 1
    assert images.sentence == "the image geoemu-doctor-none:local is missing"
    assert images.fix == "`bash compose/images.sh region` in a checkout"


def test_a_kafka_that_cannot_be_started(doctor: Doctor, tmp_path: Path) -> None:
    write_topology(doctor.folder, more="log: {backend: kafka}\n")
    doctor.environment = {"PATH": str(tmp_path / "bin"), "GEOEMU_KAFKA_JARS": str(tmp_path / "jars")}
    assert "needs Java" in doctor.one("kafka")[1].sentence
    executable(tmp_path / "bin", "java")
    code, kafka = doctor.one("kafka")
    assert (code, kafka.level, "Maven" in kafka.sentence) == (1, "problem", True)
    executable(tmp_path / "bin", "mvn")
    assert doctor.one("kafka")[1].level == "note"


def test_each_error_of_a_topology_is_a_finding(doctor: Doctor) -> None:
    file = doctor.folder / "topology.yaml"
    file.write_text(file.read_text().replace("latency_ms: 1", "latency_ms: -1") + "colour: blue\n")
    code, findings = doctor.run()
    errors = [one.sentence for one in findings if one.subject == "topology"]
    assert (code, len(errors)) == (1, 2)
    assert errors[0].startswith("topology.yaml:3: links.defaults.latency_ms")


def test_a_missing_topology_is_a_problem_only_if_it_was_named(tmp_path: Path) -> None:
    assert Doctor(tmp_path).one("topology")[1].level == "note"
    assert Doctor(tmp_path).one("topology", "-f", "other.yaml")[1].level == "problem"


def test_runs_that_were_not_ended_and_processes_that_were_left(tmp_path: Path) -> None:
    topology = small_topology(tmp_path / "files")
    for number, fields in enumerate(
        ({"owner": GONE}, {"owner": GONE}, {"ended": True}, {"owner": myself()}), 1
    ):
        directory = new_run(topology, tmp_path / ".geoemu" / "runs" / str(number), tmp_path, **fields)
        if number in (2, 3):
            with directory.edit() as record:
                record.regions["us-east"].process = myself()
    (tmp_path / ".geoemu" / "runs" / "5").mkdir()
    (tmp_path / ".geoemu" / "runs" / "5" / "run.json").write_text("{")
    found = list(check_runs(tmp_path))
    assert [one.level for one in found] == ["note", "problem", "problem", "ok", "note"]
    assert "its processes are gone" in found[0].sentence
    assert f"is gone, but us-east (process {os.getpid()}) still run" in found[1].sentence
    assert "has ended, but us-east" in found[2].sentence
    assert "is damaged" in found[4].sentence
    assert all(f"geoemu down --run-dir {tmp_path}" in one.fix for one in found[:3])


def test_a_clock_that_is_wrong_or_being_set() -> None:
    now = iter([1e9])
    assert "earlier than geoemu's own files" in check_clock(lambda: next(now)).sentence
    times = iter([2e9, 2e9, 2e9 + 5.2])
    moments = iter([0.0, 0.2])
    waited: list[float] = []
    found = check_clock(lambda: next(times), lambda: next(moments), waited.append)
    assert (found.level, found.sentence.partition(":")[0]) == (
        "problem",
        "the clock of this machine jumped by +5000 ms",
    )


def test_the_text_has_a_line_for_each_finding_and_its_fix(doctor: Doctor, taken: int) -> None:
    write_topology(doctor.folder, us_east_admin_port=taken)
    done = subprocess.run(
        [sys.executable, "-m", "emulator.cli", "doctor"],
        cwd=doctor.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    at = lines.index(f"problem   ports      admin_port of us-east: port {taken} is in use")
    assert lines[at + 1].strip().startswith("fix: end the program that listens there")
    assert lines[-1] == "1 problem"
    assert max(map(len, lines)) <= 108
