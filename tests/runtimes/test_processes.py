"""Processes are distinguished from later ones with the same pid."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from emulator.run import processes
from emulator.run.processes import ProcessIdentity, identify, send_signal, state_of

from .fixtures import wait_until


@pytest.fixture(params=["proc", "ps"])
def _way_of_looking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test both with /proc and without it."""
    if request.param == "ps":
        monkeypatch.setattr(processes, "_look_up", processes._look_up_with_ps)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "60"])
    yield child
    child.kill()
    child.wait()


def identity_of(child: subprocess.Popen[bytes]) -> ProcessIdentity:
    identity = identify(child.pid)
    assert identity is not None
    return identity


def wait_for_state(process: ProcessIdentity, state: str) -> None:
    wait_until(lambda: state_of(process) == state, state)


@pytest.mark.usefixtures("_way_of_looking")
def test_a_process_is_running_then_paused_then_running_then_gone(child: subprocess.Popen[bytes]) -> None:
    process = identity_of(child)
    assert state_of(process) == "running"
    for number, state in ((signal.SIGSTOP, "paused"), (signal.SIGCONT, "running"), (signal.SIGKILL, "gone")):
        assert send_signal(process, number)
        wait_for_state(process, state)
    assert child.returncode is None, "its parent has not reaped it yet: a zombie counts as gone"


@pytest.mark.usefixtures("_way_of_looking")
def test_a_later_process_with_the_same_number_is_another_one(child: subprocess.Popen[bytes]) -> None:
    earlier = dataclasses.replace(identity_of(child), started="long ago")
    assert state_of(earlier) == "gone"
    assert not send_signal(earlier, signal.SIGKILL)
    assert child.poll() is None


@pytest.mark.usefixtures("_way_of_looking")
def test_an_unused_pid_identifies_no_process() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert identify(child.pid) is None
    assert not send_signal(ProcessIdentity(child.pid, "whenever"), signal.SIGKILL)


def test_without_handles_a_signal_goes_by_number(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert send_signal(identity_of(child), signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not send_signal(ProcessIdentity(child.pid, "whenever"), signal.SIGKILL)
