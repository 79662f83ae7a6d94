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
