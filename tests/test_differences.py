"""`geoemu diff` compares the configuration of two runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator.cli.explain import differences, differences_as_text
from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology
from emulator.errors import Refused
from emulator.run.directory import RunDirectory
from emulator.run.processes import ProcessIdentity
from emulator.run.record import RegionRecord, RunRecord
from tests.cli.test_cli import geoemu

NAMESPACE = "namespace/public%2Fdefault"


def run(folder: Path, settings: BrokerSettings, latency_ms: float, port: int, *, log: str = "sqlite") -> Path:
    region = RegionSpec("us", "c", service_port=port, settings=settings)
    region = replace(region, log=replace(region.log, backend=log))
    topology = Topology(
        "t",
        folder / "topology.yaml",
        (ClusterSpec("c", (region, RegionSpec("eu", "c"))),),
        (
            LinkSpec("us", "eu", LinkShape(latency_ms=latency_ms)),
            LinkSpec("eu", "us", LinkShape()),
        ),
    )
    record = RunRecord(
        runtime="process",
        owner=ProcessIdentity(1, "x"),
        detached=False,
        regions={name: RegionRecord("c", "127.0.0.1", port, port) for name in ("us", "eu")},
        links={},
    )
    folder.mkdir()
    RunDirectory(folder).create(record, topology)
    return folder


def learned(folder: Path, path: str, value: Any, *, revision: int = 1) -> None:
    text = None if value is None else json.dumps(value)
    line = {"at_ms": 1, "region": "us", "revision": revision, "path": path, "version": 0, "value": text}
    with (folder / "regions" / "us" / "metadata.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_runs_with_the_same_configuration_have_no_differences(tmp_path: Path) -> None:
    one = run(tmp_path / "1", BrokerSettings(), 5.0, 1000)
    other = run(tmp_path / "2", BrokerSettings(), 5.0, 2000)
    for folder in (one, other):
        learned(folder, NAMESPACE, {"policies": {"deduplication": True}})
    assert differences(one, other) == []
    assert "have the same configuration" in differences_as_text([], one, other)


def test_diff_compares_settings_links_and_policies(tmp_path: Path) -> None:
    one = run(tmp_path / "1", BrokerSettings(), 5.0, 1000)
    other = run(tmp_path / "2", BrokerSettings(topic_idle_ms=7), 9.0, 1000, log="memory")
    learned(one, NAMESPACE, {"policies": {"deduplication": False}})
    for folder, value in ((one, True), (other, False)):
        learned(folder, NAMESPACE, {"policies": {"deduplication": value}}, revision=2)
    learned(other, "tenant/billing", {})
    learned(other, "tenant/gone", {})
    learned(other, "tenant/gone", None)
    learned(other, "schema/public%2Fdefault%2Forders/00", "sha256:1")
    with (other / "regions" / "us" / "metadata.jsonl").open("a") as file:
        file.write('{"path": "tenant/ha')  # it was killed there
    assert differences_as_text(differences(one, other), one, other).splitlines() == [
        "cluster c: namespace public/default: deduplication: true | false",
        "cluster c: tenant billing: - | is there",
        "link us -> eu: latency_ms: 5.0 | 9.0",
        "region us: log: sqlite | memory",
        f"region us: topic_idle_ms: {BrokerSettings().topic_idle_ms} | 7",
    ]


def test_the_exit_code_of_diff_shows_whether_runs_differ(tmp_path: Path) -> None:
    one = run(tmp_path / "1", BrokerSettings(), 5.0, 1000)
    other = run(tmp_path / "2", BrokerSettings(), 6.0, 1000)
    done = geoemu("diff", str(one), str(other), "--json", folder=tmp_path)
    assert (done.returncode, json.loads(done.stdout)) == (
        1,
        [{"what": "link us -> eu: latency_ms", "one": 5.0, "other": 6.0}],
    )
    assert geoemu("diff", str(one), str(one), folder=tmp_path).returncode == 0


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    one = run(tmp_path / "1", BrokerSettings(), 5.0, 1000)
    with pytest.raises(Refused, match="no run in"):
        differences(one, tmp_path)
    (one / "topology.json").write_text("{}")
    with pytest.raises(Refused, match=r"topology\.json cannot be read"):
        differences(one, one)
