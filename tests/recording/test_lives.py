"""Programs that record themselves, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.run.history import seal_history

from .regions import LiveRun

pytestmark = pytest.mark.real

PUBLISH = """
import atexit, os, sys, time
import pulsar, geoemu
client = geoemu.recorded(pulsar.Client(sys.argv[1], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)))
producer = client.create_producer("lives", producer_name=None if sys.argv[2] == "fork" else "lives")
producer.send(b"one")
print("sent", flush=True)
if sys.argv[2] == "fork":
    if os.fork() == 0:
        atexit._run_exitfuncs()
        os._exit(0)
    os.wait()
    producer.send(b"two")
    client.close()
elif sys.argv[2] == "wait":
    time.sleep(60)
"""


def program(live: LiveRun, folder: Path, how: str) -> subprocess.Popen[str]:
    """Start the program `lives.py` and wait until it has sent its first message."""
    file = folder / "lives.py"
    file.write_text(PUBLISH)
    root = str(Path(__file__).parents[2])
    begun = subprocess.Popen(
        [sys.executable, str(file), live.url("us-east"), how],
        env={**os.environ, "PYTHONPATH": root, "GEOEMU_RUN_DIR": str(live.run_dir)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert begun.stdout is not None
    assert begun.stdout.readline() == "sent\n"
    return begun


def test_a_killed_program_is_sealed_by_its_parent_and_goes_on_in_its_next_life(
    live: LiveRun, tmp_path: Path
) -> None:
    with program(live, tmp_path, "wait") as first:
        first.send_signal(signal.SIGKILL)
    assert "has no end" in str(live.file("lives").damages)
    assert seal_history(live.run_dir / "history" / "lives.jsonl", "killed")
    assert not live.file("lives").damages
    with program(live, tmp_path, "end") as second:
        pass
    # The client's library itself may abort at the very end of a program that did not close it.
    assert second.returncode in (0, -signal.SIGABRT)
    assert not live.file("lives").damages  # complete although the program did not close its client
    assert [line["last_sequence_id"] for line in live.lines("lives", "connect")] == [-1, 0]


def test_two_processes_of_one_program_write_a_file_each(live: LiveRun, tmp_path: Path) -> None:
    with program(live, tmp_path, "wait") as first:
        second = program(live, tmp_path, "fork")
        assert second.wait(20) == 0
        own = f"lives-{second.pid}"
        # Its child was a copy: it wrote nothing, not even at its end.
        assert not live.file(own).damages
        assert len(live.lines(own, "publish", "ok")) == 2
        first.send_signal(signal.SIGKILL)
    seal_history(live.run_dir / "history" / "lives.jsonl", "killed")
