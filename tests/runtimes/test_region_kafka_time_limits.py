"""The processes of regions' Kafkas that exceed their time limits, with other programs in place of Kafka."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.errors import RuntimeFailure
from emulator.run.processes import identify
from emulator.runtimes import region_kafka


@pytest.fixture
def region_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "us-east"
    region_kafka.folder_of(folder).mkdir(parents=True)
    return folder


@pytest.fixture
def deaf_process() -> Iterator[subprocess.Popen[str]]:
    """A process that ignores SIGTERM."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.send_signal(signal.SIGKILL)


async def test_a_kafka_that_is_not_ready_in_time_is_a_runtime_failure(
    region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start_sleeper(*_: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start_sleeper)
    monkeypatch.setattr(region_kafka, "READY_SECONDS_MAX", 0.1)
    try:
        with pytest.raises(
            RuntimeFailure, match=r"the Kafka of us-east is not ready after 0\.1 s: see .*keeper\.out"
        ):
            await region_kafka.start_all({region_dir: 1}, 0)
    finally:
        for process in started:
            process.kill()
            process.wait()


async def test_a_kafka_that_does_not_end_in_time_is_a_runtime_failure(
    region_dir: Path, deaf_process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = identify(deaf_process.pid)
    assert identity is not None
    (region_kafka.folder_of(region_dir) / "keeper.json").write_text(json.dumps(dataclasses.asdict(identity)))
    monkeypatch.setattr(region_kafka, "STOP_SECONDS_MAX", -4.9)
    with pytest.raises(
        RuntimeFailure,
        match=rf"the Kafka of us-east did not end within 0\.1 s: end it with `kill -9 -- -{deaf_process.pid}`",
    ):
        await region_kafka.stop_all([region_dir])
