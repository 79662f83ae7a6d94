"""Everything stored names the version that wrote it; an older one is refused in one sentence with the remedy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.config.loading import load_topology
from emulator.config.region import REGION_CONFIG_VERSION, RegionConfig
from emulator.config.topology import TOPOLOGY_VERSION, Topology
from emulator.errors import Refused
from emulator.model.stored_keys import STORE_FORMAT
from emulator.run.directory import RunDirectory
from emulator.run.record import RUN_VERSION
from emulator.storage.sqlite.file import FORMAT_VERSION

ROOT = Path(__file__).parents[1]


def older(text: str) -> str:
    raw = json.loads(text)
    assert raw["version"] > 1
    return json.dumps({**raw, "version": raw["version"] - 1})


def test_an_older_region_config_ends_the_region_with_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "region.json"
    path.write_text(older(RegionConfig("us", "test").to_json()))
    done = subprocess.run(
        [sys.executable, "-m", "emulator.broker", path],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        f"geoemu: {path}: region config has version {REGION_CONFIG_VERSION - 1}, this geoemu reads version "
        f"{REGION_CONFIG_VERSION}: start a new run, or use the geoemu that wrote it\n"
    )


def test_an_older_run_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"version": RUN_VERSION - 1}))
    with pytest.raises(
        Refused, match=rf"another version \({RUN_VERSION - 1}, this geoemu knows {RUN_VERSION}\): use"
    ):
        RunDirectory(tmp_path).read()


def test_an_older_topology_is_refused() -> None:
    text = load_topology(ROOT / "topology.yaml").to_json()
    with pytest.raises(ValueError, match=f"has version {TOPOLOGY_VERSION - 1}, this geoemu reads"):
        Topology.from_json(older(text))


@pytest.mark.parametrize("read", [RegionConfig.from_json, Topology.from_json])
@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"version": null}'])
def test_a_file_without_a_version_is_rejected(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match="has version None"):
        read(text)


def test_the_page_lists_the_current_versions() -> None:
    text = (ROOT / "docs" / "components" / "stored-state.md").read_text()
    known = {
        "RUN_VERSION": RUN_VERSION,
        "config/topology.py": TOPOLOGY_VERSION,
        "config/region.py": REGION_CONFIG_VERSION,
        "storage/sqlite/file.py": int(FORMAT_VERSION),
        "model/stored_keys.py": STORE_FORMAT,
    }
    for place, version in known.items():
        (row,) = [line for line in text.splitlines() if place in line]
        assert re.split(r" \| ", row)[2].strip() == str(version), place
