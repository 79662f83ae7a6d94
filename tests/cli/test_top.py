"""`geoemu top`: values of the metrics, tables for any width, and the keys that quit."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from emulator.cli.load_table import as_tables
from emulator.cli.region_load import LinkLoad, RegionLoad, RunLoad, Sample, parse_metrics
from emulator.cli.verbs import app
from tests.cli.test_cli import ROOT, geoemu
from tests.cli.test_runs import typed
from tests.runtimes.fixtures import end_all, small_topology, write_topology
from tests.runtimes.test_run_directory import new_run

LONG = "a-region-with-a-name-that-is-longer-than-a-narrow-terminal"
LOAD = RunLoad(
    (
        RegionLoad("us-east", "americas", "running", 1234.5, 0.25, 17, 3.2),
        RegionLoad(LONG, "europe", "killed"),
    ),
    (
        LinkLoad("us-east", LONG, "up", False, 12, 90_000),
        LinkLoad(LONG, "us-east", "cut"),
        LinkLoad("us-east", "us-west", "up", True, 0, 7),
    ),
)


def drawn(width: int) -> list[str]:
    output = StringIO()
    Console(file=output, width=width).print(as_tables(LOAD, "10:00:00  /runs/1  (q quits)", width))
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_a_wide_terminal_has_every_column() -> None:
    lines = drawn(160)
    assert lines[1].split() == ["region", "cluster", "state", "in/s", "out/s", "backlog", "snapshot"]
    assert lines[2].split() == ["us-east", "americas", "running", "1,234", "0.2", "17", "3.2", "s"]
    assert lines[3].split() == [LONG, "europe", "killed", "-", "-", "-", "-"]
    assert lines[6].split() == ["us-east", "->", LONG, "no", "link", "12", "90.0", "s"]
    assert lines[7].split() == [LONG, "->", "us-east", "cut", "-", "-"]
    assert lines[8].split() == ["us-east", "->", "us-west", "up", "0", "7", "ms"]


@pytest.mark.parametrize("width", [20, 30, 43, 44, 60, 71, 72, 80])
def test_a_narrow_terminal_shows_what_matters_most_and_no_line_is_longer(width: int) -> None:
    lines = drawn(width)
    assert len(lines) == 9, "no row is wrapped"
    assert max(map(len, lines)) <= width
    if width >= 43:
        assert "running" in lines[2]
        assert "17" in lines[2]
        assert "90.0 s" in lines[6]


@pytest.mark.parametrize(
    ("line", "sample"),
    [
        ('m{cluster="a",remote_cluster="b"} 1.5', Sample("m", "b", 1.5)),
        ("m 2", Sample("m", "", 2)),
        ('m{topic="a\\"b}, x",remote_cluster="c"} 3 1700000000000', Sample("m", "c", 3)),
        ("# HELP m 1", None),
        ("m", None),
        ("m{ 1", None),
        ("m one", None),
        ("", None),
    ],
)
def test_lines_of_metrics(line: str, sample: Sample | None) -> None:
    assert list(parse_metrics(f"{line}\nlast 1")) == [*([sample] if sample else []), Sample("last", "", 1)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a run whose regions were never started."""
    new_run(small_topology(tmp_path / "files"), None, tmp_path)
    return tmp_path


@contextmanager
def in_terminal(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run `geoemu top` in a pseudo-terminal, and yield it with the end at which a person sits."""
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "emulator.cli", "top"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    try:
        yield process, person
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
        os.close(person)


def read_until(person: int, text: bytes) -> bytes:
    """Return what the terminal shows, up to `text`."""
    shown = b""
    deadline = time.monotonic() + 30
    while text not in shown:
        assert time.monotonic() < deadline, shown
        shown += os.read(person, 65_536)
    return shown


@pytest.mark.parametrize("key", [b"q", b"Q", b"\x1b"])
def test_a_key_quits_and_the_terminal_is_as_before(folder: Path, key: bytes) -> None:
    with in_terminal(folder) as (process, person):
        before = termios.tcgetattr(person)
        read_until(person, b"eu-central")
        os.write(person, b"x" + key)
        assert process.wait(30) == 0
        assert termios.tcgetattr(person) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_a_signal_quits(folder: Path, number: signal.Signals) -> None:
    with in_terminal(folder) as (process, person):
        before = termios.tcgetattr(person)
        read_until(person, b"eu-central")
        process.send_signal(number)
        assert process.wait(30) == 130
        assert termios.tcgetattr(person) == before


def test_without_a_terminal_the_values_are_printed_once(folder: Path) -> None:
    done = geoemu("top", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("stopped") == 3
    assert "q quits" not in done.stdout


@pytest.mark.parametrize("interval", ["0s", "100ms", "2h", "soon", "-1s"])
def test_an_interval_that_makes_no_sense_is_refused(interval: str) -> None:
    result = CliRunner().invoke(app, ["top", f"--interval={interval}"], prog_name="geoemu")
    assert result.exit_code == 2


@pytest.mark.real
@pytest.mark.long
def test_a_region_that_does_not_respond_has_no_values(tmp_path: Path) -> None:
    write_topology(tmp_path)
    try:
        typed(tmp_path, "up", "--detach")
        typed(tmp_path, "pause", "eu-central")
        typed(tmp_path, "cut", "us-east", "us-west")
        load = json.loads(typed(tmp_path, "top", "--once", "--json"))
    finally:
        for run in (tmp_path / ".geoemu").glob("runs/*"):
            end_all(run)
    regions = {one["name"]: one for one in load["regions"]}
    assert regions["us-east"]["state"] == "running"
    assert regions["us-east"]["backlog"] is not None
    assert (regions["eu-central"]["state"], regions["eu-central"]["backlog"]) == ("paused", None)
    states = {(one["from"], one["to"]): one["state"] for one in load["links"]}
    assert (states["us-east", "us-west"], states["us-east", "eu-central"]) == ("cut", "up")
