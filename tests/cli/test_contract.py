"""`geoemu verify --contract`: the contract of a run that was driven by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emulator.cli import verbs
from emulator.errors import ConfigurationError, Refused
from emulator.run.service_contract import ANSWERS_FILE
from tests.spark_jobs.sample_run import SampleRun

CONTRACT = "topic: orders\ncontract: [{subscription: billing, on: invoices}]\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write a run in which `billing` acknowledges an order with a key and publishes no invoice."""
    sample = SampleRun()
    sample.subscribe("us-east", 0.5)
    sample.publish("us-east", 0, 1.0)
    sample.change("publish", "asked", only=0, key="order 1")
    sample.receive("us-east", "us-east", 0, 1.5)
    sample.acknowledge("us-east", 0, 1.6)
    return sample.write(tmp_path / "run")


def verify(run: Path, *options: object) -> tuple[int, dict[str, str]]:
    """Return the exit code, and the verdict of each check."""
    words = ["verify", str(run), "--engine", "embedded", "--json", *map(str, options)]
    result = CliRunner().invoke(verbs.app, words)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    checks = json.loads(result.stdout)["checks"]
    return result.exit_code, {check["name"]: check["verdict"] for check in checks}


def test_a_broken_contract_makes_the_verdict_invalid_from_then_on(run: Path, tmp_path: Path) -> None:
    exit_code, checks = verify(run)
    assert (exit_code, "contract-kept" in checks) == (0, False)
    (tmp_path / "contract.yaml").write_text(CONTRACT)
    for options in (("--contract", tmp_path / "contract.yaml"), ()):
        exit_code, checks = verify(run, *options)
        assert (exit_code, checks["contract-kept"]) == (1, "invalid")


def test_a_limit_of_the_file_counts_unless_the_command_has_its_own(run: Path, tmp_path: Path) -> None:
    (tmp_path / "contract.yaml").write_text("expect: {latency.max: 1ms}\n")
    assert verify(run, "--contract", tmp_path / "contract.yaml")[0] == 1
    assert verify(run, "--contract", tmp_path / "contract.yaml", "--expect", "latency.max<=60m")[0] == 0


def test_nothing_is_stored_of_an_invalid_file_or_where_no_run_is(run: Path, tmp_path: Path) -> None:
    (tmp_path / "contract.yaml").write_text(CONTRACT + "colour: red\n")
    with pytest.raises(ConfigurationError, match=r"contract.yaml:3: colour"):
        verify(run, "--contract", tmp_path / "contract.yaml")
    (tmp_path / "contract.yaml").write_text(CONTRACT)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Refused, match="is not a run directory"):
        verify(tmp_path / "empty", "--contract", tmp_path / "contract.yaml")
    assert not (run / ANSWERS_FILE).exists()
    assert not any((tmp_path / "empty").iterdir())
