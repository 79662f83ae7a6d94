"""The set-up on machines that lack something: it stops before anything starts and says the line to type."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "setup.py"


@pytest.fixture
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("geoemu_setup", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake_java(home: Path, banner: str) -> Path:
    """A Java that prints `banner` and nothing else."""
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
    assert setup.java_version(str(fake_java(tmp_path, banner))) == version


def run_without_rights(setup: ModuleType, monkeypatch: pytest.MonkeyPatch, path: str) -> str:
    """What `provide_java` says where nothing can be installed and programs are found on `path` only."""
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(setup, "apt_command", lambda: None)
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
    """Spark takes JAVA_HOME, so installing another Java would not help."""
    fake_java(tmp_path, 'java version "1.8.0_402"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run_without_rights(setup, monkeypatch, os.environ["PATH"]) == (
        f"Spark needs Java 17 or newer and JAVA_HOME ({tmp_path}) has Java 8. Type: unset JAVA_HOME"
    )


def test_a_set_up_is_done_until_something_it_depends_on_changes(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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

    assert not setup.is_done()
    setup.STAMP.write_text(setup.fingerprint())
    assert setup.is_done()
    lock.write_text("a==2\n")
    assert not setup.is_done()
    lock.write_text("a==1\n")
    assert setup.is_done()
    (home / "bin" / "java").unlink()
    assert not setup.is_done()


def test_the_lock_pins_every_package_with_hashes_and_names_no_address() -> None:
    lock = (SCRIPT.parent.parent / "requirements.lock").read_text()
    assert "://" not in lock
    assert "--index-url" not in lock
    packages = [line for line in lock.splitlines() if line[:1].isalnum()]
    assert len(packages) > 50
    assert all("==" in line and line.endswith("\\") for line in packages)


def test_make_without_a_goal_tells_the_goals() -> None:
    done = subprocess.run(
        ["make", "-C", str(SCRIPT.parent.parent)], capture_output=True, text=True, check=True, timeout=20
    )
    for goal in ("make run", "make test", "make lint", "make bench", "make setup"):
        assert goal in done.stdout
