"""`geoemu export` and `geoemu sweep` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emulator.cli import main, verbs
from tests.spark_jobs.sample_run import SampleRun

ENGINE = ("--engine", "embedded")


def typed(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(verbs.app, list(map(str, words)))
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def run(tmp_path: Path) -> Path:
    sample = SampleRun()
    sample.subscribe("us-east", 0.5)
    sample.publish("us-east", 0, 1.0)
    sample.receive("us-east", "us-east", 0, 1.5)
    return sample.write(tmp_path / "run")


def test_an_export_is_verified_and_swept_like_a_run(run: Path, tmp_path: Path) -> None:
    status, output, _ = typed("export", run, "--to", tmp_path / "export")
    assert status == 0
    assert output.splitlines()[1].split() == ["messages", "3", "rows"]
    assert f"`geoemu verify {tmp_path / 'export'}` computes its verdict" in output
    status, output, _ = typed("verify", tmp_path / "export", *ENGINE, "--json")
    assert (status, json.loads(output)["verdict"]) == (0, "valid")
    status, output, _ = typed("sweep", run, tmp_path / "export", *ENGINE)
    assert status == 0
    assert output == f"2 runs: 2 valid\n  valid    {run}\n  valid    {tmp_path / 'export'}\n"


def test_an_export_in_json(run: Path, tmp_path: Path) -> None:
    status, output, _ = typed("export", run, "--to", tmp_path / "export", "--json")
    content = json.loads(output)
    assert (status, content["export"]) == (0, str(tmp_path / "export"))
    assert content["rows"] == {
        **{"entries": 3, "messages": 3, "markers": 0, "cursors": 0},
        **{"history": 8, "metadata_events": 0, "faults": 0},
    }


def test_what_cannot_be_exported_or_swept_is_one_sentence(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed("export", run, "--to", tmp_path / "export")
    for words, sentence in (
        (("export", run, "--to", tmp_path / "export"), "exists already"),
        (("export", tmp_path, "--to", tmp_path / "new"), "is not a run directory"),
        (("export", tmp_path / "export", "--to", tmp_path / "new"), "is an export already"),
        (("export", run, "--to", run / "run.json" / "new"), "cannot be written"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(list(map(str, words)))
        captured = capsys.readouterr()
        assert captured.out == ""
        assert sentence in captured.err
        assert captured.err.count("\n") == 1
    status, output, _ = typed("sweep", tmp_path / "nowhere", *ENGINE)
    assert status == 2
    assert "it is not a run directory and contains none" in output
    status, _, errors = typed("sweep", run, "--master", "local[1]", *ENGINE)
    assert status == 2
    assert "only Spark uses a cluster" in errors
