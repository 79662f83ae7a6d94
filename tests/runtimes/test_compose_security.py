"""Regions in containers with TLS and tokens: a real client uses them, and no secret is where others can read it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
import yaml

from emulator.config.region import LogConfig
from emulator.runtimes.admin_client import call
from emulator.runtimes.compose.runtime import ComposeRuntime
from emulator.runtimes.opening import open_run
from tests.broker.authentication.tokens import token
from tests.net import authority

from .containers import need_containers, remove
from .fixtures import REGIONS, small_topology, with_regions
from .test_compose import RECEIVE_MS, complete, container, states

pytestmark = [pytest.mark.real, pytest.mark.long]

UP_SECONDS = 120
TOPIC = "persistent://public/default/orders"
KEY = "key-of-the-tokens-of-this-run-0123456789"
TOKENS = {role: token(KEY.encode(), sub=role).decode() for role in ("app", "regions")}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    need_containers("region")
    with secured_run(tmp_path_factory.mktemp("compose-security")) as run_dir:
        yield run_dir


@contextlib.contextmanager
def secured_run(folder: Path, **changes: LogConfig) -> Iterator[Path]:
    """Start regions with these changes, and remove them. Yield the run directory."""
    (folder / "regions.token").write_text(TOKENS["regions"])
    run_dir = folder / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKEN_KEY", KEY)
        patch.setenv("APP_TOKEN", TOKENS["app"])
        try:
            topology = small_topology(folder, more=yaml.safe_dump({"security": _security(folder)}))
            runtime = ComposeRuntime.create(with_regions(topology, **changes), run_dir, detached=True)
            asyncio.run(asyncio.wait_for(runtime.up(), UP_SECONDS))
            yield run_dir
        finally:
            asyncio.run(remove(run_dir))


def _security(folder: Path) -> dict[str, object]:
    tls = {**dataclasses.asdict(authority.server_files()), "plain_ports": False}
    regions = {"token": str(folder / "regions.token")}
    return {
        "tls": tls,
        "authentication": {"token": {"secret_key": "env:TOKEN_KEY"}, "regions": regions},
        "authorization": {"superusers": ["regions"], "tenant_admins": {"public": ["app"]}},
        "client": {"token": "env:APP_TOKEN"},
    }


@pytest.fixture
def run(run_dir: Path) -> ComposeRuntime:
    return opened(run_dir)


def opened(run_dir: Path) -> ComposeRuntime:
    runtime = open_run(run_dir)
    assert isinstance(runtime, ComposeRuntime)
    return runtime


def client(
    run: ComposeRuntime, region: str, credential: str | None, timeout_seconds: int = 20
) -> pulsar.Client:
    """Return a client on the host, which connects to the published port."""
    url = next(one.service_url for one in complete(run.status()).regions if one.name == region)
    assert url.startswith("pulsar+ssl://127.0.0.1:")
    return pulsar.Client(
        url,
        authentication=None if credential is None else pulsar.AuthenticationToken(credential),
        tls_trust_certs_file_path=authority.trusting().authority,
        tls_validate_hostname=True,
        operation_timeout_seconds=timeout_seconds,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )


def test_a_client_with_tls_and_a_token_produces_and_consumes(run: ComposeRuntime) -> None:
    check_clients_are_served(run)


@pytest.mark.slow
def test_regions_whose_logs_are_on_kafkas_are_secured_too(tmp_path: Path) -> None:
    need_containers("region", "kafka")
    with secured_run(tmp_path, log=LogConfig("kafka")) as run_dir:
        run = opened(run_dir)
        check_clients_are_served(run)
        complete(run.kill("us-east"))
        complete(run.start("us-east"))
        again = client(run, "us-east", TOKENS["app"])
        reader = again.create_reader(TOPIC, pulsar.MessageId.earliest)
        assert reader.read_next(timeout_millis=RECEIVE_MS).data() == b"over TLS", "from its Kafka"
        again.close()
        assert not list((run_dir / "regions" / "us-east").glob("log.sqlite*"))


def check_clients_are_served(run: ComposeRuntime) -> None:
    status = complete(run.status())
    assert states(status) == dict.fromkeys(REGIONS, "running")
    assert all(one.plain_service_url == "" for one in status.regions)
    here, there = (client(run, name, TOKENS["app"]) for name in ("us-east", "eu-central"))
    here.create_producer(TOPIC).send(b"over TLS")
    consumer = there.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert consumer.receive(timeout_millis=RECEIVE_MS).data() == b"over TLS"
    here.close()
    there.close()


@pytest.mark.parametrize(
    ("credential", "refusal"),
    [
        (None, 'method="none",reason="missing"'),
        (token(b"x" * 40).decode(), 'method="token",reason="signature"'),
    ],
    ids=["none", "another key"],
)
def test_without_a_token_of_the_key_there_is_no_producer(
    run: ComposeRuntime, credential: str | None, refusal: str
) -> None:
    other = client(run, "us-east", credential, timeout_seconds=1)
    with pytest.raises(pulsar.PulsarException):
        other.create_producer(TOPIC)
    other.close()
    us_east = next(one for one in complete(run.status()).regions if one.name == "us-east")
    metrics = complete(call(us_east, "GET", "/metrics")).body.decode()
    assert f"geoemu_refused_authentications_total{{{refusal}}}" in metrics


def test_no_secret_is_in_the_description_of_a_container_its_log_or_the_files_of_the_run(
    run: ComposeRuntime,
) -> None:
    """Secrets are mounted files. The folders with secrets are readable for their owner only."""
    config = json.loads((run.run_dir / "regions" / "us-east" / "region.json").read_text())
    control = (run.run_dir / "secrets" / "control").read_text()
    server_key = Path(authority.server_files().key).read_text()
    secrets = (KEY, *TOKENS.values(), config["run_secret"], control, *server_key.splitlines()[1:-1])
    shown = {"compose.yaml": (run.run_dir / "compose.yaml").read_text()}
    for name in REGIONS:
        identity = complete(container(run, name)).id
        for verb in ("inspect", "logs", "top"):
            done = subprocess.run(["docker", verb, identity], check=True, capture_output=True, text=True)
            shown[f"{verb} {name}"] = done.stdout + done.stderr
    readable = [path for path in run.run_dir.iterdir() if path.is_file()]
    shown |= {path.name: path.read_text() for path in readable}
    assert "/run/secrets/" in shown["inspect us-east"]
    found = [(place, secret) for place, text in shown.items() for secret in secrets if secret in text]
    assert found == []
    private = [run.run_dir / "secrets", *(run.run_dir / "regions" / name for name in REGIONS)]
    assert all(folder.stat().st_mode & 0o077 == 0 for folder in private)
