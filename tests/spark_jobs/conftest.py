"""One Spark session for all tests; starting it takes longer than all of them."""

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
    """Run a test with each engine, and with its frames. `test_engines` shows that both mean the same."""
    made: QueryEngine = EmbeddedEngine() if request.param == "embedded" else request.getfixturevalue("spark")
    with use_engine(made):
        yield made


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with running_spark(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def drill_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a complete scenario, to be copied before it is changed."""
    return failover_drill(seconds=4.0, per_second=50).write(tmp_path_factory.mktemp("drill") / "run")
