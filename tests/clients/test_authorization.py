"""Real clients of roles with few permissions: what they may use works, and the rest is an error that they report."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.config.security import AuthenticationConfig, AuthorizationConfig, SecurityConfig, TokenConfig
from emulator.core.authorization.grants import Grants
from emulator.core.policies.permissions import PERMISSIONS
from emulator.model.stored_keys import NamespacePath
from tests.broker.authentication.tokens import secret_file, token
from tests.broker.regions import Regions
from tests.clients.harness import OWN, ClientProgram, clients, driver, regions, rejected
from tests.clients.test_authentication import in_file, open_client

pytestmark = [pytest.mark.real, clients(OWN, "rust")]
GRANTS = Grants(
    by_role={"writer": frozenset({"produce"})},
    by_topic={"persistent://public/default/orders": {"reader": frozenset({"consume"})}},
)


async def program_of(program: ClientProgram, world: Regions, folder: Path, role: str) -> ClientProgram:
    await open_client(program, world, token_file=in_file(folder, f"token-{role}", token(sub=role)))
    return program


async def test_a_role_produces_or_consumes_only_where_it_may(client: str, tmp_path: Path) -> None:
    """Each refusal is final for the client: it does not retry until its timeout."""
    security = SecurityConfig(
        authentication=AuthenticationConfig(token=TokenConfig(secret_key=secret_file(tmp_path))),
        authorization=AuthorizationConfig(superusers=("root",)),
    )
    async with (
        regions("us", security={"us": security}) as world,
        driver(client) as one,
        driver(client) as two,
    ):
        us = world.running["us"]
        await us.policies.set(NamespacePath("public/default"), PERMISSIONS, GRANTS)
        writer = await program_of(ClientProgram(one), world, tmp_path, "writer")
        reader = await program_of(ClientProgram(two), world, tmp_path, "reader")
        await reader.subscribe()
        await writer.producer()
        await writer.send("hello")
        assert await reader.receive() == "hello"
        for attempt in (
            writer.subscribe(key="forbidden"),
            reader.producer(key="forbidden"),
            reader.subscribe("bills", key="forbidden"),
        ):
            failure = await rejected(attempt)
            assert "authoriz" in f"{failure.name} {failure}".lower(), (failure.name, str(failure))
        # The connections and what is attached continue.
        await writer.send("again")
        assert await reader.receive() == "again"
        assert not us.directory.exists("persistent://public/default/bills")
