"""Requests to a Docker engine that the runtime repeats or refuses itself. Docker's SDK is replaced."""

from __future__ import annotations

from pathlib import Path

import docker
import pytest
from docker.errors import APIError

from emulator.errors import RuntimeFailure
from emulator.runtimes import docker_engine
from emulator.runtimes.docker_engine import Container, DockerEngine, archive_path

NOT_FROZEN = "Cannot pause container 1: OCI runtime pause failed: unable to freeze: unknown"
CONTAINER = Container(id="1", name="us", state="running", was_started=True, exit_code=0, pid=1)


class Sdk:
    """Docker's SDK in front of an engine that refuses the first `refusals` requests to pause with `explanation`."""

    def __init__(self, refusals: int, explanation: str = NOT_FROZEN) -> None:
        self.api, self.pauses = self, 0
        self._refusals, self._explanation = refusals, explanation

    def ping(self) -> None:
        pass

    def pause(self, _id: str) -> None:
        self.pauses += 1
        if self.pauses <= self._refusals:
            raise APIError("500 Server Error", explanation=self._explanation)


def engine_with(sdk: Sdk, monkeypatch: pytest.MonkeyPatch) -> DockerEngine:
    monkeypatch.setattr(docker, "from_env", lambda **_: sdk)
    monkeypatch.setattr(docker_engine, "_FREEZE_RETRY_SECONDS", 0.0)
    return DockerEngine()


async def test_pause_is_repeated_until_the_processes_could_be_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = Sdk(refusals=3)
    await engine_with(sdk, monkeypatch).pause(CONTAINER)
    assert sdk.pauses == 4


async def test_pause_fails_if_the_processes_cannot_be_frozen_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_engine, "FREEZE_SECONDS", 0.0)
    with pytest.raises(RuntimeFailure, match=r"docker pause us: Cannot pause .* unable to freeze"):
        await engine_with(Sdk(refusals=1_000_000), monkeypatch).pause(CONTAINER)


async def test_pause_is_not_repeated_after_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = Sdk(refusals=1, explanation="no such container")
    with pytest.raises(RuntimeFailure, match="no such container"):
        await engine_with(sdk, monkeypatch).pause(CONTAINER)
    assert sdk.pauses == 1


@pytest.mark.parametrize(
    ("name", "place"),
    [("geoemu/store.sqlite", "store.sqlite"), ("geoemu/lost-1/store.sqlite", "lost-1/store.sqlite")],
)
def test_a_file_keeps_its_place_in_the_folder(name: str, place: str, tmp_path: Path) -> None:
    assert archive_path(name, tmp_path) == tmp_path / place


@pytest.mark.parametrize("name", ["geoemu/../../etc/passwd", "/etc/passwd", "geoemu", "geoemu/a/../../../b"])
def test_nothing_is_written_outside_of_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match="lies in no folder"):
        archive_path(name, tmp_path)
