"""`security.authentication` and the credentials of `security.client`: values, paths, and problems with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.config.loading import load_topology
from emulator.config.security import (
    AuthenticationConfig,
    ClientCredentials,
    SecurityConfig,
    TokenConfig,
    paths_of,
    with_paths,
)
from emulator.config.topology import Topology
from emulator.errors import ConfigurationError
from tests.broker.authentication.tokens import RSA_KEY, public_file, secret_file
from tests.config.topology_files import write_topology


def load(folder: Path, security: str) -> Topology:
    secret_file(folder)
    public_file(folder, RSA_KEY)
    (folder / "users").write_text("")
    (folder / "app.token").write_text("x")
    return load_topology(write_topology(folder, f"clusters: [americas]\nsecurity:\n{security}"))


def test_all_values(tmp_path: Path) -> None:
    topology = load(
        tmp_path,
        """
  authentication:
    token:
      secret_key: secret.key
      algorithms: [HS512]
      role_claim: role
      audience: us
      issuer: them
    basic: env:USERS
    anonymous_role: guest
    refresh_seconds: 0.5
    regions: {token: app.token}
  client: {token: app.token}
""",
    )
    folder = tmp_path.absolute()
    authentication = AuthenticationConfig(
        TokenConfig(f"{folder}/secret.key", "", ("HS512",), "role", "us", "them"),
        "env:USERS",
        anonymous_role="guest",
        refresh_seconds=0.5,
        region_token=f"{folder}/app.token",
    )
    client = ClientCredentials(token=f"{folder}/app.token")
    assert topology.security == SecurityConfig(authentication=authentication, client=client)
    assert Topology.from_json(topology.to_json()) == topology
    assert topology.security.client_credentials is not None
    assert topology.security.client_credentials.token == f"{folder}/app.token"


def test_the_files_of_regions() -> None:
    config = AuthenticationConfig(TokenConfig(secret_key="s"), "b", region_token="r")
    assert paths_of(config) == {"token-secret-key": "s", "basic-users": "b", "region-token": "r"}
    moved = with_paths(config, {name: f"/x/{name}" for name in paths_of(config)})
    assert paths_of(moved) == {name: f"/x/{name}" for name in paths_of(config)}
    assert paths_of(AuthenticationConfig(tls=True)) == {}


def test_without_authentication_clients_present_nothing(tmp_path: Path) -> None:
    assert SecurityConfig(client=ClientCredentials(token="t")).client_credentials is None


@pytest.mark.parametrize(
    ("security", "problem"),
    [
        ("  authentication: {}", "security.authentication: {}: must have a method: token, basic or tls"),
        ("  authentication: {token: {}}", "must have secret_key or public_key, one of them"),
        (
            "  authentication: {token: {secret_key: secret.key, public_key: public.key}}",
            "must have secret_key or public_key, one of them",
        ),
        (
            "  authentication: {token: {secret_key: missing}}",
            'secret_key: "missing": must be a readable file; it does not exist',
        ),
        (
            "  authentication: {token: {secret_key: app.token}}",
            'secret_key: "app.token": must be a key of tokens; a secret key needs 32 bytes',
        ),
        (
            "  authentication: {token: {public_key: secret.key}}",
            'public_key: "secret.key": must be a key of tokens; neither a public key',
        ),
        (
            "  authentication: {token: {public_key: public.key, algorithms: [HS256]}}",
            "must be a key of tokens; this key verifies RS256",
        ),
        ("  authentication: {token: {secret_key: secret.key, algorithms: [none]}}", "algorithms[0]"),
        ("  authentication: {token: {secret_key: secret.key, algorithms: []}}", "algorithms"),
        ("  authentication: {basic: missing}", 'basic: "missing": must be a readable file'),
        ("  authentication: {basic: 'env:'}", "must be a path, or env:NAME"),
        ("  authentication: {basic: 'env:A-B'}", "must be a path, or env:NAME"),
        ("  authentication: {basic: 'env:../x'}", "must be a path, or env:NAME"),
        ("  authentication: {basic: users, refresh_seconds: 0}", "refresh_seconds"),
        ('  authentication: {basic: users, anonymous_role: "a\\nb"}', "anonymous_role"),
        ("  authentication: {tls: true}", "tls: true: must be omitted without security.tls"),
        (
            "  authentication: {basic: users, regions: {token: app.token}}",
            'regions.token: "app.token": must be omitted without security.authentication.token',
        ),
        ("  client: {token: app.token}", "must be omitted without security.authentication.token"),
        (
            "  authentication: {basic: users}\n  client: {token: app.token}",
            "must be omitted without security.authentication.token",
        ),
        (
            "  authentication: {basic: users, token: {secret_key: secret.key}}\n"
            "  client: {token: app.token, basic: users}",
            "must be omitted beside token",
        ),
    ],
    ids=range(20),
)
def test_problems(tmp_path: Path, security: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, security)
    assert problem in str(refused.value)
    assert "topology.yaml:" in str(refused.value)
