"""Query engines of the tests. All tests share one Spark session: its start takes longer than the tests themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.engines.frames import use_engine
from spark_jobs.engines.session import spark_session
from spark_jobs.engines.spark import SparkEngine

from .sample_run import failover_drill
from .spark_cluster import SparkCluster, running_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkEngine]:
    with spark_session("local[1]") as session:
        engine = SparkEngine(session)
        engine.tune(0)
        yield engine


@pytest.fixture(params=["embedded", pytest.param("spark", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Iterator[QueryEngine]:
    """Run a test with each query engine and its frames. `test_engines` checks that both give equal results."""
    made: QueryEngine = EmbeddedEngine() if request.param == "embedded" else request.getfixturevalue("spark")
    with use_engine(made):
        yield made


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with running_spark(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def drill_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a complete scenario. Tests copy it before they change it."""
    return failover_drill(seconds=4.0, per_second=50).write(tmp_path_factory.mktemp("drill") / "run")
