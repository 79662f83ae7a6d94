"""The projects in `examples/` that test with Testcontainers, and the first page's container, on the image that
compose/images.sh builds. Testcontainers' own container for cleaning up cannot be pulled without an image registry."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pulsar
import pytest

from tests.net import authority
from tests.runtimes.containers import need_containers
from tests.runtimes.fixtures import wait_until

from .drills import ROOT
from .test_other_languages import built, want

pytestmark = [pytest.mark.real, pytest.mark.slow]

EXAMPLES = ROOT / "examples"
ENVIRONMENT = {"TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1"}
GO_VERSION = (1, 26)
"""Of the example's go.mod."""
READY_SECONDS = 60.0
TEST_SECONDS = 900


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    need_containers("testcontainers")


def copied(name: str, folder: Path) -> Path:
    ignored = shutil.ignore_patterns("target", "__pycache__", ".pytest_cache")
    return Path(shutil.copytree(EXAMPLES / name, folder / name, ignore=ignored))


def passes(project: Path, *command: str, **environment: str) -> None:
    """Assert that the project's tests pass. Its packages are there: a refused connection is a failure."""
    done = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, **ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=TEST_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_java_project_passes(tmp_path: Path) -> None:
    project = copied("java-testcontainers", tmp_path)
    built(project, "mvn", "-q", "-B", "test-compile")
    passes(project, "mvn", "-q", "-B", "test")
    reports = list(tmp_path.glob("*/target/surefire-reports/*.txt"))
    assert sum(int(re.search(r"Tests run: (\d+)", one.read_text())[1]) for one in reports) >= 6  # type: ignore[index]


def test_the_go_project_passes(tmp_path: Path) -> None:
    want("go", "version", GO_VERSION)
    project = copied("go-testcontainers", tmp_path)
    built(project, "go", "mod", "download")
    passes(project, "go", "test", "-count=1", "./...")


def test_the_python_project_passes(tmp_path: Path) -> None:
    project, pip = copied("python-testcontainers", tmp_path), (sys.executable, "-m", "pip", "--quiet")
    built(project, *pip, "install", "--target", "packages", "--requirement", "requirements.txt")
    packages = str(project / "packages")
    passes(project, sys.executable, "-m", "pytest", "-q", "test_failover.py", PYTHONPATH=packages)


@pytest.fixture
def first_page_container() -> Iterator[str]:
    """The container that the first page starts, on its ports 6650 and 8080."""
    (line,) = re.findall(r"^docker run .*", (ROOT / "README.md").read_text(), re.MULTILINE)
    command, *options = shlex.split(line.partition("#")[0])[1:]
    assert command == "run"
    name = f"geoemu-first-page-{os.getpid()}"
    subprocess.run(
        ["docker", "run", "--detach", "--name", name, *options], check=True, capture_output=True, text=True
    )
    yield name
    subprocess.run(["docker", "rm", "--force", "--volumes", name], check=True, capture_output=True)


def test_the_container_of_the_first_page_is_a_region_on_pulsars_ports(first_page_container: str) -> None:
    wait_until(lambda: _clusters() == b'["standalone"]', "the region is ready", seconds=READY_SECONDS)
    client = pulsar.Client("pulsar://127.0.0.1:6650")
    try:
        consumer = client.subscribe("orders", "billing")
        client.create_producer("orders").send(b"paid")
        assert consumer.receive(10_000).data() == b"paid"
    finally:
        client.close()
    admin = ("docker", "exec", first_page_container, "/pulsar/bin/pulsar-admin")
    created = [*admin, "topics", "create-partitioned-topic", "parts", "-p", "3"]
    subprocess.run(created, check=True, timeout=READY_SECONDS)
    topics = subprocess.run(
        [*admin, "topics", "list", "public/default"], check=True, capture_output=True, timeout=READY_SECONDS
    ).stdout.split()
    assert b"persistent://public/default/orders" in topics
    assert b"persistent://public/default/parts-partition-2" in topics
    functions = subprocess.run([*admin, "functions", "list"], capture_output=True, text=True)
    assert (functions.returncode, functions.stderr) == (
        2,
        "geoemu: pulsar-admin functions: there are no functions and no connectors\n",
    )


SECURE = """
bin/pulsar tokens create-secret-key --output /pulsar/secret.key &&
export CLIENT_PREFIX_authParams=token:$(bin/pulsar tokens create --secret-key /pulsar/secret.key --subject test-user) &&
bin/apply-config-from-env.py conf/standalone.conf &&
bin/apply-config-from-env-with-prefix.py CLIENT_PREFIX_ conf/client.conf &&
bin/pulsar standalone --no-functions-worker
"""
"""What the module for .NET runs with `WithTokenAuthentication()`."""


@pytest.fixture
def secured_container() -> Iterator[tuple[str, str]]:
    """A container with tokens and TLS, and the URL of its published port."""
    provider = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
    variables = {
        "PULSAR_PREFIX_tokenSecretKey": "file:///pulsar/secret.key",
        "superUserRoles": "test-user",
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": provider,
        "CLIENT_PREFIX_authPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "PULSAR_PREFIX_brokerServicePortTls": "6651",
        "PULSAR_PREFIX_webServicePortTls": "8443",
        **{
            f"PULSAR_PREFIX_tls{name}FilePath": f"/certs/{file}"
            for name, file in (("Certificate", "server.pem"), ("Key", "server.key"), ("TrustCerts", "ca.pem"))
        },
    }
    name = f"geoemu-secured-{os.getpid()}"
    image = os.environ.get("GEOEMU_REGION_IMAGE", "geoemu-region:local") + "-testcontainers"
    options = [f"--env={key}={value}" for key, value in variables.items()]
    create = ["docker", "create", "--name", name, "--publish", "127.0.0.1::6651", *options, image]
    subprocess.run([*create, "/bin/bash", "-c", SECURE], check=True, capture_output=True)
    for file in ("server.pem", "server.key", "ca.pem"):
        _copy_readable(authority.folder() / file, f"{name}:/certs/{file}")
    subprocess.run(["docker", "start", name], check=True, capture_output=True)
    published = subprocess.run(["docker", "port", name, "6651"], check=True, capture_output=True, text=True)
    yield name, f"pulsar+ssl://{published.stdout.strip()}"
    subprocess.run(["docker", "rm", "--force", "--volumes", name], check=True, capture_output=True)


def test_pulsars_settings_secure_a_container(secured_container: tuple[str, str]) -> None:
    name, url = secured_container

    def executed(*command: str) -> str:
        done = subprocess.run(["docker", "exec", name, *command], capture_output=True, text=True)
        return done.stdout.strip()

    ready = ("bin/pulsar-admin", "clusters", "list")
    wait_until(lambda: executed(*ready) == "standalone", "pulsar-admin is accepted", seconds=READY_SECONDS)
    issue = ("bin/pulsar", "tokens", "create", "--secret-key", "/pulsar/secret.key", "--subject")
    trusted = str(authority.folder() / "ca.pem")
    for role, accepted in (("test-user", True), ("other", False)):
        credential = pulsar.AuthenticationToken(executed(*issue, role, "--expiry-time", "3600s"))
        client = pulsar.Client(url, authentication=credential, tls_trust_certs_file_path=trusted)
        with contextlib.nullcontext() if accepted else pytest.raises(pulsar.AuthorizationError):
            client.create_producer("orders").send(b"paid")
        client.close()


def _copy_readable(source: Path, target: str) -> None:
    """Copy a file into a container as Testcontainers does: readable for all."""
    with io.BytesIO() as archive:
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tar.gettarinfo(str(source), target.partition(":")[2].lstrip("/"))
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(source.read_bytes()))
        content = archive.getvalue()
    subprocess.run(
        ["docker", "cp", "-", f"{target.partition(':')[0]}:/"], input=content, check=True, capture_output=True
    )


def _clusters() -> bytes:
    try:
        with urlopen("http://127.0.0.1:8080/admin/v2/clusters", timeout=5) as response:
            return bytes(response.read())
    except OSError:
        return b""
