"""Temporary folders of engines exist as long as their processes, and no other process removes them before."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from spark_jobs.engines.scratch import PREFIX, disk_full, scratch_folder, space_warning

HOLDER = """
from spark_jobs.engines.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "spilled").mkdir()
    (folder / "spilled" / "rows").write_bytes(b"rows")
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def start_holder() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def kill(process: subprocess.Popen[str]) -> None:
    with process:
        process.send_signal(signal.SIGKILL)


def test_a_folder_is_removed_with_its_block(directory: Path) -> None:
    with contextlib.suppress(ZeroDivisionError), scratch_folder() as folder:
        (folder / "rows").write_bytes(b"rows")
        raise ZeroDivisionError
    assert not list(directory.iterdir())


def test_the_folder_of_a_killed_process_is_removed_by_the_next_engine(directory: Path) -> None:
    process, abandoned = start_holder()
    kill(process)
    assert (abandoned / "spilled" / "rows").is_file()
    with scratch_folder() as folder:
        assert list(directory.iterdir()) == [folder]


def test_the_folder_of_a_running_process_is_kept() -> None:
    process, used = start_holder()
    try:
        with scratch_folder():
            assert (used / "spilled" / "rows").is_file()
    finally:
        kill(process)


def test_a_folder_that_is_removed_before_it_is_locked_is_created_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, removed = fcntl.flock, []

    def remove_and_lock(file: int, operation: int) -> None:
        if not removed:
            removed.append(os.readlink(f"/proc/self/fd/{file}"))
            shutil.rmtree(removed[0])
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove_and_lock)
    with scratch_folder() as folder:
        assert folder.is_dir()
        assert str(folder) != removed[0]


def test_links_and_files_with_the_prefix_are_left_alone(directory: Path) -> None:
    target = directory / "of-the-user"
    target.mkdir()
    (target / "rows").write_bytes(b"rows")
    (directory / f"{PREFIX}link").symlink_to(target)
    (directory / f"{PREFIX}file").write_bytes(b"")
    with scratch_folder():
        pass
    assert (target / "rows").is_file()
    assert (directory / f"{PREFIX}link").is_symlink()
    assert (directory / f"{PREFIX}file").is_file()


def test_evidence_that_may_not_fit_is_announced(directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    assert space_warning(1_000, 1.5) is None
    warning = space_warning(free * 2, 1.5)
    assert warning is not None
    assert f"GB in {directory}, which has" in warning
    assert "set TMPDIR" in warning


@pytest.mark.parametrize(
    "message",
    [
        'IO Error: Could not write file "/tmp/evidence.duckdb": No space left on device',
        "Job aborted due to stage failure: Task 89 in stage 153.0 failed: java.io.IOException: No space left on device",
        str(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
    ],
)
def test_a_full_disk_is_reported_with_the_setting_that_helps(message: str, directory: Path) -> None:
    assert disk_full(RuntimeError(message)) == (
        f"the disk of {directory} is full: set TMPDIR to a directory with more space"
    )
    assert disk_full(RuntimeError("Out of Memory")) is None
