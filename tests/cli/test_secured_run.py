"""A run with authentication: all programs of geoemu use its credentials, and no secret appears outside `secrets/`."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pulsar
import pytest

import geoemu as geoemu_library
from emulator.run.directory import RunDirectory
from tests.broker.authentication.tokens import token
from tests.cli.test_cli import geoemu

pytestmark = [pytest.mark.real, pytest.mark.long]

KEY = b"canary-key-0123456789-0123456789-0123456789"
USERS = "ana:$apr1$canary00$ky.VykLIzq6yMkr6gEZ3t0\n"
VARIABLES = {
    "CANARY_KEY": base64.b64encode(KEY).decode(),
    "CANARY_APP": token(KEY, sub="canary-app").decode(),
    "CANARY_REGIONS": token(KEY, sub="canary-regions").decode(),
    "CANARY_USERS": USERS,
}
TOPOLOGY = """
name: secured
clusters: [both]
security:
  authentication:
    token: {secret_key: env:CANARY_KEY}
    basic: env:CANARY_USERS
    regions: {token: env:CANARY_REGIONS}
  client: {token: env:CANARY_APP}
"""
SCENARIO = """
name: short
topic: persistent://public/default/orders
actors:
  producers:
    - {name: orders, region: us, rate_per_second: 50}
  consumers:
    - {name: billing, region: eu, subscription: billing, type: shared}
steps:
  - begin: billing
  - begin: orders
  - wait_until: {consumer: billing, received: 20, within: 60s}
  - kill: us
  - start: us
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "both.yaml").write_text("regions: {us: {}, eu: {}}\n")
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    (tmp_path / "short.yaml").write_text(SCENARIO)
    return tmp_path


def secrets_of(run: Path) -> list[bytes]:
    """Return everything that must not appear: values of variables, the key, signatures, and the control credential."""
    control = (run / "secrets" / "control").read_bytes().split()[1]
    run_secret = json.loads((run / "regions" / "us" / "region.json").read_text())["run_secret"].encode()
    texts = [text.strip().encode() for text in VARIABLES.values()]
    signatures = [text.rpartition(b".")[2] for text in texts if text.count(b".") == 2]
    return [*texts, *signatures, KEY, b"canary-key", b"$apr1$canary00", control, run_secret]


def assert_no_secret(where: str, content: bytes, secrets: list[bytes]) -> None:
    found = [secret[:12] for secret in secrets if secret in content]
    assert not found, (where, found)


def test_no_secret_appears_outside_the_folder_of_secrets(folder: Path) -> None:
    printed = [run_command(folder, "up", "--detach")]
    run = (folder / ".geoemu" / "current").resolve()
    try:
        printed += [
            run_command(folder, *words)
            for words in (
                ["status"],
                ["status", "--json"],
                ["env", "us"],
                ["explain", "link", "us", "eu"],
                ["logs", "us"],
                ["cut", "us", "eu"],
                ["heal"],
                ["kill", "us"],
                ["start", "us"],
            )
        ]
        secrets = secrets_of(run)
        for region in RunDirectory(run).read().regions.values():
            assert region.process is not None
            for name in ("cmdline", "environ"):
                path = Path(f"/proc/{region.process.pid}/{name}")
                assert_no_secret(str(path), path.read_bytes(), secrets)
        publish_with_the_printed_files(run)
    finally:
        printed.append(run_command(folder, "down"))
    for text in printed:
        assert_no_secret("output", text.encode(), secrets)
    assert_no_secret_in(run, secrets)


def test_scenarios_use_the_credentials(folder: Path) -> None:
    report = run_command(folder, "run", "short.yaml", "--engine", "embedded")
    assert "VALID" in report
    run = (folder / ".geoemu" / "current").resolve()
    secrets = secrets_of(run)
    assert_no_secret("output", report.encode(), secrets)
    assert_no_secret_in(run, secrets)


def test_rendered_compose_files_mount_secrets(folder: Path) -> None:
    run_command(folder, "render", "--output", str(folder / "rendered"))
    secrets = secrets_of(folder / "rendered")
    compose = (folder / "rendered" / "compose.yaml").read_text()
    for name in ("token-secret-key", "basic-users", "region-token"):
        assert f"secrets/{name}" in compose
    assert "CANARY_APP" not in compose
    assert_no_secret_in(folder / "rendered", secrets)
    region = json.loads((folder / "rendered" / "regions" / "us" / "region.json").read_text())
    authentication = region["security"]["authentication"]
    assert authentication["token"]["secret_key"] == "/run/secrets/token-secret-key"
    assert authentication["region_token"] == "/run/secrets/region-token"


def run_command(folder: Path, *arguments: str) -> str:
    done = geoemu(*arguments, folder=folder, environment=VARIABLES)
    assert done.returncode == 0, (arguments, done)
    return done.stdout + done.stderr


def assert_no_secret_in(run: Path, secrets: list[bytes]) -> None:
    """Check all files of a run; region.json contains the run's secret, in a folder that only its owner can read."""
    run_secret = secrets[-1]
    for path in run.rglob("*"):
        if not path.is_file() or path.parent.name == "secrets":
            continue
        allowed = [run_secret] if path.name == "region.json" else []
        if allowed:
            assert path.parent.stat().st_mode & 0o077 == 0, path
        assert_no_secret(str(path), path.read_bytes(), [one for one in secrets if one not in allowed])


def publish_with_the_printed_files(run: Path) -> None:
    region = RunDirectory(run).read().regions["eu"]
    assert region.credentials is not None
    path = region.credentials.token
    client = pulsar.Client(
        region.service_url,
        authentication=pulsar.AuthenticationToken(lambda: Path(path).read_text()),
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
    )
    client.create_producer("orders").send(b"x")
    client.close()


def test_roles_of_certificates_with_tls_and_authorization(folder: Path) -> None:
    """Everything together: TLS only, roles of certificates, permissions, and tokens between regions."""
    (folder / "topology.yaml").write_text(
        """
name: secured
clusters: [both]
security:
  tls: {certificate: certs/server.pem, key: certs/server.key, authority: certs/ca.pem, plain_ports: false}
  authentication:
    tls: true
    token: {secret_key: env:CANARY_KEY}
    regions: {token: env:CANARY_REGIONS}
  authorization: {superusers: [canary-regions]}
  client: {certificate: certs/client-app.pem, key: certs/client-app.key}
namespaces:
  public/default: {permissions: {app: [produce, consume]}}
"""
    )
    run_command(folder, "certs", "certs", "--client", "app")
    assert "VALID" in run_command(folder, "run", "short.yaml", "--engine", "embedded")


def test_the_library_uses_the_credentials(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    with geoemu_library.up(folder / "topology.yaml", run_dir=folder / "run") as geo:
        assert geo.create_namespace("public/of-the-library") == "public/of-the-library"
        quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        client = geo.recorded(pulsar.Client(geo.url("us"), logger=quiet, **geo.client_options("us")))
        client.create_producer("orders").send(b"x")
        client.close()
        assert geo.environment("us", actor="a")["GEOEMU_TOKEN_FILE"].endswith("secrets/CANARY_APP")


def test_clients_and_commands_without_credentials_are_refused(folder: Path) -> None:
    """Also a command of another user: without the folder of secrets nothing can be changed."""
    run_command(folder, "up", "--detach")
    run = (folder / ".geoemu" / "current").resolve()
    try:
        region = RunDirectory(run).read().regions["us"]
        client = pulsar.Client(
            region.service_url,
            operation_timeout_seconds=5,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
        )
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("orders")
        client.close()
        answer = subprocess.run(
            ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"{region.admin_url}/admin/v2/clusters"],
            capture_output=True,
            text=True,
        )
        assert answer.stdout == "401"
        (run / "secrets" / "control").rename(run / "secrets" / "moved")
        assert geoemu("cut", "us", "eu", folder=folder).returncode != 0
        (run / "secrets" / "moved").rename(run / "secrets" / "control")
    finally:
        run_command(folder, "down")
