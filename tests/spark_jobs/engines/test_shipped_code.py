"""The zip for executors, and the program for spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs import pack, submit
from spark_jobs.engines.shipped_code import ARCHIVE, pack_code


def test_the_zip_is_the_same_each_time_and_holds_the_templates(tmp_path: Path) -> None:
    for name in ("one.zip", "other.zip"):
        pack_code(tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()


def test_a_program_beside_the_zip_needs_no_installed_geoemu(
    tmp_path: Path, drill_template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack.main([str(tmp_path / "geoemu")]) == 0
    program = tmp_path / "geoemu" / pack.PROGRAM
    assert f"--py-files {tmp_path}/geoemu/{ARCHIVE} {program} verify" in capsys.readouterr().out
    # The zip comes first in the import path, as spark-submit arranges it.
    command = "import sys, spark_jobs, runpy; assert '.zip/' in spark_jobs.__file__; sys.argv = sys.argv[1:];"
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-c",
                command + "runpy.run_path(sys.argv[0], run_name='__main__')",
                str(program),
            ),
            *("verify", str(drill_template), "--engine", "embedded", "--report", str(tmp_path / "report")),
        ],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "geoemu" / ARCHIVE)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"VALID  {drill_template}\n")
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000


def test_an_unwritable_directory_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert pack.main([str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"{tmp_path}/file cannot be written: ")


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), ([], 2), (["explode"], 2)])
def test_the_program_lists_its_verbs(
    arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit.main(arguments) == status
    printed = capsys.readouterr()
    assert "verify|sweep|export" in (printed.err if status else printed.out)
