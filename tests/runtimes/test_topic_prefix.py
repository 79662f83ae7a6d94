"""Runs that share a Kafka have topics of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emulator.config.region import LogConfig, RegionConfig
from emulator.config.topology import Topology

from .fixtures import REGIONS, small_topology, with_regions

Make = Callable[..., object]


def prefixes(run_dir: Path) -> set[str]:
    files = [run_dir / "regions" / name / "region.json" for name in REGIONS]
    return {RegionConfig.load(file).log.options["topic_prefix"] for file in files}


def on_kafka(folder: Path, **options: str) -> Topology:
    return with_regions(
        small_topology(folder), log=LogConfig("kafka", bootstrap_servers="k:9092", options=options)
    )


def test_all_regions_of_a_run_have_one_prefix_and_another_run_has_another(make: Make, tmp_path: Path) -> None:
    for name in "ab":
        make(on_kafka(tmp_path), tmp_path / name)
    (first,), (second,) = prefixes(tmp_path / "a"), prefixes(tmp_path / "b")
    assert first != second


def test_a_prefix_that_the_topology_gives_is_kept(make: Make, tmp_path: Path) -> None:
    make(on_kafka(tmp_path, topic_prefix="orders"), tmp_path / "run")
    assert prefixes(tmp_path / "run") == {"orders"}
