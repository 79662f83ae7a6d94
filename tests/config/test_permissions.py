"""Permissions that a topology declares: of namespaces, and of the roles with a meaning of their own."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import get_args

import pytest

from emulator.config.loading import load_topology
from emulator.config.models import PermittedAction
from emulator.config.security import AuthenticationConfig, AuthorizationConfig, SecurityConfig
from emulator.config.topology import RegionPorts, region_config
from emulator.core.authorization.grants import ACTIONS, parse_grants
from emulator.errors import ConfigurationError
from tests.config.topology_files import write_topology


def test_the_permissions_of_a_namespace_are_its_policy(tmp_path: Path) -> None:
    topology = load_topology(
        write_topology(
            tmp_path,
            """
            clusters: [americas]
            namespaces:
              public/default:
                permissions: {app: [produce, consume], auditor: [consume]}
              public/other:
            """,
        )
    )
    default, other = topology.namespaces
    grants = parse_grants(default.policies["permissions"])
    assert grants.by_role == {"app": {"produce", "consume"}, "auditor": {"consume"}}
    assert "permissions" not in other.policies


@pytest.mark.parametrize(
    ("permissions", "problem"),
    [
        ("{app: [fly]}", 'permissions.app[0]: "fly": must be produce, consume, functions'),
        ("{app: produce}", 'permissions.app: "produce": must be a list'),
        ("{'': [produce]}", "permissions"),
        ("[app]", 'permissions: ["app"]: must be a mapping'),
    ],
)
def test_other_permissions_are_refused_with_the_place(tmp_path: Path, permissions: str, problem: str) -> None:
    text = f"clusters: [americas]\nnamespaces:\n  public/default:\n    permissions: {permissions}\n"
    with pytest.raises(ConfigurationError) as refused:
        load_topology(write_topology(tmp_path, text))
    assert problem in str(refused.value)


def test_the_actions_of_the_files_are_those_of_the_rule() -> None:
    assert get_args(PermittedAction) == ACTIONS


def test_authorization_survives_its_json_form() -> None:
    authorization = AuthorizationConfig(("root",), ("edge",), True, {"acme": ("boss", "deputy")})
    security = SecurityConfig(authentication=AuthenticationConfig(), authorization=authorization)
    written = json.loads(json.dumps(dataclasses.asdict(security)))
    assert SecurityConfig.from_json(written) == security


KEY = "k" * 64
HEADER = """
clusters: [americas]
tenants: [public, acme]
security:
  authentication:
    token: {secret_key: key}
    anonymous_role: guest
"""


def test_the_authorization_of_a_topology_is_that_of_its_regions(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    text = HEADER + (
        "  authorization:\n"
        "    superusers: [root]\n"
        "    proxy_roles: [edge]\n"
        "    tenant_admins: {acme: [boss]}\n"
    )
    topology = load_topology(write_topology(tmp_path, text))
    expected = AuthorizationConfig(("root",), ("edge",), False, {"acme": ("boss",)})
    assert topology.security.authorization == expected
    ports = {name: RegionPorts(1, 2) for name in topology.region_names}
    config = region_config(topology, "us-east", ports, region_dir=tmp_path)
    assert config.security.authorization == expected


def test_no_authorization_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    assert load_topology(write_topology(tmp_path, HEADER)).security.authorization is None


@pytest.mark.parametrize(
    ("authorization", "problem"),
    [
        ("{superusers: [root, guest]}", 'superusers[1]: "guest": must not be the anonymous role'),
        (
            "{tenant_admins: {akme: [boss]}}",
            "tenant_admins.akme: must be a tenant that is listed under tenants",
        ),
        ("{superusers: ['']}", "superusers[0]"),
        ("{superuser: [root]}", "superuser: is not a key here"),
    ],
)
def test_roles_that_cannot_be_meant_are_refused(tmp_path: Path, authorization: str, problem: str) -> None:
    (tmp_path / "key").write_text(KEY)
    with pytest.raises(ConfigurationError) as refused:
        load_topology(write_topology(tmp_path, f"{HEADER}  authorization: {authorization}\n"))
    assert problem in str(refused.value)


def test_authorization_needs_authentication(tmp_path: Path) -> None:
    text = "clusters: [americas]\nsecurity:\n  authorization: {superusers: [root]}\n"
    with pytest.raises(ConfigurationError, match=r"must be omitted without security\.authentication"):
        load_topology(write_topology(tmp_path, text))
