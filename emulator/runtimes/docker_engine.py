"""Requests of a runtime to a Docker engine, through Docker's SDK. The SDK blocks, so asynchronous calls use threads."""

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
"""Time limit for a response of the engine."""
FREEZE_SECONDS = 20.0
"""Time for which `pause` repeats a request that the container runtime could not execute."""
_FREEZE_RETRY_SECONDS = 0.1
_NOT_FROZEN = "unable to freeze"
"""What runc reports with control groups v1 if a process of the container was in an uninterruptible system call, or got
no processor, during the few milliseconds that runc waits. The container then continues to run."""
_STATES: dict[str, ProcessState] = {"running": "running", "restarting": "running", "paused": "paused"}
_ONEOFF_LABEL = "com.docker.compose.oneoff"
"""The label of containers started by `docker compose run`."""


@dataclass(frozen=True, slots=True)
class Container:
    """The state of one container at one moment."""

    id: str
    name: str
    state: ProcessState
    was_started: bool
    exit_code: int
    """Exit code of an ended container; 0: it ended gracefully, or it has not ended."""
    pid: int | None


class DockerEngine:
    """The Docker engine in the environment variable DOCKER_HOST, or the local one. Creating it raises Refused if the
    engine does not respond."""

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
        with _runtime_failures(f"looking for image {image}"), suppress(ImageNotFound):
            self._client.images.get(image)
            return True
        return False

    def image_labels(self, image: str) -> dict[str, str]:
        """Return the labels of an image; empty if the image does not exist."""
        with _runtime_failures(f"looking at image {image}"), suppress(ImageNotFound):
            return dict(self._client.images.get(image).labels)
        return {}

    def subnets(self) -> list[str]:
        """Return the IPv4 subnets of all existing networks."""
        with _runtime_failures("listing networks"):
            networks = self._client.api.networks()
        configs = [config for network in networks for config in (network["IPAM"]["Config"] or [])]
        return [config["Subnet"] for config in configs if ":" not in config.get("Subnet", ":")]

    # --- containers -----------------------------------------------------------------------------------------

    async def states(self, run_label: str, label: str) -> dict[str, ProcessState]:
        """Return the states of the containers that `containers` returns, with a single request, for callers that
        poll."""
        rows = await _in_thread(lambda: self._rows(run_label, label))
        return {row["Labels"][label]: _STATES.get(row["State"], "gone") for row in rows}

    async def containers(self, run_label: str, label: str) -> dict[str, Container]:
        """Return all containers of a run that have `label`, by its value. Includes exited containers that were not
        removed; excludes those started with `docker compose run`."""
        return await _in_thread(lambda: self._containers(run_label, label))

    def _rows(self, run_label: str, label: str) -> list[dict[str, Any]]:
        with _runtime_failures("listing containers"):
            found = self._client.api.containers(all=True, filters={"label": [run_label, label]})
        return [row for row in found if row["Labels"].get(_ONEOFF_LABEL) != "True"]

    def _containers(self, run_label: str, label: str) -> dict[str, Container]:
        containers = {}
        for row in self._rows(run_label, label):
            with _runtime_failures("looking at a container", (404,)):  # removed meanwhile
                raw = self._client.api.inspect_container(row["Id"])
                containers[row["Labels"][label]] = _container(raw)
        return containers

    async def kill(self, container: Container) -> None:
        """Kill a container with SIGKILL. No effect if it has ended."""
        await self._command(container, "kill", ignore=(404, 409))

    async def stop(self, container: Container, seconds: float) -> None:
        """Stop a container with SIGTERM, and after `seconds` with SIGKILL. A paused container is resumed for that."""
        await self._command(container, "stop", ignore=(404,), timeout=round(seconds))

    async def pause(self, container: Container) -> None:
        """Freeze a container. A busy machine may need several attempts."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + FREEZE_SECONDS
        while True:
            try:
                return await self._command(container, "pause")
            except RuntimeFailure as failure:
                if _NOT_FROZEN not in str(failure) or loop.time() >= deadline:
                    raise
            await asyncio.sleep(_FREEZE_RETRY_SECONDS)

    async def resume(self, container: Container) -> None:
        await self._command(container, "unpause")

    async def _command(
        self, container: Container, verb: str, ignore: tuple[int, ...] = (), **options: Any
    ) -> None:
        def call() -> None:
            with _runtime_failures(f"docker {verb} {container.name}", ignore):
                getattr(self._client.api, verb)(container.id, **options)

        await _in_thread(call)

    # --- files ----------------------------------------------------------------------------------------------

    async def copy_out(self, container: Container, folder: str, to: Path) -> None:
        """Copy all files below a folder in a container, running or not, to `to`. No effect if there is no such
        folder."""

        def copy() -> None:
            with _runtime_failures(f"copying {folder} of {container.name}", (404,)):
                stream, _ = self._client.api.get_archive(container.id, folder)
                with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
                    for member in filter(tarfile.TarInfo.isfile, archive):
                        content = archive.extractfile(member)
                        assert content is not None, "a regular file of an archive has content"
                        file = archive_path(member.name, to)
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_bytes(content.read())

        await _in_thread(copy)

    # --- output ---------------------------------------------------------------------------------------------

    async def output(self, container: Container, *, lines: int | None = None) -> str:
        """Return what the container printed so far, over all its starts; optionally only the last `lines`."""
        tail: int | str = "all" if lines is None else lines

        def read() -> bytes:
            with _runtime_failures(f"reading the logs of {container.name}", (404,)):
                return bytes(self._client.api.logs(container.id, tail=tail))
            return b""

        return (await _in_thread(read)).decode(errors="replace")

    async def follow(self, container: Container) -> AsyncIterator[str]:
        """Yield the lines that the container has printed and will print, until it has ended."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        with _runtime_failures(f"reading the logs of {container.name}"):
            stream = await _in_thread(
                lambda: self._client.api.logs(container.id, stream=True, follow=True, tail="all")
            )

        def pump() -> None:
            # The stream may be closed by `follow` or with the container, and the loop may have ended.
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


def archive_path(name: str, to: Path) -> Path:
    """Return the path in `to` for a file of a container's archive, without the copied folder. Raises RuntimeFailure for
    a path outside of `to`: names in the archive are not trusted."""
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
def _runtime_failures(what: str, ignore: tuple[int, ...] = ()) -> Iterator[None]:
    """Convert errors of the SDK to RuntimeFailure; ignore responses with a status in `ignore`."""
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
    """Return the text of an error, truncated if it has 100 characters or more."""
    text = str(failure)
    return text if len(text) < 100 else text[:97] + "…"
