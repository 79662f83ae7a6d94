"""Tokens that regions present to each other, besides the proof that they know the run's secret."""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path

import pytest

from emulator.broker.replication.peer_auth import METHOD, proof_of
from emulator.config.security import (
    AuthenticationConfig,
    AuthorizationConfig,
    SecurityConfig,
    TokenConfig,
)
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.commands import AuthResponse
from tests.broker.connection.raw import RawClient
from tests.broker.regions import RUN_SECRET, Regions, regions, until

from .tokens import secret_file, token

YEAR = 365 * 86_400


def security(folder: Path, region: str, data: bytes, *superusers: str) -> SecurityConfig:
    """Return the security of a region that presents `data` as its token."""
    path = folder / f"{region}.token"
    path.write_bytes(data + b"\n")
    authentication = AuthenticationConfig(
        token=TokenConfig(secret_key=secret_file(folder)), region_token=str(path), refresh_seconds=0.05
    )
    return SecurityConfig(None, authentication, AuthorizationConfig(superusers) if superusers else None)


def refusals(world: Regions) -> Counter[tuple[str, str]]:
    return world.running["us"].resources.refused_authentications.counts


def why_not(world: Regions, region: str, peer: str) -> str:
    return str(world.running[region].peers[peer].why_not)


async def test_regions_with_tokens_replicate(tmp_path: Path) -> None:
    both = {name: security(tmp_path, name, token(sub="regions"), "regions") for name in ("us", "eu")}
    async with regions("us", "eu", security=both) as world:
        (peer,) = (one for one in world.running["us"].clients.connections if one.peer is not None)
        assert peer.principal.role == "regions"


@pytest.mark.parametrize(
    ("wrong", "reason", "sentence"),
    [
        (token(sub="regions", exp=1), "expired", "the token has expired"),
        (token(sub="app"), "role", "the role 'app' of region 'eu' is no superuser"),
        (b"", "missing", "region 'eu' presents no token"),
        (token(b"x" * 32, sub="regions"), "signature", "no key of this region verifies the token"),
    ],
    ids=["expired", "role", "missing", "signature"],
)
async def test_a_region_with_a_wrong_token_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: bytes, reason: str, sentence: str
) -> None:
    """It is refused with one line in the log, a reason of the link, and a metric; a valid token in the file ends it."""
    good = security(tmp_path, "us", token(sub="regions"), "regions")
    async with regions("us", security={"us": good}) as world:
        world.names.append("eu")
        await start_second(world, security(tmp_path, "eu", wrong, "regions"))
        await until(lambda: sentence in why_not(world, "eu", "us"))
        await until(lambda: refusals(world)["region", reason] > 3)
        for name in ("emulator.broker.connection.connection", "emulator.broker.replication.link"):
            lines = [
                one.getMessage()
                for one in caplog.records
                if one.name == name and one.levelno >= logging.WARNING
            ]
            assert len(lines) == 1, lines  # one line, of many attempts
            assert sentence in lines[0]
        caplog.set_level(logging.INFO)
        (tmp_path / "eu.token").write_bytes(token(sub="regions"))
        await until(lambda: world.running["eu"].peers["us"].connected)


async def start_second(world: Regions, config: SecurityConfig) -> None:
    """Start `eu` after `us`, which knows it as a peer from its next start on."""
    world.clusters["eu"], world.settings["eu"] = world.clusters["us"], world.settings["us"]
    world.disks["eu"], world.skews_ms["eu"] = type(world.disks["us"])(), 0
    world.ports["eu"] = world.surroundings.free_port()
    world.security["eu"] = config
    await world.stop("us")
    await world.start("us")
    await world.start("eu")


async def test_an_expired_token_closes_an_established_link(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = {"us": token(sub="regions"), "eu": token(sub="regions", exp=int(time.time()) + YEAR)}
    both = {name: security(tmp_path, name, data) for name, data in tokens.items()}
    async with regions("us", "eu", security=both) as world:
        world.skews_ms["us"] += 2 * YEAR * 1000
        await until(lambda: "the token has expired" in why_not(world, "eu", "us"))
        await until(lambda: refusals(world)["region", "expired"] > 3)
        lines = [one for one in caplog.records if one.name == "emulator.broker.connection.connection"]
        assert len([one for one in lines if one.levelno >= logging.WARNING]) == 1
        assert world.running["us"].peers["eu"].connected  # its own token does not expire


async def test_a_token_is_no_proof(tmp_path: Path) -> None:
    both = {name: security(tmp_path, name, token(sub="regions")) for name in ("us", "eu")}
    async with regions("us", "eu", security=both) as world:
        for secret, data, reason in (
            ("another run", token(sub="regions"), "proof"),
            (RUN_SECRET, b"", "missing"),
            (RUN_SECRET, b"\0" * 60_000, "malformed"),
        ):
            client = await RawClient.connect(world, handshake=False)
            client.greet(METHOD, b"eu")
            nonce = (await client.next()).authChallenge.challenge.auth_data
            client.writer.write(AuthResponse(METHOD, proof_of(secret, nonce, "eu", "us") + data).encode())
            assert (await client.next()).type == pb.BaseCommand.ERROR
            client.writer.transport.abort()
            assert world.running["us"].resources.refused_authentications.counts["region", reason] == 1
