"""The set-up on machines that lack something: it stops before anything starts and prints the command to type."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "setup.py"


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("geoemu_setup", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake_java(home: Path, banner: str) -> Path:
    """Create a Java that prints `banner` and nothing else."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ("Unable to locate a Java Runtime", None),
    ],
)
def test_java_versions(setup: ModuleType, tmp_path: Path, banner: str, version: int | None) -> None:
    assert sys.modules["system_packages"].java_version(str(fake_java(tmp_path, banner))) == version


def run_without_rights(setup: ModuleType, monkeypatch: pytest.MonkeyPatch, path: str) -> str:
    """Return the output of `provide_java` where nothing can be installed and programs are found on `path` only."""
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(sys.modules["system_packages"], "apt_command", lambda: None)
    with pytest.raises(setup.Stopped) as caught:
        setup.provide_java()
    return str(caught.value)


def test_no_java(setup: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert run_without_rights(setup, monkeypatch, str(tmp_path)) == (
        "Spark needs Java 17 or newer and there is none. Type: sudo apt-get install openjdk-17-jre-headless"
    )


def test_old_java(setup: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java = fake_java(tmp_path, 'openjdk version "11.0.2"')
    path = f"{java.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
    assert run_without_rights(setup, monkeypatch, path).startswith(
        f"Spark needs Java 17 or newer and {java} is Java 11. Type: "
    )


def test_java_home_counts_more_than_the_path(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark uses JAVA_HOME, so installing another Java would not help."""
    fake_java(tmp_path, 'java version "1.8.0_402"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run_without_rights(setup, monkeypatch, os.environ["PATH"]) == (
        f"Spark needs Java 17 or newer but JAVA_HOME ({tmp_path}) has Java 8. Type: unset JAVA_HOME"
    )


@pytest.fixture
def done_for_run(setup: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """`make run` was typed here."""
    home = tmp_path / "java"
    fake_java(home, 'openjdk version "17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    lock, config, python = tmp_path / "lock", tmp_path / "pyvenv.cfg", tmp_path / "bin" / "python"
    lock.write_text("a==1\n")
    config.write_text("version = 3.11.7\n")
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    for name, value in {
        "INPUTS": (lock,),
        "VENV": tmp_path,
        "VENV_PYTHON": python,
        "STAMP": tmp_path / "stamp",
    }.items():
        monkeypatch.setattr(setup, name, value)
    setup.STAMP.write_text(json.dumps({"extras": setup.GOALS["run"], "of": setup.fingerprint()}))
    return setup


def test_a_set_up_is_done_until_something_it_depends_on_changes(
    done_for_run: ModuleType, tmp_path: Path
) -> None:
    setup, (lock,) = done_for_run, done_for_run.INPUTS
    assert setup.is_done("run")
    lock.write_text("a==2\n")
    assert not setup.is_done("run")
    lock.write_text("a==1\n")
    assert setup.is_done("run")
    (tmp_path / "java" / "bin" / "java").unlink()
    assert not setup.is_done("run")


def test_the_light_goal_needs_no_java(
    done_for_run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setup = done_for_run
    setup.STAMP.write_text(json.dumps({"extras": setup.GOALS["light"], "of": setup.fingerprint()}))
    (tmp_path / "java" / "bin" / "java").unlink()
    assert setup.is_done("light")
    assert not setup.is_done("run")
    light = setup.wanted(setup.GOALS["light"], setup.read_lock())
    assert "pyspark" not in light
    assert set(light) - {"duckdb"} < set(PACKAGES_OF_A_DRILL.split())


def test_what_a_drill_needs_is_not_all_that_the_tests_need(done_for_run: ModuleType) -> None:
    assert done_for_run.is_done("run")
    assert not done_for_run.is_done("test")


def test_setup_reports_whether_a_goal_is_set_up_without_setting_it_up(
    done_for_run: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    assert done_for_run.main(["--is-done", "run"]) == 0
    assert done_for_run.main(["--is-done", "test"]) == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("stamp", ["", "garbage", "[]", '{"extras": 1}', '{"of": "x"}'])
def test_a_stamp_that_is_damaged_is_none(done_for_run: ModuleType, stamp: str) -> None:
    done_for_run.STAMP.write_text(stamp)
    assert not done_for_run.is_done("run")


def stopped_by_the_disk(setup: ModuleType, capfd: pytest.CaptureFixture[str]) -> str:
    assert setup.main(["run"]) == 2
    printed, complained = capfd.readouterr()
    assert printed == ""
    return complained


def test_setup_reports_a_read_only_folder_before_it_downloads_packages(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "STAMP", Path("/nowhere"))
    monkeypatch.setattr(setup, "ROOT", Path("/proc/self"))
    monkeypatch.setattr(os, "access", lambda path, mode: path != setup.ROOT)
    assert stopped_by_the_disk(setup, capfd) == (
        "setup: /proc/self is not writable, but .venv is created there. Use a copy that you own\n"
    )


def test_setup_reports_a_full_disk_before_it_downloads_packages(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "STAMP", Path("/nowhere"))
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda folder: SimpleNamespace(free=300_000_000))
    assert stopped_by_the_disk(setup, capfd).startswith(
        f"setup: 2.0 GB of temporary space are needed and {setup.ROOT} has 0.3. Free space there"
    )


def test_a_drill_brings_no_browser_linter_compose_or_peer(setup: ModuleType) -> None:
    """The list of all that `make run` installs, which decides how long the first run takes."""
    assert setup.wanted(setup.GOALS["run"], setup.read_lock()) == PACKAGES_OF_A_DRILL.split()


PACKAGES_OF_A_DRILL = """
annotated-doc annotated-types avro certifi charset-normalizer colorama crc32c docker h11 idna jinja2
kafka-python markdown-it-py markupsafe mdurl protobuf pulsar-client py4j pyarrow pydantic
pydantic-core pygments pyspark pywin32 pyyaml requests rich shellingham typer typing-extensions
typing-inspection urllib3
"""


def test_setup_prints_the_progress_of_pip(setup: ModuleType) -> None:
    reader = setup.PipReader()
    lines = [
        "Collecting pyspark==4.3.0 (from -r pins.txt (line 1))",
        "  Downloading pyspark-4.3.0.tar.gz (456.0 MB)",
        "Progress 120000000 of 456000000",
        "  Building wheel for pyspark (pyproject.toml): started",
        "Installing collected packages: pytz, py4j, pyspark",
    ]
    assert [reader(line) for line in lines] == [
        None,
        "downloading pyspark-4.3.0",
        "downloading pyspark-4.3.0: 120 of 456 MB",
        "unpacking pyspark",
        "installing 3 packages",
    ]


NO_NETWORK = """WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(": Failed \
to establish a new connection: [Errno -3] Temporary failure in name resolution")': /simple/rich/
ERROR: Could not find a version that satisfies the requirement rich==15 (from versions: none)
"""


def test_setup_reports_a_missing_network_in_one_line(setup: ModuleType) -> None:
    sentence = setup.pip_sentence(setup.Done(1, NO_NETWORK * 20))
    assert sentence == (
        "pip cannot reach the package registry (name resolution). Check the network, or set a proxy (HTTPS_PROXY) "
        "or a mirror (PIP_INDEX_URL) for pip; then type the same command again"
    )


def test_another_failure_of_pip_is_shown(setup: ModuleType) -> None:
    output = "Progress 1 of 2\nCollecting a\nERROR: THESE PACKAGES DO NOT MATCH THE HASHES\n"
    assert setup.pip_sentence(setup.Done(1, output)) == (
        "pip could not install:\n  ERROR: THESE PACKAGES DO NOT MATCH THE HASHES\n"
        "When the cause is removed, type the same command again"
    )


def test_setup_prints_the_progress_of_a_long_command(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program continues only after its progress was printed."""
    go_on = tmp_path / "go on"
    os.mkfifo(go_on)

    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            if "setup: thinking, " in text and "thinking" not in self.getvalue():
                go_on.write_text("thought\n")
            return super().write(text)

    monkeypatch.setattr(sys.modules["progress"], "SILENCE_SECONDS", 0.0)
    screen = Screen()
    with contextlib.redirect_stdout(screen):
        done = setup.watch(["cat", str(go_on)], prefix="setup: ", text="thinking")
    assert done == (0, "thought\n")
    assert "thought" not in screen.getvalue()


def test_short_steps_one_after_the_other_are_not_silent_together(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = sys.modules["progress"]
    clock = [progress.time.monotonic()]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    setup.say("beginning")
    for step in ("one", "two"):
        line = progress.Line("setup:   ", step)
        for _ in range(5):
            clock[0] += 0.3
            line.show()
        line.end()
    assert capsys.readouterr().out.splitlines() == ["setup: beginning", "setup:   two, 1 s"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_set_up_ends_with_one_line(number: signal.Signals, tmp_path: Path) -> None:
    """Its pip hangs: it is terminated too."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    hangs = tmp_path / "python"
    hangs.write_text(f"#!/bin/sh\necho $$ > {ready}\nexec sleep 600\n")
    hangs.chmod(0o755)
    code = (
        "import sys, setup\n"
        f"setup.is_done = lambda goal: False\n"
        f"setup.provide_java = lambda: None\n"
        f"setup.provide_venv = lambda: [{str(hangs)!r}]\n"
        "sys.exit(setup.main(['run']))"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=SCRIPT.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    hanging = int(ready.read_text())
    program.send_signal(number)
    _, said = program.communicate(timeout=20)
    assert said == "setup: interrupted. To continue, type the same command again\n"
    assert program.returncode == 130
    assert not Path(f"/proc/{hanging}").exists()


def test_setup_reports_the_required_python_version(tmp_path: Path) -> None:
    """Before Python parses a line that it does not understand."""
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\ncase "$2" in *print*) echo 3.6.9;; *) exit 1;; esac\n')
    old.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", str(SCRIPT.with_name("setup")), "run"],
        env={"PATH": "/nowhere", "PYTHON": str(old)},
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 2
    assert done.stderr == (
        f"setup: Python 3.11 or newer is needed and {old} is 3.6.9. "
        "Type: sudo apt-get install python3.11 python3.11-venv\n"
    )


def test_the_lock_pins_every_package_with_hashes_and_names_no_address() -> None:
    lock = (SCRIPT.parent.parent / "requirements.lock").read_text()
    assert "://" not in lock
    assert "--index-url" not in lock
    packages = [line for line in lock.splitlines() if line[:1].isalnum()]
    assert len(packages) > 50
    assert all("==" in line and line.endswith("\\") for line in packages)


def test_make_without_a_goal_lists_the_goals() -> None:
    done = subprocess.run(
        ["make", "-C", str(SCRIPT.parent.parent)], capture_output=True, text=True, check=True, timeout=20
    )
    for goal in ("make run", "make test", "make lint", "make bench", "make setup"):
        assert goal in done.stdout


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A clone that is not set up yet."""
    root = SCRIPT.parent.parent
    shutil.copytree(root / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(root / name, tmp_path)
    return tmp_path


def planned(folder: Path, *words: str) -> list[str]:
    """Return the commands of `make`. A make that started the tests passes its settings and variables on: they must not
    count."""
    ours = {"MAKELEVEL", "MAKEFLAGS", "MFLAGS", "PYTHON", "SCENARIO", "GOAL", "RUNTIME", "ENGINE", "ARGS"}
    outside = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        ["make", "-n", *words],
        cwd=folder,
        env=outside,
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return [line.removeprefix("PYTHON=python3 ") for line in done.stdout.splitlines() if "echo" not in line]


def test_the_first_verdict_does_not_wait_for_spark(bare: Path) -> None:
    scenario = "emulator/scenarios/region-failover.yaml"
    assert planned(bare, "run") == [
        "scripts/setup light",
        f".venv/bin/geoemu run {scenario} --engine embedded",
        "scripts/setup run",
        ".venv/bin/geoemu verify",
    ]
    assert planned(bare, "run", "ENGINE=spark")[0] == "scripts/setup run"
    assert planned(bare, "run", "ENGINE=embedded")[0] == "scripts/setup light"
    assert planned(bare, "run", "RUNTIME=compose")[0] == "scripts/setup compose"
    assert planned(bare, "run", "ARGS=--json")[0] == "scripts/setup run"


def test_spark_computes_every_verdict_once_it_is_installed(bare: Path) -> None:
    (bare / "scripts" / "setup").write_text('#!/bin/sh\n[ "$*" = "--is-done run" ]\n')
    first, second = planned(bare, "run")
    assert first == "scripts/setup run"
    assert second.split() == [".venv/bin/geoemu", "run", "emulator/scenarios/region-failover.yaml"]
