"""The projects in `examples/` that test with Testcontainers, and the first page's container, on the image that
compose/images.sh builds. Testcontainers' own container for cleaning up cannot be pulled without an image registry."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pulsar
import pytest

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
    assert sum(int(re.search(r"Tests run: (\d+)", one.read_text())[1]) for one in reports) >= 5  # type: ignore[index]


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


def _clusters() -> bytes:
    try:
        with urlopen("http://127.0.0.1:8080/admin/v2/clusters", timeout=5) as response:
            return bytes(response.read())
    except OSError:
        return b""
