"""The search for a Java for Spark, and the error when there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_jobs.engines.session import (
    EXCLUDED_JARS,
    LARGE_BYTES,
    OPTIMISED_BYTES,
    _java_options,
    class_archive,
    java_problem,
    lean_home,
)

pytestmark = pytest.mark.long


def java_home(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, version)))
    assert java_problem() is None


@pytest.mark.parametrize(("version", "said"), [("1.8.0_402", "is Java 8"), ("11.0.2", "is Java 11")])
def test_a_java_that_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, said: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, version)))
    problem = java_problem()
    assert problem is not None
    assert said in problem
    assert "openjdk-17-jre-headless" in problem


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = java_problem()
    assert problem is not None
    assert "there is none on this machine" in problem
    assert os.linesep not in problem


def test_java_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java_home(tmp_path, "17") / "bin"))
    assert java_problem() is None


def test_a_class_archive_is_used_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache dir"))
    archive = class_archive()
    assert archive.parent == tmp_path / "cache dir" / "geoemu"
    assert "SharedArchiveFile" not in _java_options(0, None)
    archive.parent.mkdir(parents=True)
    archive.touch()
    for evidence_bytes in (0, LARGE_BYTES, OPTIMISED_BYTES):
        assert f'"-XX:SharedArchiveFile={archive}"' in _java_options(evidence_bytes, None)


def test_the_second_tier_of_the_compiler_is_used_for_the_largest_evidence_only() -> None:
    options = [_java_options(size, None) for size in (0, LARGE_BYTES, OPTIMISED_BYTES)]
    assert ["TieredStopAtLevel=1" in one for one in options] == [True, True, False]
    assert ["UseParallelGC" in one for one in options] == [False, True, True]


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "one", "17.0.1")))
    one = class_archive()
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "two", "21.0.1")))
    assert class_archive() != one


def test_a_lean_spark_lacks_what_no_verdict_needs(tmp_path: Path) -> None:
    whole = tmp_path / "pyspark"
    (whole / "bin").mkdir(parents=True)
    (whole / "jars").mkdir()
    for jar in ("spark-sql_2.13-4.3.0.jar", "spark-mllib_2.13-4.3.0.jar", "hive-common-2.3.10.jar"):
        (whole / "jars" / jar).touch()
    home = lean_home(whole, tmp_path / "cache" / "spark")
    assert home == tmp_path / "cache" / "spark"
    assert [jar.name for jar in (home / "jars").iterdir()] == ["spark-sql_2.13-4.3.0.jar"]
    assert (home / "bin").samefile(whole / "bin")
    assert lean_home(whole, home) == home


def test_where_no_lean_spark_can_be_made_the_whole_one_is_taken(tmp_path: Path) -> None:
    (tmp_path / "pyspark" / "jars").mkdir(parents=True)
    (tmp_path / "a file").touch()
    whole = tmp_path / "pyspark"
    assert lean_home(whole, tmp_path / "a file" / "spark") == whole


def test_the_image_leaves_out_the_same_jars() -> None:
    listed = (Path(__file__).parents[3] / "compose/spark/leave-out").read_text().splitlines()
    jars = {line.removeprefix("pyspark/jars/") for line in listed if line.startswith("pyspark/jars/")}
    assert jars == set(EXCLUDED_JARS)
