"""The verdict is what the verifier program prints; a program that prints none means unknown."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emulator.runtimes.verifier import INTERRUPTED, VerifierResult, WaitingVerifier, verify_now


@pytest.mark.parametrize(
    ("output", "returned", "exit_code"),
    [
        ("VALID", 0, 0),
        ("INVALID", 1, 1),
        ("UNKNOWN", 2, 2),
        ("", 1, 2),
        ("", 0, 2),
        ("VALID", -9, 2),
    ],
)
def test_a_program_that_failed_without_output_did_not_report_invalid(
    output: str, returned: int, exit_code: int
) -> None:
    assert VerifierResult(output, "", returned).exit_code == exit_code


def test_a_crash_is_no_verdict() -> None:
    assert verify_now([sys.executable, "-c", "raise ZeroDivisionError"]).exit_code == 2


def wait_for(file: Path) -> None:
    """Return when a program has created the file by which it reports that it has begun."""
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, "it has not begun"
        time.sleep(0.01)


def test_ctrl_c_waits_for_the_program_to_take_down_what_it_has_started(tmp_path: Path) -> None:
    """The program stands for one that has to stop its container."""
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    inner = f"""
import pathlib, time
try:
    pathlib.Path({str(begun)!r}).touch()
    time.sleep(1000)
except KeyboardInterrupt:
    time.sleep(0.6)  # longer than Python waits for a child by default
    pathlib.Path({str(ended)!r}).touch()
"""
    outer = "import sys; from emulator.runtimes.verifier import verify_now; verify_now(sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", outer, sys.executable, "-c", inner],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_for(begun)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(30)
    assert ended.exists()


def test_ctrl_c_while_the_program_is_being_started_ends_it(tmp_path: Path) -> None:
    """The signal arrives after the child process exists and before `Popen` has returned."""
    pid = tmp_path / "pid"
    outer = f"""
import os, pathlib, signal, subprocess, sys
from emulator.runtimes import verifier
class Interrupted(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        pathlib.Path({str(pid)!r}).write_text(str(self.pid))
        os.kill(os.getpid(), signal.SIGINT)
verifier.subprocess.Popen = Interrupted
verifier.verify_now([sys.executable, "-c", "import time; time.sleep(1000)"])
"""
    done = subprocess.run([sys.executable, "-c", outer], stderr=subprocess.PIPE, timeout=60, text=True)
    assert "KeyboardInterrupt" in done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def program(text: str) -> list[str]:
    return [sys.executable, "-c", f"import sys\n{text}"]


def test_the_program_goes_on_when_the_run_is_over_and_its_answer_is_whole() -> None:
    async def scenario() -> VerifierResult:
        verifier = await WaitingVerifier.start(
            program("sys.stdin.readline(); print('x' * 200_000); sys.exit(1)")
        )
        verdict = await verifier.verify()
        await verifier.end()
        return verdict

    verdict = asyncio.run(scenario())
    assert (verdict.output, verdict.exit_code) == ("x" * 200_000 + "\n", 1)


def test_lines_of_a_verifier_that_follows_are_passed_on_when_they_are_complete() -> None:
    """The program waits for the line that the caller writes after it received the first one."""
    long_line = "y" * 200_000

    async def scenario() -> tuple[list[str], VerifierResult]:
        lines: list[str] = []
        first = asyncio.Event()
        verifier = await WaitingVerifier.start(
            program(
                "print('first', flush=True); sys.stdin.readline(); print('y' * 200_000); print('x', end='')"
            ),
            lambda line: (lines.append(line), first.set())[0],
        )
        await asyncio.wait_for(first.wait(), 60)
        return lines, await verifier.verify()

    lines, result = asyncio.run(scenario())
    assert lines == ["first", long_line, "x"]
    assert (result.output, result.exit_code) == (f"first\n{long_line}\nx", 0)


def test_the_first_ctrl_c_makes_a_followed_run_print_its_verdict(tmp_path: Path) -> None:
    begun, output = tmp_path / "begun", tmp_path / "output"
    inner = f"""
import pathlib, sys, time
pathlib.Path({str(begun)!r}).touch()
try:
    time.sleep(1000)
except KeyboardInterrupt:
    print("VALID")
    sys.exit(1)
"""
    outer = (
        "import sys; from emulator.runtimes.verifier import follow_now; sys.exit(follow_now(sys.argv[1:]))"
    )
    with output.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", outer, sys.executable, "-c", inner], stdout=stream, start_new_session=True
        )
    wait_for(begun)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 1
    assert output.read_text() == "VALID\n"


def test_ctrl_c_requests_the_verdict_of_a_verifier_that_waits_by_a_line(tmp_path: Path) -> None:
    """Compose, through which a verifier in a container is followed, would end at a signal."""
    begun, output = tmp_path / "begun", tmp_path / "output"
    inner = f"import pathlib, sys; pathlib.Path({str(begun)!r}).touch(); print(sys.stdin.readline().strip())"
    outer = (
        "import sys; from emulator.runtimes.verifier import follow_now; sys.exit(follow_now(sys.argv[1:]))"
    )
    with output.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", outer, sys.executable, "-c", inner, "--wait"],
            stdout=stream,
            start_new_session=True,
        )
    wait_for(begun)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 0
    assert output.read_text() == f"{INTERRUPTED}\n"


def test_the_output_of_a_verifier_that_ended_early_is_reported() -> None:
    async def scenario() -> VerifierResult:
        return await (await WaitingVerifier.start(program("sys.exit('no Java')"))).verify()

    verdict = asyncio.run(scenario())
    assert (verdict.error_output, verdict.exit_code) == ("no Java\n", 2)


def test_a_program_that_does_not_leave_is_made_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulator.runtimes.verifier.LEAVE_SECONDS", 0.2)

    async def scenario() -> int | None:
        deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"
        verifier = await WaitingVerifier.start(program(deaf))
        await asyncio.wait_for(verifier.end(), 20)
        return verifier._process.returncode

    assert asyncio.run(scenario()) is not None
