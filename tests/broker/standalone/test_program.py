"""The program behind `bin/pulsar`, started like the commands of Pulsar's images, with a home of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from emulator.broker.standalone.config_file import main as apply_environment
from emulator.broker.standalone.program import main
from tests.broker.regions import Surroundings
from tests.runtimes.fixtures import wait_until

pytestmark = pytest.mark.real
READY = "Successfully updated the policies on namespace public/default"


class Standalone:
    """A standalone broker whose home is a folder of the test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.conf = home / "conf" / "standalone.conf"
        self.output = home / "output.log"
        self.conf.parent.mkdir()
        self.admin_port = Surroundings().free_port()
        self.conf.write_text(
            f"webServicePort={self.admin_port}\nbrokerServicePort={Surroundings().free_port()}\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it, and wait until it is ready."""
        command = [sys.executable, "-m", "emulator.broker.standalone.program", "standalone", "-nfw", "-nss"]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, *options],
                env={**os.environ, "PULSAR_HOME": str(self.home)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_until(lambda: READY in self.output.read_text(), "the broker is ready")

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def ask(self, path: str, method: str = "GET") -> str:
        url = f"http://localhost:{self.admin_port}/admin/v2/{path}"
        with urlopen(Request(url, method=method), timeout=10) as response:
            return str(response.read().decode())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Standalone]:
    broker = Standalone(tmp_path)
    yield broker
    if broker.process is not None and broker.process.poll() is None:
        broker.process.kill()
        broker.process.wait()


def apply(broker: Standalone, monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"PULSAR_PREFIX_{name}", value)
    assert apply_environment([str(broker.conf)]) == 0


def test_a_standalone_broker_answers_what_testcontainers_modules_wait_for(
    broker: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "clusterName": "tc",
        "transactionCoordinatorEnabled": "true",
        "journalX": "1",
        "ledgerY": "2",
    }
    apply(broker, monkeypatch, variables)
    broker.start()
    assert broker.ask("clusters") == '["tc"]'
    assigned = json.loads(broker.ask("persistent/pulsar/system/transaction_coordinator_assign/partitions"))
    assert assigned["partitions"] > 0
    lines = [line for line in broker.output.read_text().splitlines() if "ignored" in line]
    assert len(lines) == 1
    assert lines[0].endswith("settings without effect on an emulated region are ignored: journalX, ledgerY")
    assert broker.stop() == 0


def test_a_restart_keeps_messages_and_metadata_unless_data_is_wiped(broker: Standalone) -> None:
    broker.start()
    broker.ask("persistent/public/default/orders", "PUT")
    broker.ask("namespaces/public/more", "PUT")
    assert broker.stop() == 0
    broker.start()
    assert json.loads(broker.ask("persistent/public/default")) == ["persistent://public/default/orders"]
    assert "public/more" in json.loads(broker.ask("namespaces/public"))
    assert broker.stop() == 0
    broker.start("--wipe-data")
    assert json.loads(broker.ask("persistent/public/default")) == []
    assert json.loads(broker.ask("namespaces/public")) == ["public/default"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["standalone"], "there are no functions and no connectors: add --no-functions-worker"),
        (["standalone", "-nfw", "--config", "/missing.conf"], "/missing.conf"),
        (["standalone", "-nfw", "-a", "a b"], "advertisedAddress=a b: must be"),
    ],
)
def test_wrong_usage_is_one_sentence(
    broker: Standalone,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    problem: str,
) -> None:
    monkeypatch.setenv("PULSAR_HOME", str(broker.home))
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("geoemu: ")
    assert problem in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["broker"], ["standalone", "--unheard-of"]])
def test_unknown_commands_and_options_are_rejected_with_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage: pulsar" in capsys.readouterr().err


def test_the_version_is_geoemus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith("geoemu ")
