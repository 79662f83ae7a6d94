"""Start and end the verifier, the program that computes the verdict (`spark_jobs.verify`)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from emulator.runtimes.region_processes import environment
from emulator.runtimes.spinner import spinner

NICENESS = 5
"""Niceness of a verifier that is started during a run, so that it does not slow down the regions."""
LEAVE_SECONDS = 5.0
"""Time that the verifier may take to end after SIGINT; then it is killed with SIGKILL."""

INTERRUPTED = "interrupted"
"""Line with which Ctrl-C requests the verdict of a verifier that waits and follows."""

_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class VerifierResult:
    """The output and exit code of the verifier."""

    output: str
    error_output: str
    status: int

    @property
    def exit_code(self) -> int:
        """Exit code: 0 valid, 1 invalid, 2 unknown. A verifier that failed without output counts as unknown."""
        return self.status if self.output and self.status in (0, 1) else 2


def verify_command(
    run_dir: Path,
    *,
    master: str | None = None,
    engine: str | None = None,
    report: Path | None = None,
    as_json: bool = False,
    wait: bool = False,
    expect: str | None = None,
    junit: Path | None = None,
    markdown: Path | None = None,
    messages: Sequence[str] = (),
    follow: bool = False,
) -> list[str]:
    options = {
        "--master": master,
        "--engine": engine,
        "--report": report,
        "--expect": expect,
        "--junit": junit,
        "--markdown": markdown,
    }
    options_set: list[tuple[str, object]] = [
        (option, value) for option, value in options.items() if value is not None
    ]
    options_set += [("--message", message) for message in messages]
    command = [sys.executable, "-m", "spark_jobs.verify", str(run_dir)]
    command += [str(word) for pair in options_set for word in pair]
    return command + ["--json"] * as_json + ["--wait"] * wait + ["--follow"] * follow


def sweep_command(
    directories: Sequence[Path],
    *,
    master: str | None = None,
    engine: str | None = None,
    as_json: bool = False,
    expect: str | None = None,
) -> list[str]:
    """Return the command that computes the verdicts on several runs."""
    options = {"--master": master, "--engine": engine, "--expect": expect}
    given = [word for option, value in options.items() if value is not None for word in (option, value)]
    names = [str(directory) for directory in directories]
    return [sys.executable, "-m", "spark_jobs.sweep", *given, *["--json"] * as_json, "--", *names]


def export_command(run_dir: Path, to: Path, *, master: str, as_json: bool = False) -> list[str]:
    """Return the command with which a Spark cluster exports a run."""
    command = [sys.executable, "-m", "spark_jobs.export", "--to", str(to), "--master", master]
    return [*command, *["--json"] * as_json, "--", str(run_dir)]


def in_network_command(run_dir: Path, *, as_json: bool = False, follow: bool = False) -> list[str]:
    """Return the command that runs the verifier in a container in the network of a run's regions; warn of an outdated
    image. Raises Refused if the run is not in containers, or a local image, Docker or Compose is missing."""
    from emulator.errors import Refused
    from emulator.runtimes.compose.command import compose_command
    from emulator.runtimes.compose.file import VERIFY_SERVICE
    from emulator.runtimes.compose.plan import settings_from
    from emulator.runtimes.docker_engine import DockerEngine
    from emulator.runtimes.image_sources import stale_warning

    file = run_dir / "compose.yaml"
    if not file.is_file():
        raise Refused(f"{run_dir} is not a run in containers: verify it without --in-network")
    image = settings_from(os.environ).spark_image
    engine = DockerEngine()
    if engine.has_image(image):
        if sentence := stale_warning("spark", image, engine.image_labels(image)):
            print(sentence, file=sys.stderr)
    elif image.endswith(":local"):
        raise Refused(f"image {image} is missing: `bash compose/images.sh spark`")
    compose = [*compose_command(), "--file", str(file), "--progress", "quiet"]
    return [
        *(*compose, "run", "--rm", "--no-TTY", "--quiet-pull", VERIFY_SERVICE),
        *("--in-network", "--called", str(run_dir), *["--json"] * as_json),
        # Compose ends at SIGINT, so the verdict is requested by standard input.
        *["--follow", "--wait"] * follow,
    ]


def verify_now(command: list[str]) -> VerifierResult:
    """Verify a run that has ended, and return the result. The verifier inherits standard error.

    Ctrl-C ends the verifier, which ends its own child processes, unless that takes too long. While the verifier is
    being started, Ctrl-C is only noted: otherwise it would leave a verifier that no code waits for, or ends."""
    process = None
    with spinner("verifying", sys.stderr):
        try:
            with _interrupts_noted() as noted:
                process = subprocess.Popen(
                    command,
                    env=environment(),
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,  # Ctrl-C must reach this process only
                )
            if noted:
                raise KeyboardInterrupt
            output, _ = process.communicate()
        except KeyboardInterrupt:
            if process is None:
                raise
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=LEAVE_SECONDS)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return VerifierResult(output, "", process.returncode)


def follow_now(command: list[str]) -> int:
    """Follow a run, and return the exit code of the verifier, which inherits standard output and standard error.

    The first Ctrl-C makes it print the verdict on the run so far; the second one ends it. A verifier that waits
    (`--wait`) receives the first one as a line, and ends when this process has ended."""
    waits = "--wait" in command
    with _interrupts_noted() as noted:
        process = subprocess.Popen(
            command, env=environment(), stdin=PIPE if waits else None, start_new_session=True
        )
    try:
        return _exit_code_after_interrupts(process, len(noted))
    except KeyboardInterrupt:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LEAVE_SECONDS)
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _exit_code_after_interrupts(process: subprocess.Popen[bytes], interrupts: int) -> int:
    """Wait for the process, and send it each interrupt. Raises KeyboardInterrupt for the second one."""
    for number in range(interrupts):
        _interrupt(process, is_first=number == 0)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            interrupts += 1
            _interrupt(process, is_first=interrupts == 1)
            if interrupts > 1:
                raise


def _interrupt(process: subprocess.Popen[bytes], *, is_first: bool) -> None:
    if process.stdin is None or not is_first:
        process.send_signal(signal.SIGINT)
        return
    with suppress(BrokenPipeError):  # it has ended
        process.stdin.write(f"{INTERRUPTED}\n".encode())
        process.stdin.flush()


@contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """Note each SIGINT, instead of raising KeyboardInterrupt. Only the main thread receives them."""
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    previous = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, previous)


class WaitingVerifier:
    """A verifier that is started during the run, so that its engine is ready when the run has ended."""

    def __init__(self, process: Process, on_line: Callable[[str], None] | None = None) -> None:
        self._process = process
        assert process.stdout is not None
        assert process.stderr is not None
        self._output = asyncio.create_task(_read_lines(process.stdout, on_line))
        self._complaints = asyncio.create_task(process.stderr.read())

    @classmethod
    async def start(cls, command: list[str], on_line: Callable[[str], None] | None = None) -> WaitingVerifier:
        """Start the program. `on_line` receives each line of its output once it is complete."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment(),
            start_new_session=True,  # Ctrl-C must reach this process only
        )
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        return cls(process, on_line)

    async def verify(self) -> VerifierResult:
        """Verify the run, which has ended, and return the result."""
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(ConnectionError):  # it ended early, and its output contains the reason
            stdin.write(b"\n")
            await stdin.drain()
        output, error_output = await self._output, await self._complaints
        return VerifierResult(output.decode(), error_output.decode(), await self._process.wait())

    async def end(self) -> None:
        """End the verifier, if it has not ended by itself, and its child processes."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), LEAVE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.gather(self._output, self._complaints, self._process.wait())


async def _read_lines(stream: asyncio.StreamReader, on_line: Callable[[str], None] | None) -> bytes:
    """Read all output, and pass each line to `on_line`. Lines may have any length."""
    output, begun = bytearray(), b""
    while data := await stream.read(_READ_BYTES):
        output += data
        if on_line is not None:
            *lines, begun = (begun + data).split(b"\n")
            for line in lines:
                on_line(line.decode(errors="replace"))
    if begun and on_line is not None:
        on_line(begun.decode(errors="replace"))
    return bytes(output)
