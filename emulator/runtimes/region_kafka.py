"""A separate Kafka for each region of a process run whose topology has `log: {backend: kafka}` without servers.

    python -m emulator.runtimes.region_kafka FOLDER PORT OWNER_PID   runs a Kafka until a signal or its owner's end
    python -m emulator.runtimes.region_kafka --fetch                 downloads the jars, once; needs Maven

The Kafka keeps running when its region is killed, and the region continues with it after a restart.

    regions/<name>/kafka/            folder of the Kafka: its data and its output
    regions/<name>/kafka/keeper.json process that runs the Kafka, written when it is ready
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from emulator.errors import Refused, RuntimeFailure
from emulator.run.processes import ProcessIdentity, identify, send_signal, state_of
from emulator.runtimes.kafka_server import (
    READY_SECONDS_MAX,
    STOP_SECONDS_MAX,
    KafkaServer,
    fetch_jars,
    find_jars,
)
from emulator.runtimes.region_processes import environment, last_lines

OWNER_CHECK_SECONDS = 0.5
POLL_SECONDS = 0.02
FETCH = f"{Path(sys.executable).name} -m emulator.runtimes.region_kafka --fetch"


def folder_of(region_dir: Path) -> Path:
    """Return the folder of a region's Kafka; it exists only for regions with their own Kafka."""
    return region_dir / "kafka"


def create_folder(region_dir: Path) -> None:
    """Create the folder of a Kafka for this region. Raises Refused if the jars are missing."""
    if find_jars() is None:
        raise Refused(f"the topology names no Kafka, and the jars to start one are missing: type `{FETCH}`")
    folder_of(region_dir).mkdir()


async def start_all(ports: dict[Path, int], owner_pid: int) -> None:
    """Start the Kafkas of these region directories, on their ports, and wait until all are ready. Raises RuntimeFailure
    if one ends before, or is not ready after READY_SECONDS_MAX."""
    keepers = {
        region_dir: subprocess.Popen(
            [
                sys.executable,
                "-m",
                "emulator.runtimes.region_kafka",
                str(folder_of(region_dir)),
                str(port),
                str(owner_pid),
            ],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=(folder_of(region_dir) / "keeper.out").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        for region_dir, port in ports.items()
    }
    try:
        async with asyncio.timeout(READY_SECONDS_MAX):
            for region_dir, keeper in keepers.items():
                await _wait_until_ready(region_dir, keeper)
    except TimeoutError:
        late = [one for one in ports if not _keeper_file(one).exists()]
        raise RuntimeFailure(
            f"the Kafka of {' and '.join(one.name for one in late)} is not ready after {READY_SECONDS_MAX:g} s: "
            f"see {' and '.join(str(folder_of(one) / 'keeper.out') for one in late)}"
        ) from None


async def _wait_until_ready(region_dir: Path, keeper: subprocess.Popen[bytes]) -> None:
    while not _keeper_file(region_dir).exists():
        if keeper.poll() is not None:
            output = last_lines(folder_of(region_dir) / "keeper.out")
            raise RuntimeFailure(f"the Kafka of {region_dir.name} did not start:\n{output}")
        await asyncio.sleep(POLL_SECONDS)


async def stop_all(region_dirs: Iterable[Path]) -> None:
    """Stop the Kafkas of these regions and wait until they have ended; regions without a Kafka are ignored. Raises
    RuntimeFailure if one has not ended 5 s after STOP_SECONDS_MAX."""
    keepers = {one.name: keeper for one in region_dirs if (keeper := _keeper(one)) is not None}
    for keeper in keepers.values():
        send_signal(keeper, signal.SIGTERM)
    seconds = STOP_SECONDS_MAX + 5
    try:
        async with asyncio.timeout(seconds):
            for keeper in keepers.values():
                while state_of(keeper) != "gone":
                    await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        late = {name: keeper.pid for name, keeper in keepers.items() if state_of(keeper) != "gone"}
        groups = " ".join(f"-{pid}" for pid in late.values())
        raise RuntimeFailure(
            f"the Kafka of {' and '.join(late)} did not end within {seconds:g} s: end it with `kill -9 -- {groups}`"
        ) from None


def _keeper_file(region_dir: Path) -> Path:
    return folder_of(region_dir) / "keeper.json"


def _keeper(region_dir: Path) -> ProcessIdentity | None:
    try:
        return ProcessIdentity(**json.loads(_keeper_file(region_dir).read_text()))
    except FileNotFoundError:
        return None


def run_kafka(folder: Path, port: int, owner_pid: int) -> None:
    """Run one Kafka until SIGTERM, SIGINT or SIGHUP, or until the owner process has ended (`owner_pid` 0: no owner)."""
    stop_requested = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop_requested.set())
    jars = find_jars()
    assert jars is not None, "`create_folder` has found the jars"
    server = KafkaServer(folder, jars, port=port)
    server.start()
    try:
        me = identify(os.getpid())
        assert me is not None, "this process exists"
        temporary = folder / "keeper.tmp"
        temporary.write_text(json.dumps({"pid": me.pid, "started": me.started}))
        temporary.replace(folder / "keeper.json")
        owner = identify(owner_pid) if owner_pid else None
        while not stop_requested.wait(OWNER_CHECK_SECONDS):
            if owner_pid and (owner is None or state_of(owner) == "gone"):
                break
    finally:
        server.stop()


def main(arguments: list[str]) -> int:
    """Execute the command line of this program, and return its exit code."""
    try:
        if arguments == ["--fetch"]:
            print(fetch_jars())
        elif len(arguments) == 3:
            run_kafka(Path(arguments[0]), int(arguments[1]), int(arguments[2]))
        else:
            print("usage: region_kafka --fetch | FOLDER PORT OWNER_PID", file=sys.stderr)
            return 2
    except RuntimeFailure as failure:
        print(f"geoemu: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
