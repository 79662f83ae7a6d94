"""A run directory belongs to one run, and commands from several terminals do not lose each other's changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.config.link_shape import LinkShape
from emulator.config.topology import RegionPorts, Topology
from emulator.errors import Refused
from emulator.run.directory import RunDirectory, claim_new_run, find_run
from emulator.run.processes import ProcessIdentity, identify
from emulator.run.record import RUN_VERSION, RunRecord, links_of, region_record

from .fixtures import small_topology

NO_PROCESS = ProcessIdentity(2**22 + 1, "never")


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    return small_topology(tmp_path / "files")


def record_of(topology: Topology, owner: ProcessIdentity = NO_PROCESS) -> RunRecord:
    regions = {region.name: region_record(region, RegionPorts(1, 2)) for region in topology.regions}
    return RunRecord("process", owner, False, regions, links_of(topology))


def new_run(topology: Topology, given: Path | None, folder: Path, **fields: object) -> RunDirectory:
    with claim_new_run(given, folder) as directory:
        record = record_of(topology)
        for name, value in fields.items():
            setattr(record, name, value)
        directory.create(record, topology)
    return directory


def myself() -> ProcessIdentity:
    identity = identify(os.getpid())
    assert identity is not None
    return identity


def test_a_record_survives_the_way_to_disk_and_back(topology: Topology, tmp_path: Path) -> None:
    directory = new_run(topology, tmp_path / "run", tmp_path, owner=myself())
    with directory.edit() as record:
        record.regions["us-east"].process = myself()
        record.links["us-east", "us-west"] = LinkShape(250.0, 20.0, 1000, "cut")
    again = RunDirectory(tmp_path / "run").read()
    assert again == record
    assert again.regions["us-east"].process == myself()
    assert again.links["us-east", "us-west"] == LinkShape(250.0, 20.0, 1000, "cut")
    assert Topology.from_json((tmp_path / "run" / "topology.json").read_text()) == topology


def test_nothing_is_written_when_an_edit_fails(topology: Topology, tmp_path: Path) -> None:
    directory = new_run(topology, tmp_path / "run", tmp_path)
    before = directory.read()

    def fail_in_the_middle() -> None:
        with directory.edit() as record:
            record.ended = True
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle()
    assert directory.read() == before


def test_every_new_run_of_a_folder_has_its_own_directory_and_verbs_find_the_latest(
    topology: Topology, tmp_path: Path
) -> None:
    first = new_run(topology, None, tmp_path)
    second = new_run(topology, None, tmp_path)
    assert first.path == tmp_path / ".geoemu" / "runs" / "1"
    assert second.path == tmp_path / ".geoemu" / "runs" / "2"
    assert find_run(None, tmp_path).path == second.path
    assert find_run(first.path, tmp_path).path == first.path
    assert (tmp_path / ".geoemu" / ".gitignore").read_text() == "*\n"


def test_a_run_that_is_up_is_not_replaced(topology: Topology, tmp_path: Path) -> None:
    up = new_run(topology, None, tmp_path, owner=myself())
    with pytest.raises(Refused, match=r"a run is up in this folder already .* `geoemu down`"):
        new_run(topology, None, tmp_path)
    with pytest.raises(Refused, match=r"a run is up in .* --run-dir"):
        new_run(topology, up.path, tmp_path)
    assert find_run(None, tmp_path).path == up.path


def test_a_run_whose_owner_died_but_whose_regions_live_is_up(topology: Topology, tmp_path: Path) -> None:
    directory = new_run(topology, None, tmp_path)
    with directory.edit() as record:
        record.regions["us-east"].process = myself()
        record.ended = True
    with pytest.raises(Refused, match="a run is up"):
        new_run(topology, None, tmp_path)


def test_a_directory_given_that_holds_an_ended_run_or_other_things_is_left_alone(
    topology: Topology, tmp_path: Path
) -> None:
    new_run(topology, tmp_path / "run", tmp_path)
    with pytest.raises(Refused, match="holds a run that has ended: delete it"):
        new_run(topology, tmp_path / "run", tmp_path)
    with pytest.raises(Refused, match="not empty and holds no run"):
        new_run(topology, tmp_path / "files", tmp_path)
    with pytest.raises(Refused, match="cannot be a run directory"):
        new_run(topology, tmp_path / "files" / "topology.yaml", tmp_path)


def test_a_run_that_could_not_be_made_leaves_nothing_behind(topology: Topology, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), claim_new_run(None, tmp_path):
        raise ZeroDivisionError
    assert list((tmp_path / ".geoemu" / "runs").iterdir()) == []
    assert not (tmp_path / ".geoemu" / "current").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            json.dumps({"version": RUN_VERSION + 1}),
            f"a run of another version .{RUN_VERSION + 1}, .* delete it",
        ),
        ("{}", "a run of another version"),
        ("[]", "is damaged"),
        ("{", "is damaged"),
        (json.dumps({"version": RUN_VERSION}), "is damaged"),
    ],
)
def test_a_record_that_this_version_cannot_read_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(Refused, match=sentence):
        find_run(tmp_path)


def test_the_message_for_a_missing_run_contains_the_command_that_starts_one(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"no run in .*: start one with `geoemu up`"):
        find_run(None, tmp_path)
    with pytest.raises(Refused, match=r"no run in .*: start one with `geoemu up`"):
        find_run(tmp_path / "nowhere")


def test_changes_from_several_processes_at_once_are_all_kept(topology: Topology, tmp_path: Path) -> None:
    directory = new_run(topology, tmp_path / "run", tmp_path)
    with directory.edit() as record:
        record.regions["us-east"].service_port = 0
    program = """
import sys
from pathlib import Path
from emulator.run.directory import RunDirectory
for _ in range(50):
    with RunDirectory(Path(sys.argv[1])).edit() as record:
        record.regions["us-east"].service_port += 1
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(directory.path)], cwd=Path(__file__).parents[2])
        for _ in range(3)
    ]
    assert [writer.wait(timeout=30) for writer in writers] == [0, 0, 0]
    assert directory.read().regions["us-east"].service_port == 150
