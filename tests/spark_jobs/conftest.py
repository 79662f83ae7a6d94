"""One Spark session for all tests; it costs more than all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.session import spark_session, tune

from .sample_run import failover_drill
from .spark_cluster import SparkCluster, running_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[1]") as session:
        tune(session, 0)
        yield session


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with running_spark(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def drill_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole drill on disk, to be copied before it is changed."""
    return failover_drill(seconds=4.0, per_second=50).write(tmp_path_factory.mktemp("drill") / "run")
