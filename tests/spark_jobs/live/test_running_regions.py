"""`geoemu verify --follow` beside running regions: a violation is reported while they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.follow_latency import measure
from tests.runtimes.fixtures import end_all, write_topology


@pytest.mark.real
@pytest.mark.parametrize(
    "engine",
    [pytest.param("embedded", marks=pytest.mark.long), pytest.param("spark", marks=pytest.mark.slow)],
)
def test_a_message_that_no_client_recorded_is_reported_while_regions_run(tmp_path: Path, engine: str) -> None:
    """docs/BENCHMARKS.md has the measured time, which depends on the machine."""
    try:
        _, violation = measure(write_topology(tmp_path), tmp_path / "run", engine)
    finally:
        end_all(tmp_path / "run")
    assert violation["invariant"] == "INV-3"
    assert violation["sentence"].startswith("1 message stored ")
    (witness,) = violation["witness"]
    assert (witness["origin_region"], witness["producer"]) == ("us-east", "shop")
