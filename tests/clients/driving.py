"""Start a driver and send it commands (drivers/driver.py)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NoReturn, Protocol

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "drivers"
BUILD_SECONDS = 600
KEPT_SECONDS = 3 * 24 * 3_600
GO_VERSION, RUST_VERSION, NODE_VERSION = (1, 23), (1, 85), (16, 0)
"""Smallest versions of Go, Rust and Node that their Pulsar clients and drivers support."""
CANNOT_FETCH = (
    "dial tcp",
    "npm error network",
    "Could not transfer",
    "download of config.json failed",
    "failed to download",
    "spurious network error",
)


class Failed(Exception):
    """An error of the client. `name`: the client's name of the error, without the word Exception."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        super().__init__(f"{name}: {text}")


class Program(Protocol):
    """A program with a Pulsar client: a process or a simulated program."""

    def ask(self, verb: str, **arguments: object) -> asyncio.Future[dict[str, str]]:
        """Send a command and return its response. Raises Failed for an error of the client, or if the program ended."""
        ...

    def kill(self) -> None: ...

    def freeze(self) -> None:
        """Pause the program; its connections stay open."""
        ...


class Driver:
    """A process with a Pulsar client; implements Program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, str]]] = {}
        self._listening = asyncio.ensure_future(self._listen())

    def ask(self, verb: str, **arguments: object) -> asyncio.Future[dict[str, str]]:
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        pairs = "".join(f"\t{name}={value}" for name, value in arguments.items() if value is not None)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\t{verb}{pairs}\n".encode())
        return answer

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            number, outcome, *rest = line.decode().rstrip("\n").split("\t")
            waiting = self._waiting.pop(int(number))
            if waiting.done():
                continue
            if outcome == "ok":
                waiting.set_result(dict(pair.split("=", 1) for pair in rest))
            else:
                waiting.set_exception(Failed(*rest))
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Failed("Gone", "the program has ended"))
                waiting.exception()

    def kill(self) -> None:
        self._process.kill()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._listening


@contextlib.asynccontextmanager
async def driver(client: str) -> AsyncIterator[Driver]:
    """Run the driver of a client of `CLIENTS` or `SMALL_CLIENTS` inside the `async with` block."""
    command = {**CLIENTS, **SMALL_CLIENTS}[client]()
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    made = Driver(process)
    try:
        yield made
    finally:
        await made.end()


# Building the drivers. Each function returns the command that starts one.


def python() -> list[str]:
    return [sys.executable, str(SOURCES / "driver.py")]


def java() -> list[str]:
    """Build the Java driver with the libraries of examples/java."""
    return java_program("java", ROOT / "examples" / "java" / "pom.xml", SOURCES / "Driver.java", "Driver")


def java_program(name: str, pom: Path, source: Path, main: str) -> list[str]:
    """Compile a class with the libraries of a pom if necessary. Return the command that runs it."""
    with _folder(name, pom, source) as folder:
        jars = f"{folder}/target/dependency/*"
        if not (folder / f"{main.replace('.', '/')}.class").exists():
            _built(folder, "mvn", "-q", "-B", "-f", pom.name, "dependency:copy-dependencies")
            _built(folder, "javac", "-cp", jars, "-d", ".", source.name)
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}:{jars}", main]


def want(tool: str, option: str, version: tuple[int, int]) -> None:
    """Skip the test if the tool is missing or older than `version`. `option`: the argument that prints its version."""
    said = subprocess.run([tool, option], capture_output=True, text=True).stdout if shutil.which(tool) else ""
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None or tuple(map(int, found.groups())) < version:
        lacking(f"there is no {tool} of version {version[0]}.{version[1]} or newer")


def lacking(reason: str) -> NoReturn:
    """Skip the test for this reason; in CI, fail it."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def go() -> list[str]:
    return go_program("go", SOURCES / "driver.go")


def go_program(name: str, source: Path) -> list[str]:
    """Compile a program with the modules of examples/go if necessary. Return the command that runs it."""
    want("go", "version", GO_VERSION)
    example = ROOT / "examples" / "go"
    with _folder(name, example / "go.mod", example / "go.sum", source) as folder:
        if not (folder / "driver").exists():
            _built(folder, "go", "build", "-mod=mod", "-o", "driver", source.name)
    return [str(folder / "driver")]


def rust() -> list[str]:
    """Build the Rust driver. Its dependencies take a minute or two, and are built once for all of its versions."""
    want("cargo", "--version", RUST_VERSION)
    with _folder("rust", SOURCES / "Cargo.toml", SOURCES / "driver.rs") as folder:
        if not (folder / "driver").exists():
            target = _cache() / "target-of-rust"
            compiler = folder / "protoc"
            compiler.write_text(f'#!/bin/sh\nexec {sys.executable} -m grpc_tools.protoc "$@"\n')
            compiler.chmod(0o755)
            _built(folder, "cargo", "build", "--quiet", "--target-dir", str(target), PROTOC=str(compiler))
            shutil.copy2(target / "debug" / "driver", folder / "driver")
    return [str(folder / "driver")]


def node() -> list[str]:
    want("node", "--version", NODE_VERSION)
    with _folder("node", SOURCES / "package.json", SOURCES / "driver.js") as folder:
        if not (folder / "installed").exists():
            _built(
                folder, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"
            )
            (folder / "installed").touch()
    return ["node", str(folder / "driver.js")]


CLIENTS = {"python": python, "java": java, "go": go, "rust": rust}
SMALL_CLIENTS = {"node": node}
"""Clients whose drivers have few of the commands: only tests that name them run with them."""


def _cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "geoemu" / "test-drivers"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@contextlib.contextmanager
def _folder(name: str, *sources: Path) -> Iterator[Path]:
    """Lock and return the build folder for the content of these sources, which is kept between runs. Remove folders
    that were unused for KEPT_SECONDS."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    folder = _cache() / f"{name}-{digest}"
    with (_cache() / f"{name}.lock").open("w") as lock:  # drivers with other names build concurrently
        fcntl.flock(lock, fcntl.LOCK_EX)
        for other in _cache().glob(f"{name}-{'[0-9a-f]' * len(digest)}"):
            if other != folder and other.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        os.utime(folder)
        for source in sources:
            (folder / source.name).write_bytes(source.read_bytes())
        yield folder


def _built(folder: Path, *command: str, **environment: str) -> None:
    if shutil.which(command[0]) is None:
        lacking(f"there is no {command[0]}")
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    text = done.stdout + done.stderr
    if done.returncode and any(words in text for words in CANNOT_FETCH):
        lacking("the packages of the driver cannot be fetched")
    assert done.returncode == 0, text
