"""`geoemu env`: variables that a shell, a dotenv file and a program read back as they were."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from emulator.cli.client_environment import _FORMATS
from emulator.run.directory import RunDirectory
from tests.cli.test_cli import geoemu
from tests.runtimes.fixtures import small_topology
from tests.runtimes.test_run_directory import new_run

HOSTILE = {"A": "plain-1.5/b:c", "B": "two words", "C": 'it\'s "$HOME" `id` \\ end', "D": "é"}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return new_run(small_topology(tmp_path / "files"), None, tmp_path)


def env(folder: Path, *arguments: str) -> str:
    done = geoemu("env", *arguments, folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_variables_are_the_addresses_of_the_run(run: RunDirectory, tmp_path: Path) -> None:
    regions = run.read().regions
    here = regions["us-west"]
    assert json.loads(env(tmp_path, "us-west", "--format", "json")) == {
        "GEOEMU_RUN_DIR": str(run.path),
        "GEOEMU_REGION": "us-west",
        "GEOEMU_SERVICE_URL": here.service_url,
        "GEOEMU_ADMIN_URL": here.admin_url,
        "GEOEMU_SERVICE_URL_US_EAST": regions["us-east"].service_url,
        "GEOEMU_SERVICE_URL_US_WEST": here.service_url,
        "GEOEMU_SERVICE_URL_EU_CENTRAL": regions["eu-central"].service_url,
        "PULSAR_SERVICE_URL": here.service_url,
        "PULSAR_ADMIN_URL": here.admin_url,
        "SPRING_PULSAR_CLIENT_SERVICEURL": here.service_url,
        "SPRING_PULSAR_ADMIN_SERVICEURL": here.admin_url,
        "PULSAR_CLIENT_SERVICEURL": here.service_url,
    }


def test_an_actor_is_set_on_request(run: RunDirectory, tmp_path: Path) -> None:
    assert "GEOEMU_ACTOR=billing\n" in env(tmp_path, "us-east", "--format", "dotenv", "--actor", "billing")
    assert "GEOEMU_ACTOR" not in env(tmp_path, "us-east")


@pytest.mark.parametrize("reader", ["sh", "bash"])
def test_a_shell_evaluates_the_output(run: RunDirectory, tmp_path: Path, reader: str) -> None:
    script = env(tmp_path, "us-east") + 'printf %s "$PULSAR_SERVICE_URL $GEOEMU_RUN_DIR"'
    done = subprocess.run([reader, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{run.read().regions['us-east'].service_url} {run.path}"


def test_no_value_leaves_its_quotes() -> None:
    script = _FORMATS["shell"](HOSTILE) + '\nprintf "%s\\n" "$A" "$B" "$C" "$D"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(HOSTILE.values())


def test_a_dotenv_file_quotes_only_what_needs_it() -> None:
    assert _FORMATS["dotenv"](HOSTILE).splitlines() == [
        "A=plain-1.5/b:c",
        'B="two words"',
        r'''C="it's \"\$HOME\" `id` \\ end"''',
        'D="é"',
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["us-esat"], "did you mean us-east?"),
        (["us-east", "--actor", "../x"], "no file name"),
        (["us-east", "--format", "fish"], "'fish' is not one of"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_prints_no_variable(
    run: RunDirectory, tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = geoemu("env", *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.replace("│", " ").split())
