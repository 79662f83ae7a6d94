"""The folder `secrets` of a run: what the topology takes from environment variables, and the credential that controls
the regions. Only its owner can read it; all other files of a run contain paths."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from emulator.config.security import (
    ENVIRONMENT,
    AuthenticationConfig,
    ClientCredentials,
    SecurityConfig,
    TlsConfig,
    paths_of,
    with_paths,
)
from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.net.control import control_header
from emulator.net.tls import client_context, server_context
from emulator.run.directory import RunDirectory

SECRETS_FOLDER = "secrets"
CONTROL = "control"


def with_secret_files(topology: Topology, run_dir: Path, environment: Mapping[str, str]) -> Topology:
    """Write the values of environment variables that the topology names to files, and return the topology with the
    paths of these files. Raises Refused for a variable that is not set, or certificates that cannot be used."""
    security = topology.security
    files = _Files(run_dir, environment)
    changed = SecurityConfig(
        None if security.tls is None else _tls(security.tls, files),
        None if security.authentication is None else _authentication(security.authentication, files),
        security.authorization,
        None if security.client is None else _client(security.client, files),
    )
    if (changed.tls, changed.of_clients) != (security.tls, security.of_clients):
        _check_certificates(changed)
    return dataclasses.replace(topology, security=changed)


def write_control(directory: RunDirectory, topology: Topology, run_secret: str) -> str:
    """Write the credential that controls the regions, and return its path; empty if they require none."""
    if topology.security.authentication is None:
        return ""
    return _write(directory.path, CONTROL, control_header(run_secret))


def protect_regions(directory: RunDirectory, topology: Topology) -> None:
    """Make the folders of regions, which contain the secret of the run, readable for their owner only."""
    if topology.security.authentication is not None:
        for name in topology.region_names:
            directory.region_dir(name).chmod(0o700)


def without_secrets(environment: Mapping[str, str], run_dir: Path) -> dict[str, str]:
    """Return the environment of a child process, without the variables that are files of the run: other programs may
    read the environment of a process."""
    folder = run_dir / SECRETS_FOLDER
    stored = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return {name: value for name, value in environment.items() if name not in stored}


class _Files:
    """Replaces `env:NAME` by the path of a file with its value."""

    def __init__(self, run_dir: Path, environment: Mapping[str, str]) -> None:
        self._run_dir = run_dir
        self._environment = environment

    def path(self, value: str) -> str:
        if not value.startswith(ENVIRONMENT):
            return value
        name = value.removeprefix(ENVIRONMENT)
        if not self._environment.get(name):
            raise Refused(f"security: the environment variable {name}, which the topology names, is not set")
        return _write(self._run_dir, name, self._environment[name])


def _authentication(config: AuthenticationConfig, files: _Files) -> AuthenticationConfig:
    return with_paths(config, {name: files.path(path) for name, path in paths_of(config).items()})


def _client(client: ClientCredentials, files: _Files) -> ClientCredentials:
    return ClientCredentials(
        files.path(client.certificate),
        files.path(client.key),
        files.path(client.token),
        files.path(client.basic),
    )


def _tls(tls: TlsConfig, files: _Files) -> TlsConfig:
    return dataclasses.replace(
        tls,
        certificate=files.path(tls.certificate),
        key=files.path(tls.key),
        authority=files.path(tls.authority),
    )


def _check_certificates(security: SecurityConfig) -> None:
    """Raise Refused for certificates of environment variables that cannot be used: a topology is checked without its
    variables."""
    assert security.tls is not None
    assert security.of_clients is not None
    try:
        server_context(security.tls.files, security.tls.client_certificates)
        client_context(security.of_clients)
    except OSError as failure:
        raise Refused(f"security.tls: {failure}") from None


def _write(run_dir: Path, name: str, content: str) -> str:
    """Write a file that only its owner can read, and return its path."""
    folder = run_dir.absolute() / SECRETS_FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / name
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)
    return str(path)
