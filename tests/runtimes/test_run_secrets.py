"""The folder of secrets of a run: values of environment variables, permissions, and what child processes inherit."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.config.security import (
    AuthenticationConfig,
    ClientCredentials,
    SecurityConfig,
    TlsConfig,
    TokenConfig,
)
from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.net.control import control_header, read_control
from emulator.net.tls import Certificates
from emulator.run.directory import RunDirectory
from emulator.runtimes.run_secrets import with_secret_files, without_secrets, write_control
from tests.net import authority

from .fixtures import small_topology

SECURITY = SecurityConfig(
    authentication=AuthenticationConfig(
        TokenConfig(secret_key="env:KEY"), basic_users="/users", region_token="env:TOKEN"
    ),
    client=ClientCredentials(token="env:TOKEN"),
)


def secured(folder: Path) -> Topology:
    return replace(small_topology(folder), security=SECURITY)


def test_values_of_variables_become_files(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    topology = with_secret_files(secured(tmp_path), run, {"KEY": "canary", "TOKEN": "token", "OTHER": "x"})
    authentication, client = topology.security.authentication, topology.security.client
    assert authentication is not None
    assert authentication.token is not None
    assert client is not None
    assert Path(authentication.token.secret_key).read_text() == "canary"
    assert authentication.basic_users == "/users"
    assert authentication.region_token == client.token == f"{run}/secrets/TOKEN"
    assert "canary" not in topology.to_json()
    assert stat.S_IMODE((run / "secrets").stat().st_mode) == 0o700
    for path in (run / "secrets").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert without_secrets({"KEY": "canary", "OTHER": "x"}, run) == {"OTHER": "x"}


TLS = SecurityConfig(
    tls=TlsConfig("env:CERTIFICATE", "env:SERVER_KEY", "env:AUTHORITY"),
    client=ClientCredentials("env:CLIENT_CERTIFICATE", "env:CLIENT_KEY"),
)


def pem_variables() -> dict[str, str]:
    """Return the environment of a run with TLS: the content of valid certificates and keys."""
    server, client = authority.server_files(), authority.client_files()
    paths = {
        "CERTIFICATE": server.certificate,
        "SERVER_KEY": server.key,
        "AUTHORITY": server.authority,
        "CLIENT_CERTIFICATE": client.certificate,
        "CLIENT_KEY": client.key,
    }
    return {name: Path(path).read_text() for name, path in paths.items()}


def test_certificates_and_keys_of_variables_become_files(tmp_path: Path) -> None:
    variables = pem_variables()
    topology = with_secret_files(replace(small_topology(tmp_path), security=TLS), tmp_path, variables)
    tls, of_clients = topology.security.tls, topology.security.of_clients
    assert tls is not None
    assert of_clients is not None
    folder = tmp_path / "secrets"
    assert tls.files == Certificates(
        str(folder / "AUTHORITY"), str(folder / "CERTIFICATE"), str(folder / "SERVER_KEY")
    )
    assert of_clients.key == str(folder / "CLIENT_KEY")
    assert {path.name: path.read_text() for path in folder.iterdir()} == variables
    assert "PRIVATE KEY" not in topology.to_json()
    assert without_secrets({**variables, "OTHER": "x"}, tmp_path) == {"OTHER": "x"}


@pytest.mark.parametrize("name", ["CERTIFICATE", "SERVER_KEY", "AUTHORITY", "CLIENT_KEY"])
def test_a_variable_that_contains_no_certificate_refuses_the_run(tmp_path: Path, name: str) -> None:
    variables = pem_variables() | {name: "canary"}
    with pytest.raises(Refused, match=f"security.tls: .*secrets/{name}") as refused:
        with_secret_files(replace(small_topology(tmp_path), security=TLS), tmp_path, variables)
    assert "canary" not in str(refused.value)


def test_a_variable_that_is_not_set_refuses_the_run(tmp_path: Path) -> None:
    for environment in ({"KEY": "k"}, {"KEY": "k", "TOKEN": ""}):
        with pytest.raises(
            Refused, match="the environment variable TOKEN, which the topology names, is not set"
        ):
            with_secret_files(secured(tmp_path), tmp_path, environment)


def test_the_control_credential(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert write_control(directory, small_topology(tmp_path), "secret") == ""
    assert not (tmp_path / "secrets").exists()
    path = write_control(directory, secured(tmp_path), "secret")
    assert read_control(path) == control_header("secret")
    assert "secret" not in read_control(path)
    assert read_control("") == ""


def test_a_run_without_secrets_passes_all_variables(tmp_path: Path) -> None:
    assert without_secrets({"A": "1"}, tmp_path) == {"A": "1"}
