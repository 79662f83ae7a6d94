"""A standalone broker with tokens and TLS, set up by the commands that the Pulsar modules of Testcontainers run, and
used by a released client and `bin/pulsar-admin`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from passlib.context import CryptContext

from emulator.broker.standalone.admin_program import main as pulsar_admin
from emulator.broker.standalone.config_file import main as apply_environment
from emulator.broker.standalone.config_file import main_with_prefix
from emulator.broker.standalone.program import main as pulsar_command
from emulator.broker.standalone.security_settings import BASIC, TOKEN
from tests.broker.regions import Surroundings
from tests.broker.standalone.test_program import Standalone
from tests.net import authority

TOPIC = "persistent://public/default/orders"
PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


class Secured(Standalone):
    """A standalone broker that has a key of tokens in a file, and ports with TLS."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.key = home / "secret.key"
        self.client_conf = home / "conf" / "client.conf"
        self.client_conf.write_text("# empty\n")
        self.service_port_tls = Surroundings().free_port()

    @property
    def variables(self) -> dict[str, str]:
        files = authority.server_files()
        plain = {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": TOKEN,
            "superUserRoles": "test-user",
            "brokerClientAuthenticationPlugin": PLUGIN,
        }
        prefixed = {
            "tokenSecretKey": f"file://{self.key}",
            "authenticationRefreshCheckSeconds": "5",
            "brokerServicePortTls": str(self.service_port_tls),
            "webServicePortTls": str(Surroundings().free_port()),
            "tlsCertificateFilePath": files.certificate,
            "tlsKeyFilePath": files.key,
            "tlsTrustCertsFilePath": files.authority,
        }
        return plain | {f"PULSAR_PREFIX_{name}": value for name, value in prefixed.items()}

    def client(self, credential: str | None) -> pulsar.Client:
        return pulsar.Client(
            f"pulsar+ssl://127.0.0.1:{self.service_port_tls}",
            authentication=None if credential is None else pulsar.AuthenticationToken(credential),
            tls_trust_certs_file_path=authority.trusting().authority,
            tls_validate_hostname=True,
            operation_timeout_seconds=20 if credential else 1,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        )


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secured]:
    monkeypatch.setenv("PULSAR_HOME", str(tmp_path))
    broker = Secured(tmp_path)
    yield broker
    if broker.process is not None and broker.process.poll() is None:
        broker.process.kill()
        broker.process.wait()


@pytest.mark.real
def test_the_commands_of_the_modules_secure_a_broker_that_clients_and_pulsar_admin_use(
    broker: Secured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pulsar_command(["tokens", "create-secret-key", "--output", str(broker.key)]) == 0
    create = ["tokens", "create", "--secret-key", str(broker.key), "--subject"]
    assert pulsar_command([*create, "test-user"]) == 0
    superuser = capsys.readouterr().out.strip()
    assert pulsar_command([*create, "app"]) == 0
    app = capsys.readouterr().out.strip()
    for name, value in broker.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PULSAR_PREFIX_brokerClientAuthenticationParameters", f"token:{superuser}")
    assert apply_environment([str(broker.conf)]) == 0
    broker.start()

    assert pulsar_admin(["clusters", "list"]) == 1
    assert "HTTP 401: " in capsys.readouterr().err
    monkeypatch.setenv("CLIENT_PREFIX_authPlugin", PLUGIN)
    monkeypatch.setenv("CLIENT_PREFIX_authParams", f"token:{superuser}")
    assert main_with_prefix(["CLIENT_PREFIX_", str(broker.client_conf)]) == 0
    assert pulsar_admin(["clusters", "list"]) == 0
    assert pulsar_admin(["tenants", "create", "acme"]) == 0
    as_app = ["--auth-plugin", PLUGIN, "--auth-params", f"token:{app}"]
    assert pulsar_admin([*as_app, "tenants", "create", "other"]) == 1
    assert "HTTP 401: " in capsys.readouterr().err

    client = broker.client(superuser)
    consumer = client.subscribe(TOPIC, "s")
    client.create_producer(TOPIC).send(b"over TLS")
    assert consumer.receive(20_000).data() == b"over TLS"
    client.close()
    without_permission, without_token = broker.client(app), broker.client(None)
    with pytest.raises(pulsar.AuthorizationError):
        without_permission.create_producer(TOPIC)
    with pytest.raises(pulsar.PulsarException):
        without_token.create_producer(TOPIC)
    without_permission.close()
    without_token.close()
    assert broker.stop() == 0
    output = broker.output.read_text()
    assert superuser not in output
    assert broker.key.read_bytes().hex() not in output
    assert "are ignored: brokerClientAuthenticationParameters\n" in output


@pytest.mark.real
def test_a_broker_whose_key_is_missing_ends_with_the_reason(
    broker: Secured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in broker.variables.items():
        monkeypatch.setenv(name, value)
    assert apply_environment([str(broker.conf)]) == 0
    assert pulsar_command(["standalone", "-nfw"]) == 2
    assert capsys.readouterr().err == f"geoemu: tokenSecretKey: there is no file {broker.key}\n"


@pytest.mark.real
def test_the_users_of_a_java_system_property_have_passwords(
    broker: Secured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As upstream's own set-ups configure basic authentication."""
    users = broker.home / "users"
    users.write_text(f"ana:{CryptContext(['apr_md5_crypt']).hash('pass word')}")
    monkeypatch.setenv("PULSAR_EXTRA_OPTS", f"-Xmx1g -Dpulsar.auth.basic.conf={users}")
    settings = {"authenticationEnabled": "true", "authenticationProviders": BASIC}
    with broker.conf.open("a") as conf:
        conf.writelines(f"{name}={value}\n" for name, value in settings.items())
    broker.start()
    for password, code in (("pass word", 0), ("other", 1)):
        parameters = json.dumps({"userId": "ana", "password": password})
        as_ana = ["--auth-plugin", "basic", "--auth-params", parameters]
        assert pulsar_admin([*as_ana, "clusters", "list"]) == code
    assert "HTTP 401: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--auth-plugin", "my.Plugin"], "authPlugin=my.Plugin: pulsar-admin of this image has org"),
        (["--auth-plugin", "token", "--auth-params", "token:"], "authParams: must be token:…"),
        (["--auth-plugin", "token", "--auth-params", "token:a\r\nb"], "authParams: must be token:…"),
        (["--auth-plugin", "token", "--auth-params", "file:///missing"], "authParams: the file of the token"),
        (["--auth-plugin", "basic", "--auth-params", "ana:x"], "authParams: must be a JSON object"),
        (["--auth-plugin", "basic", "--auth-params", '{"userId": "ana"}'], "authParams: must be {"),
        (["--admin-url", "https://localhost:8443"], "a URL such as http://localhost:8080 is missing"),
        (["--admin-url", "http://localhost:port"], "a URL such as http://localhost:8080 is missing"),
    ],
)
def test_credentials_that_cannot_be_are_one_sentence(
    broker: Secured, capsys: pytest.CaptureFixture[str], options: list[str], problem: str
) -> None:
    assert pulsar_admin([*options, "topics", "list", "public/default"]) == 2
    printed = capsys.readouterr().err
    assert problem in printed
    assert printed.count("\n") == 1
