"""A task on another machine notices that it does not see the run of its driver."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

from spark_jobs.engines.session import in_a_sentence
from spark_jobs.engines.shared_folder import RunNotShared, SharedFolder
from tests.spark_jobs.sample_run import SampleRun


@pytest.fixture
def run(tmp_path: Path) -> Path:
    sample = SampleRun({"one": ("a",)})
    sample.publish("a", 0, 1.0)
    return sample.write(tmp_path / "run")


def test_the_same_run_passes_also_after_it_has_grown(run: Path) -> None:
    seen: SharedFolder = pickle.loads(pickle.dumps(SharedFolder.seen_here(run)))
    seen.require()
    (run / "history" / "later.jsonl").write_text("{}\n")
    (run / "run.json").write_text((run / "run.json").read_text() + "\n")
    seen.require()


def test_an_absent_run_is_one_sentence(run: Path) -> None:
    seen = SharedFolder.seen_here(run)
    shutil.rmtree(run)
    with pytest.raises(
        RunNotShared, match=rf"an executor on .+ cannot read {run} \(No such file or directory\)"
    ):
        seen.require()


def test_another_run_under_the_same_path_is_one_sentence(run: Path) -> None:
    seen = SharedFolder.seen_here(run)
    (run / "topology.json").write_text("{}")
    with pytest.raises(
        RunNotShared, match=f"sees another run in {run}: the directory must be on a volume that"
    ):
        seen.require()


def test_the_sentence_is_all_that_is_left_of_spark_s_error() -> None:
    problem = Exception(
        "Job aborted: Lost task 0.3: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "spark_jobs.engines.shared_folder.RunNotShared: an executor on h cannot read /r (No such file): rule\n\n"
        "\tat org.apache.spark"
    )
    assert in_a_sentence(problem) == "an executor on h cannot read /r (No such file): rule"
