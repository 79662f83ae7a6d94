"""What a runtime asks of a Docker engine, through its SDK. The SDK blocks, so every call has a thread to wait in."""

from __future__ import annotations

import asyncio
import io
import tarfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException

from emulator.errors import Refused, RuntimeFailure
from emulator.run.processes import ProcessState

T = TypeVar("T")

ENGINE_SECONDS = 30.0
"""How long the engine may take to answer."""
_STATES: dict[str, ProcessState] = {"running": "running", "restarting": "running", "paused": "paused"}
_BESIDE_LABEL = "com.docker.compose.oneoff"
"""The label of containers started by `docker compose run`."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container at one moment."""

    id: str
    name: str
    state: ProcessState
    was_started: bool
    exit_code: int
    """Of one that is gone: 0 is an orderly end."""
    pid: int | None


class DockerEngine:
    """The engine that the environment names (DOCKER_HOST), or this machine's own."""

    def __init__(self) -> None:
        try:
            self._client = docker.from_env(timeout=ENGINE_SECONDS)
            self._client.ping()
        except (DockerException, RequestException) as failure:
            raise Refused(
                "no Docker engine responds: start one (`sudo systemctl start docker`, or `sudo dockerd`), or use "
                f"--runtime process ({_short(failure)})"
            ) from failure

    # --- images and networks --------------------------------------------------------------------------------

    def has_image(self, image: str) -> bool:
        with _sentences(f"looking for image {image}"), suppress(ImageNotFound):
            self._client.images.get(image)
            return True
        return False

    def image_labels(self, image: str) -> dict[str, str]:
        """Empty for an image that is not there."""
        with _sentences(f"looking at image {image}"), suppress(ImageNotFound):
            return dict(self._client.images.get(image).labels)
        return {}

    def subnets(self) -> list[str]:
        """Those that networks have already (IPv4)."""
        with _sentences("listing networks"):
            networks = self._client.api.networks()
        configs = [config for network in networks for config in (network["IPAM"]["Config"] or [])]
        return [config["Subnet"] for config in configs if ":" not in config.get("Subnet", ":")]

    # --- containers -----------------------------------------------------------------------------------------

    async def states(self, run_label: str, label: str) -> dict[str, ProcessState]:
        """The states of `containers`, in one call, for callers that poll."""
        rows = await _in_thread(lambda: self._rows(run_label, label))
        return {row["Labels"][label]: _STATES.get(row["State"], "gone") for row in rows}

    async def containers(self, run_label: str, label: str) -> dict[str, Container]:
        """All containers of a run that have `label`, by its value. Includes exited containers that were not removed;
        excludes those started with `docker compose run`."""
        return await _in_thread(lambda: self._containers(run_label, label))

    def _rows(self, run_label: str, label: str) -> list[dict[str, Any]]:
        with _sentences("listing containers"):
            found = self._client.api.containers(all=True, filters={"label": [run_label, label]})
        return [row for row in found if row["Labels"].get(_BESIDE_LABEL) != "True"]

    def _containers(self, run_label: str, label: str) -> dict[str, Container]:
        containers = {}
        for row in self._rows(run_label, label):
            with _sentences("looking at a container", (404,)):  # removed meanwhile
                raw = self._client.api.inspect_container(row["Id"])
                containers[row["Labels"][label]] = _container(raw)
        return containers

    async def kill(self, container: Container) -> None:
        """kill -9. Nothing happens to one that is gone."""
        await self._command(container, "kill", ignore=(404, 409))

    async def stop(self, container: Container, seconds: float) -> None:
        """SIGTERM, then kill -9. A paused one goes on for as long as that takes."""
        await self._command(container, "stop", ignore=(404,), timeout=round(seconds))

    async def pause(self, container: Container) -> None:
        await self._command(container, "pause")

    async def resume(self, container: Container) -> None:
        await self._command(container, "unpause")

    async def _command(
        self, container: Container, verb: str, ignore: tuple[int, ...] = (), **options: Any
    ) -> None:
        def call() -> None:
            with _sentences(f"docker {verb} {container.name}", ignore):
                getattr(self._client.api, verb)(container.id, **options)

        await _in_thread(call)

    # --- what they hold -------------------------------------------------------------------------------------

    async def copy_out(self, container: Container, folder: str, to: Path) -> None:
        """Files of a folder inside of it, whether it runs or not; nothing where there is no such folder."""

        def copy() -> None:
            with _sentences(f"copying {folder} of {container.name}", (404,)):
                stream, _ = self._client.api.get_archive(container.id, folder)
                with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
                    for member in filter(tarfile.TarInfo.isfile, archive):
                        content = archive.extractfile(member)
                        assert content is not None, "it is a file"
                        file = place_of(member.name, to)
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_bytes(content.read())

        await _in_thread(copy)

    # --- what they print ------------------------------------------------------------------------------------

    async def output(self, container: Container, *, lines: int | None = None) -> str:
        """Return what the container printed so far, over all its starts; optionally only the last `lines`."""
        tail: int | str = "all" if lines is None else lines

        def read() -> bytes:
            with _sentences(f"reading the logs of {container.name}", (404,)):
                return bytes(self._client.api.logs(container.id, tail=tail))
            return b""

        return (await _in_thread(read)).decode(errors="replace")

    async def follow(self, container: Container) -> AsyncIterator[str]:
        """What it printed and goes on to print, line by line, until it is gone."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        with _sentences(f"reading the logs of {container.name}"):
            stream = await _in_thread(
                lambda: self._client.api.logs(container.id, stream=True, follow=True, tail="all")
            )

        def pump() -> None:
            # It may be closed, by us or with the container; the loop may be over.
            with suppress(RuntimeError):
                with suppress(DockerException, RequestException, OSError, ValueError, AttributeError):
                    for chunk in stream:
                        loop.call_soon_threadsafe(chunks.put_nowait, chunk)
                loop.call_soon_threadsafe(chunks.put_nowait, None)

        threading.Thread(target=pump, daemon=True, name=f"logs of {container.name}").start()
        try:
            rest = b""
            while (chunk := await chunks.get()) is not None:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line.decode(errors="replace")
            if rest:
                yield rest.decode(errors="replace")
        finally:
            stream.close()


def place_of(name: str, to: Path) -> Path:
    """Where in `to` a file of a container's folder goes, whose name begins with the folder's own. RuntimeFailure when
    that would be outside: what an archive says is the container's word."""
    _, *inside = PurePosixPath(name).parts
    if not inside or ".." in inside or name.startswith("/"):
        raise RuntimeFailure(f"a container's archive has a file {name!r}, which lies in no folder of it")
    return to.joinpath(*inside)


def _container(raw: dict[str, Any]) -> Container:
    state = raw["State"]
    return Container(
        id=raw["Id"],
        name=raw["Name"].lstrip("/"),
        state=_STATES.get(state["Status"], "gone"),
        was_started=state["Status"] != "created",
        exit_code=state["ExitCode"],
        pid=state["Pid"] or None,
    )


@contextmanager
def _sentences(what: str, ignore: tuple[int, ...] = ()) -> Iterator[None]:
    """The SDK's errors as ours; answers with a status in `ignore` are none."""
    try:
        yield
    except APIError as failure:
        if failure.status_code not in ignore:
            raise RuntimeFailure(f"{what}: {failure.explanation or failure}") from failure
    except (DockerException, RequestException) as failure:
        raise RuntimeFailure(f"{what}: the Docker engine does not respond ({_short(failure)})") from failure


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)


def _short(failure: Exception) -> str:
    """The innermost reason; the outer ones only wrap it."""
    text = str(failure)
    return text if len(text) < 100 else text[:97] + "…"
